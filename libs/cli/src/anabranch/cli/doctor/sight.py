"""Everything that can be looked at, and the checks of it; `anabranch support-bundle` looks too."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.cli.doctor.checks import (
    cluster_checks,
    local_checks,
    server_checks,
    shared_log_checks,
)
from anabranch.cli.doctor.cluster_view import ClusterView
from anabranch.cli.doctor.examination import Check
from anabranch.cli.doctor.machine import Machine
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.servers import Servers
from anabranch.common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Sight:
    """The sources of facts about a place."""

    place: Place
    machine: Machine
    servers: Servers
    view: ClusterView

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks; without a target those of this machine."""
        local = local_checks(self.machine)
        if self.place.target is None:
            return local
        return (
            *local,
            *server_checks(self.servers),
            *cluster_checks(self.view),
            *shared_log_checks(self.servers, self.view, self.place.tier2),
        )


@asynccontextmanager
async def sight_of(
    place: Place, environment: Mapping[str, str], clock: Clock
) -> AsyncIterator[Sight]:
    """The sources. Connections open when they are needed first, and close with the block."""
    async with AsyncExitStack() as stack:
        yield Sight(
            place,
            Machine(place, environment, clock),
            Servers(place, clock, stack),
            ClusterView(place, clock, stack),
        )
