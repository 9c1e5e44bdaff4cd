"""The parts of a replicated log as a simulated store builds them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.adapters.journal.journal import Journal
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.led import Around
from anabranch.segstore.adapters.replicated_log.log import ReplicatedLog
from anabranch.segstore.domain.log.replica.names import parse_copy_name
from anabranch.segstore.ports_replica import Peers, Register
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.node.placements import Placements
from kit.processes import Process
from kit.rng import seeded

Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """The copies of a store, and the logs that it leads."""

    copies: Copies
    log: ReplicatedLog


def replica_parts(
    journal: Journal,
    node_id: str,
    process: Process,
    *,
    ids: IdSource,
    register: Register,
    peers: Peers,
    spawn: Spawn,
    number: int,
    may_acknowledge_alone: Callable[[], bool],
    flush_wanted: Callable[[int], None],
    failed: Callable[[AnabranchError], None],
) -> ReplicaParts:
    """The parts of one life of a store. `number`: chance for its pauses."""
    loop = process.loop
    copies = Copies(
        journal,
        node_id,
        ids,
        process.clock,
        schedule=loop.call_soon,
        spawn=spawn,
        on_failure=failed,
    )
    around = Around(
        node_id=node_id,
        peers=peers,
        register=register,
        clock=process.clock,
        schedule=loop.call_soon,
        call_later=lambda seconds, callback: loop.call_later(seconds, callback).cancel,
        spawn=spawn,
        back_off_s=drawn_from(seeded(number)),
        may_acknowledge_alone=may_acknowledge_alone,
        flush_wanted=flush_wanted,
    )
    return ReplicaParts(copies, ReplicatedLog(journal, copies, around))


def logs_in(journal: Journal) -> Mapping[int, str]:
    """Container → the id of the log of which the journal has a copy."""
    names = {container: parse_copy_name(name) for container, name in journal.logs().items()}
    return {container: name[0] for container, name in names.items() if name is not None}


class StorePlacements(Placements):
    """A store's placements, which it may read without being the owner."""

    def __init__(self, objects: ObjectStore, node_id: str) -> None:
        super().__init__(objects, node_id)
        self._all = objects

    async def look(self, container: int) -> Placement | None:
        """The placement as stored."""
        stored = await self._all.get(placement_key(container))
        return None if stored is None else placement_from_bytes(stored.value)

    async def hand_over_to(self, taken: Placement, target: str) -> None:
        """Have the target continue the log, as an operator's move does."""
        await self._report(taken, lambda found: replace(found, target=target))
        await self.hand_over(taken)
