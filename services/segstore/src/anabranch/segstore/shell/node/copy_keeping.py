"""Keeps the copies of replicated logs that other stores lead from holding up this store's journal.

The placements are followed, and once a second

    a copy that pins the journal's oldest file asks its leader for a flush, or, if tier 2 has all of
    it, records its position anew,
    if the journal stays above its bound even so, such a copy is *dropped*: it obeys its leader no
    more, so that the leader removes it from the ISR, and
    a dropped copy, or one whose store is no replica any more, is removed, once the placement, read
    anew, shows that the ISR does not have it.

A leader feeds a store without a copy again, so a dropped copy is soon replaced by one that holds
less. The logs that this store leads hear of every change of their placement here, too, and each
look notes their replication for the metrics, which are read in other threads.

State owned: the newest known placements, and the containers that pin the journal.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import AnabranchError, Corrupt
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.domain.log.replica.keeping import is_candidate
from anabranch.segstore.ports_replica import ReplicatedLogs, ReplicationFacts
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.node.placements import replicas_of

LOOK_S = 1.0
ABOVE_S_MAX = 10.0
"""How long leaders have to relieve a journal that is above its bound."""

_log = get_logger(__name__)


class KeptCopies(Protocol):
    """The copies of this store, as far as they are removed here."""

    async def unpin(self, container: int) -> bool:
        """Have the copy hold up no old file, or ask its leader for a flush."""
        ...

    def drop(self, container: int) -> None:
        """Have the copy obey no leader, so that it leaves the ISR; harmless if it leads."""
        ...

    def keep_dropped(self) -> None:
        """Let dropped copies that still exist obey leaders again."""
        ...

    @property
    def dropped(self) -> Sequence[int]:
        """Containers whose copy was dropped and still exists."""
        ...

    async def tidy(self, placements: Iterable[Placement]) -> None:
        """Remove the copies that these placements, read after the last drop, need no more."""
        ...


class CopyKeeping:
    """The loops of one store.

    `logs`: container → the id of the log of which this store has a copy. `bytes_max`: the bound of
    the journal, of which `journal_size` is the present size.
    """

    def __init__(
        self,
        copies: KeptCopies,
        log: ReplicatedLogs,
        placements: ObjectStore,
        *,
        node_id: str,
        logs: Callable[[], Mapping[int, str]],
        bytes_max: int,
        journal_size: Callable[[], int],
        clock: Clock,
        back_off_s: BackOff,
    ) -> None:
        self._copies = copies
        self._log = log
        self._objects = placements
        self._node_id = node_id
        self._logs = logs
        self._bytes_max = bytes_max
        self._journal_size = journal_size
        self._clock = clock
        self._back_off_s = back_off_s
        self._placements: dict[int, Placement] = {}
        self._pinning: frozenset[int] = frozenset()
        self._above_since_s: float | None = None
        """When the journal was first seen above its bound; None while it is not."""
        self._led: Mapping[int, int] = {}
        """The containers that this store led at the last look, with their epochs."""
        self.facts: Sequence[ReplicationFacts] = ()
        """The replication of the logs that this store leads, as of the last look."""

    def hurry(self, containers: frozenset[int]) -> None:
        """Note the containers that are not open here and pin the journal's oldest file."""
        self._pinning = containers

    async def run(self) -> None:
        """Keep the copies until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._look_again())

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for stored in self._objects.watch():
                    failures = 0
                    if stored is not None and stored.value:
                        self._note_stored(stored)
            except AnabranchError as error:
                _log.warning("the placements of copies cannot be followed", error=str(error))
            failures += 1
            await self._clock.sleep(self._back_off_s(failures))

    def _note_stored(self, stored: StoredObject) -> None:
        """Note a placement as stored. A damaged one keeps no other one from being followed."""
        try:
            placement = placement_from_bytes(stored.value)
        except Corrupt as error:
            _log.warning("a placement is damaged", container=stored.key, error=str(error))
        else:
            self.note(placement)

    def note(self, placement: Placement) -> None:
        """Note a placement that was changed."""
        self._placements[placement.container] = placement
        self._tell(placement)

    def _tell(self, placement: Placement) -> None:
        self._log.replicas_changed(
            placement.container, placement.container_epoch, replicas_of(placement)
        )

    def _tell_opened(self) -> None:
        """Tell a log that opened since the last look its replicas: it missed changes meanwhile."""
        led = {facts.container: facts.container_epoch for facts in self.facts}
        for container, _ in led.items() - self._led.items():
            placement = self._placements.get(container)
            if placement is not None:
                self._tell(placement)
        self._led = led

    async def _look_again(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One look, as the module describes it."""
        logs = self._logs()
        described = (self._log.describe(container) for container in logs)
        self.facts = tuple(facts for facts in described if facts is not None)
        self._tell_opened()
        size, now_s = self._journal_size(), self._clock.monotonic()
        if size <= self._bytes_max:
            self._above_since_s = None
        elif self._above_since_s is None:
            self._above_since_s = now_s
        above_s = 0.0 if self._above_since_s is None else now_s - self._above_since_s
        for container in sorted(self._pinning & logs.keys()):
            await self._relieve(container, drop=above_s > ABOVE_S_MAX)
        if size * 2 < self._bytes_max:
            self._copies.keep_dropped()
        for container, log_id in logs.items():
            placement = self._placements.get(container)
            if placement is None:
                continue
            dropped = container in self._copies.dropped
            if is_candidate(self._node_id, log_id, placement, dropped=dropped):
                await self._tidy(container)

    async def _relieve(self, container: int, *, drop: bool) -> None:
        try:
            if await self._copies.unpin(container):
                return
        except AnabranchError as error:
            _log.warning(
                "a copy of a log holds up the journal's oldest file",
                container=container, error=str(error),
            )  # fmt: skip
        if drop and container not in self._copies.dropped:
            _log.warning(
                "the journal stays above its bound: a copy of a log leaves its ISR",
                container=container, journal_bytes=self._journal_size(),
                remedy="check that the leader of the container can write to tier 2",
            )  # fmt: skip
            self._copies.drop(container)

    async def _tidy(self, container: int) -> None:
        try:
            stored = await self._objects.get(placement_key(container))
            if stored is not None:
                await self._copies.tidy([placement_from_bytes(stored.value)])
        except AnabranchError as error:
            _log.warning("a copy was not removed", container=container, error=str(error))
