"""Both maps of a container, as far as they are resident.

`pending` is what requests are decided against, `applied` what is durable; a name is resident in
both or in none. Owned by the container; all calls come from the event loop's thread.
"""

from collections.abc import Callable, Mapping

from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState, TieredExtent, Tombstone, WriterMark
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.expiry import expired, marks_to_keep
from anabranch.segstore.ports import CatalogEntry, StoredCatalog
from anabranch.segstore.shell.memory.applied import Applied
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import Residency, ResidencyLimits


class ResidentSegments:
    """What a container holds of its segments, tombstones and writers."""

    def __init__(
        self, stored: StoredCatalog, cache: Cache, clock: Clock, limits: ResidencyLimits
    ) -> None:
        self.residency = Residency(stored, limits)
        self.applied = Applied(stored.applied_sequence, cache, self.residency.is_known)
        self.pending: SegmentMap = self.applied.state
        """Until the container serves, it is the applied one."""
        self._clock = clock
        self._expiry_ms = int(limits.writer_expiry_s * 1000)

    def serve(self) -> SegmentMap:
        """Everything is recovered: from now on requests are decided. Returns the pending map."""
        self.pending = self.applied.state.copy()
        self.residency.touch(self.pending.segments)
        return self.pending

    def hold(self, name: str, entry: CatalogEntry | Tombstone | None) -> None:
        """The name, which was not resident, is: this is what tier 2 tells of it, None: nothing."""
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

    def evict(self, name: str) -> None:
        """The name, which is clean and not in use, is not resident any more."""
        self.applied.evict(name)
        self.pending.evict(name)

    def forget_writers(self, name: str, now_ms: int, is_live: Callable[[int, bytes], bool]) -> None:
        """Forget the marks in a segment that expired and whose writers have no live session.

        What no manifest has yet is kept.
        """
        known = self.pending.segments.get(name)
        number = known.number if isinstance(known, SegmentState) else 0
        for writer_id, mark in tuple(self.pending.writers.get(number, {}).items()):
            expires = expired(mark, now_ms, self._expiry_ms) and not is_live(number, writer_id)
            if expires and self.applied.forget(number, writer_id):
                self.pending.forget_writer(number, writer_id)
