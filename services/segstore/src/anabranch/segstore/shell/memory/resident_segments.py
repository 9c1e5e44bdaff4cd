"""Both maps of a container, with the names that are resident.

Requests are decided against `pending`; `applied` holds durable state. A name is resident in both or
in neither. Owned by the container; all calls come from the event loop's thread.
"""

from collections.abc import Callable, Mapping

from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState, TieredExtent, Tombstone, WriterMark
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.expiry import expired, marks_to_keep
from anabranch.segstore.domain.table.tail import TableChange
from anabranch.segstore.ports import CatalogEntry, StoredCatalog
from anabranch.segstore.shell.memory.applied import Applied
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import Residency, ResidencyLimits


class ResidentSegments:
    """A container's segments, tombstones and writers in memory."""

    def __init__(
        self, stored: StoredCatalog, cache: Cache, clock: Clock, limits: ResidencyLimits
    ) -> None:
        self.residency = Residency(stored, limits)
        self.applied = Applied(stored.applied_sequence, cache, self.residency.is_known)
        self.pending: SegmentMap = self.applied.state
        """The same map as the applied one until the container serves."""
        self._clock = clock
        self._expiry_ms = int(limits.writer_expiry_s * 1000)

    def serve(self) -> SegmentMap:
        """Separate and return the pending map, because recovery is complete and decisions begin."""
        self.pending = self.applied.state.copy()
        self.applied.share_with(self.pending)
        self.residency.touch(self.pending.segments)
        return self.pending

    def hold(self, name: str, entry: CatalogEntry | Tombstone | None) -> None:
        """Make a missing name resident, as tier 2 describes it; None if tier 2 has nothing under
        it."""
        self.residency.touch((name,))
        if isinstance(entry, CatalogEntry):
            modified_ms, now_ms = entry.state.modified_ms, self._clock.now_ms()
            marks = marks_to_keep(entry.writers, modified_ms, now_ms, self._expiry_ms)
            self._hold(entry.state, entry.extents, marks)
        elif entry is not None:
            self._hold(entry, (), {})

    def _hold(
        self,
        known: SegmentState | Tombstone,
        extents: tuple[TieredExtent, ...],
        marks: Mapping[bytes, WriterMark],
    ) -> None:
        self.applied.hold(known, extents, marks)
        if self.pending is not self.applied.state:
            self.pending.hold(known, marks)

    def drop_from_tails(self, number: int, offset: int) -> list[TableChange]:
        """Drop the updates before `offset` of a table segment, which its index has, from both maps;
        return those that were durable."""
        if self.pending is not self.applied.state and number in self.pending.tables:
            self.pending.tables[number].drop_before(offset)
        tail = self.applied.state.tables.get(number)
        return tail.drop_before(offset) if tail is not None else []

    def evict(self, name: str) -> None:
        """Remove a clean name that is not in use."""
        self.applied.evict(name)
        self.pending.evict(name)

    def forget_writers(self, name: str, now_ms: int, is_live: Callable[[int, bytes], bool]) -> None:
        """Forget a segment's expired marks, unless their writers have a live session.

        Marks that no manifest has recorded yet are kept.
        """
        known = self.pending.segments.get(name)
        number = known.number if isinstance(known, SegmentState) else 0
        for writer_id, mark in tuple(self.pending.writers.get(number, {}).items()):
            expires = expired(mark, now_ms, self._expiry_ms) and not is_live(number, writer_id)
            if expires and self.applied.forget(number, writer_id):
                self.pending.forget_writer(number, writer_id)
