"""Moves all acknowledged data to tier 2, in every container of the cluster.

Every round asks the controller for the places of the containers, then the stores of the containers
that are not flushed yet. A container that moves, opens again or refuses meanwhile is asked again in
the next round, until the caller's time is over. That is safe: a new owner has recovered everything
that the old one acknowledged, and a request covers everything that was acknowledged before it came.
"""

import asyncio

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ConnectionPool, ControlPlane
from anabranch.common.contracts.queries import ContainerDescription, ContainerList, ListContainers
from anabranch.common.errors import AnabranchError, Fenced, Retry, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import Done, FlushContainer
from anabranch.common.workflow.bounded import for_each

FLUSH_TIMEOUT_S = 60.0
REQUEST_S_MAX = 90.0
"""A store answers within a minute, if only to say that it goes on: silence is a lost connection."""
CONCURRENT_MAX = 16
PAUSE_S = 0.1


async def list_containers(
    control: ControlPlane, *, timeout_s: float
) -> tuple[ContainerDescription, ...]:
    """Every container of the cluster, by number. Raises Unavailable."""
    found = await control.query(
        "list_containers", ListContainers(), ContainerList, timeout_s=timeout_s
    )
    return found.containers


class TierTwoFlush:
    """One flush of all containers; `perform` is called once."""

    def __init__(self, control: ControlPlane, pool: ConnectionPool, clock: Clock) -> None:
        self._control = control
        self._pool = pool
        self._clock = clock
        self._missing: dict[int, AnabranchError] = {}
        """Containers that are not flushed yet, and why not as far as is known."""
        self._flushed: set[int] = set()

    async def perform(self, timeout_s: float) -> tuple[int, ...]:
        """Flush → the containers, sorted. Raises Unavailable that names one that is missing."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._round(timeout_s)
                while self._missing:
                    await self._clock.sleep(PAUSE_S)
                    await self._round(timeout_s)
        except TimeoutError:
            raise self._unfinished(timeout_s) from None
        return tuple(sorted(self._flushed))

    async def _round(self, timeout_s: float) -> None:
        found = await list_containers(self._control, timeout_s=min(timeout_s, QUERY_TIMEOUT_S))
        due = [one for one in found if one.container not in self._flushed]
        for one in due:
            under_way = Unavailable("the flush did not end in time; it continues")
            self._missing.setdefault(one.container, under_way)
        await for_each(due, CONCURRENT_MAX, self._flush)

    async def _flush(self, container: ContainerDescription) -> None:
        number = container.container
        try:
            connection = await self._pool.connection_to(_endpoint(container))
            await connection.request(
                FlushContainer(container=number), Done, timeout_s=REQUEST_S_MAX
            )
        except (Retry, Fenced) as error:
            self._missing[number] = error
            return
        self._flushed.add(number)
        del self._missing[number]

    def _unfinished(self, timeout_s: float) -> Unavailable:
        if not self._missing:
            return Unavailable("the flush did not begin in time", seconds=timeout_s)
        container, error = min(self._missing.items(), key=lambda item: item[0])
        return Unavailable(
            "some acknowledged events may not be in tier 2",
            remedy="run `anabranch container list`, then flush again",
            container=container,
            cause=str(error),
            missing=len(self._missing),
            seconds=timeout_s,
        )


def _endpoint(container: ContainerDescription) -> Endpoint:
    """Where the container is served. Raises Unavailable if it is not."""
    if container.state != "open" or not container.host:
        raise Unavailable(
            "the container is not open", state=container.state, reason=container.reason
        )
    return Endpoint(container.host, container.port)
