"""The pages of the next snapshot: those of the last one, merged with the changes since (pure).

`plan_snapshot` walks the old pages in the order of their keys. It yields, one after another,

    Read(page)   → send the page's contents
    HeldPage     a page of the last snapshot that the next one reuses
    NewPage      a page to be written

and the last two in the order of the new index. The result equals a new division of the whole
catalog. A page is reused without being read if no change lies in its range, and it begins and ends
where it did. Its beginning stays if it is anchored or follows a page that was itself reused; its
end stays if the first entry of the next page stays. A page that is read and turns out unchanged is
reused, too.

The order of kinds matters: the segments determine which numbers are gone, and which extents move
between a segment's own entry and the pages of earlier extents.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from anabranch.common.tier2.catalog import Extents, extents_after
from anabranch.common.tier2.manifest import SegmentChange
from anabranch.common.tier2.page import Page
from anabranch.common.tier2.page_index import (
    HeldPage,
    PageHead,
    PageKind,
    extent_key,
    name_key,
    number_key,
    number_of,
)
from anabranch.common.tier2.state import Tombstone
from anabranch.segstore.domain.storage.directory import (
    Directory,
    OpenPage,
    Reading,
    earlier_extents,
)
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.domain.storage.paging import (
    EXTENTS,
    SEGMENTS,
    TOMBSTONES,
    WRITERS,
    Entry,
    ExtentValue,
    Filling,
    NewPage,
    PageLimits,
    PageShape,
    SegmentValue,
    WriterValue,
    extent_entry,
    inline_from,
    segment_entry,
    tombstone_entry,
    writer_entry,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """A page that must be read to continue."""

    page: HeldPage


Step = Read | HeldPage | NewPage
Plan = Generator[Step, OpenPage | None, None]


def plan_snapshot(
    directory: Directory, overlay: Overlay, limits: PageLimits, forget_ms: int
) -> Plan:
    """The pages of the snapshot of the last one and the overlay together.

    Tombstones created at or before `forget_ms` are left out. Raises CorruptManifest if the overlay
    does not follow the snapshot.
    """
    segments = _SegmentChanges(directory, overlay, limits)
    pages = directory.of_kind
    yield from _Merge(SEGMENTS, segments, limits).plan(pages(PageKind.SEGMENTS))
    gone = sorted(segments.gone)
    extents = _NumberedChanges(segments.moved, gone)
    yield from _Merge(EXTENTS, extents, limits).plan(pages(PageKind.EXTENTS))
    tombstones = _TombstoneChanges(directory, overlay, forget_ms)
    yield from _Merge(TOMBSTONES, tombstones, limits).plan(pages(PageKind.TOMBSTONES))
    writers = _NumberedChanges(_moved_writers(overlay, segments.gone), gone)
    yield from _Merge(WRITERS, writers, limits).plan(pages(PageKind.WRITERS))


# --- one kind ---------------------------------------------------------------------------------


class _Changes(Protocol[T]):
    """The overlay's changes to one kind of entries."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that may differ, ascending."""
        ...

    def touches(self, head: PageHead, /) -> bool:
        """Whether the page may lose entries whose keys are not among `keys`."""
        ...

    def renewed(self, key: bytes, before: T | None, /) -> Reading[Entry[T] | None]:
        """The entry under one of `keys` now, if any."""
        ...

    def keeps(self, entry: Entry[T], /) -> bool:
        """Whether an entry whose key is not among `keys` stays."""
        ...


class _Merge(Generic[T]):
    """Merges the pages of one kind with their changes."""

    def __init__(self, shape: PageShape[T], changes: _Changes[T], limits: PageLimits) -> None:
        self._shape = shape
        self._changes = changes
        self._keys = changes.keys
        self._filling = Filling(shape, limits)
        self._read: dict[bytes, tuple[HeldPage, Page]] = {}
        """By first key, pages that were read and may turn out unchanged."""

    def plan(self, pages: Sequence[HeldPage]) -> Plan:
        """See `plan_snapshot`."""
        position = 0
        for at, held in enumerate(pages):
            following = pages[at + 1].head if at + 1 < len(pages) else None
            upto = len(self._keys)
            if following is not None:
                upto = bisect_left(self._keys, following.first, position)
            due, position = self._keys[position:upto], upto
            if not due and self._stays(held.head, following):
                yield from self._finish()
                yield held
                continue
            opened = yield Read(held)
            assert opened is not None
            self._read[held.head.first] = (held, opened.page)
            yield from self._entries(self._shape.entries(opened.page), due)
        yield from self._entries(iter(()), self._keys[position:])
        yield from self._finish()

    def _stays(self, head: PageHead, following: PageHead | None) -> bool:
        """Whether a page with no change in its range is also a page of the new snapshot."""
        begins = self._filling.empty or head.anchored
        return begins and not self._changes.touches(head) and self._begins_same(following)

    def _begins_same(self, head: PageHead | None) -> bool:
        """Whether the first entry of a page certainly stays unchanged."""
        if head is None:
            return True
        at = bisect_left(self._keys, head.first)
        changed = at < len(self._keys) and self._keys[at] == head.first
        return not changed and not self._changes.touches(head)

    def _entries(self, entries: Iterator[Entry[T]], due: Sequence[bytes]) -> Plan:
        """Entries in the order of keys, those under `due` renewed."""
        waiting = list(reversed(due))
        for entry in entries:
            while waiting and waiting[-1] < entry.key:
                yield from self._renew(waiting.pop(), None)
            if waiting and waiting[-1] == entry.key:
                yield from self._renew(waiting.pop(), entry.value)
            elif self._changes.keeps(entry):
                yield from self._add(entry)
        while waiting:
            yield from self._renew(waiting.pop(), None)

    def _renew(self, key: bytes, before: T | None) -> Plan:
        entry = yield from _as_plan(self._changes.renewed(key, before))
        if entry is not None:
            yield from self._add(entry)

    def _add(self, entry: Entry[T]) -> Plan:
        if not self._filling.takes(entry):
            yield from self._finish()
        self._filling.add(entry)

    def _finish(self) -> Plan:
        if self._filling.empty:
            return
        made = self._filling.finish()
        held, page = self._read.get(made.head.first, (None, None))
        if held is not None and page == made.page:
            yield HeldPage(held.ref, made.head)
        else:
            yield made
        self._read = {key: read for key, read in self._read.items() if key > made.head.last}


def _as_plan(reading: Reading[T]) -> Generator[Step, OpenPage | None, T]:
    """The same plan, which requests its pages by `Read`."""
    sent: OpenPage | None = None
    while True:
        try:
            held = next(reading) if sent is None else reading.send(sent)
        except StopIteration as end:
            found: T = end.value
            return found
        sent = yield Read(held)
        assert sent is not None


# --- the changes, by kind ---------------------------------------------------------------------


class _SegmentChanges:
    """Segments by name.

    It notes in `gone` the numbers that ended, and in `moved` the new entries of earlier extents;
    both are complete when all segments are merged.
    """

    def __init__(self, directory: Directory, overlay: Overlay, limits: PageLimits) -> None:
        self._directory = directory
        self._overlay = overlay
        self._limits = limits
        self.keys = sorted(map(name_key, overlay.names))
        self.gone: set[int] = set()
        self.moved: dict[bytes, Entry[ExtentValue] | None] = {}

    def touches(self, _head: PageHead) -> bool:
        return False

    def keeps(self, _entry: Entry[SegmentValue]) -> bool:
        return True

    def renewed(
        self, key: bytes, before: SegmentValue | None
    ) -> Reading[Entry[SegmentValue] | None]:
        fate = self._overlay.names[key.decode()]
        if not isinstance(fate, SegmentChange):
            self._end(before)
            return None
        number = fate.state.number
        held: Extents = ()
        earlier: Extents = ()
        if before is not None and before[0].number == number:
            earlier = yield from earlier_extents(self._directory, number)
            held = (*earlier, *before[1])
        else:
            self._end(before)
        extents = extents_after(held, fate)
        inline = inline_from(extents, self._limits)
        self._move(number, earlier, extents[:inline])
        return segment_entry(fate.state, extents[inline:])

    def _end(self, before: SegmentValue | None) -> None:
        if before is not None:
            self.gone.add(before[0].number)

    def _move(self, number: int, before: Extents, after: Extents) -> None:
        stayed = set(before) & set(after)
        left = (extent for extent in before if extent not in stayed)
        self.moved |= {extent_key(number, extent.start): None for extent in left}
        came = (extent_entry(number, extent) for extent in after if extent not in stayed)
        self.moved |= {entry.key: entry for entry in came}


class _TombstoneChanges:
    """Tombstones by name. A segment can replace a tombstone of the snapshot only if it is
    younger than the snapshot."""

    def __init__(self, directory: Directory, overlay: Overlay, forget_ms: int) -> None:
        self._names = {
            name_key(name): fate if isinstance(fate, Tombstone) else None
            for name, fate in (dict.fromkeys(overlay.forgotten) | overlay.names).items()
            if not isinstance(fate, SegmentChange) or fate.state.number > directory.applied_sequence
        }
        self._forget_ms = forget_ms
        self.keys = sorted(self._names)

    def touches(self, head: PageHead) -> bool:
        return head.oldest_ms <= self._forget_ms

    def keeps(self, entry: Entry[Tombstone]) -> bool:
        return entry.value.deleted_ms > self._forget_ms

    def renewed(self, key: bytes, _before: Tombstone | None) -> Reading[Entry[Tombstone] | None]:
        yield from ()
        found = self._names[key]
        if found is None or found.deleted_ms <= self._forget_ms:
            return None
        return tombstone_entry(found)


class _NumberedChanges(Generic[T]):
    """Extents or writers, which end with the number of their segment."""

    def __init__(self, entries: Mapping[bytes, Entry[T] | None], gone: Sequence[int]) -> None:
        self._entries = entries
        self._gone = gone
        self.keys = sorted(entries)

    def touches(self, head: PageHead) -> bool:
        at = bisect_left(self._gone, number_of(head.first))
        return at < len(self._gone) and self._gone[at] <= number_of(head.last)

    def keeps(self, entry: Entry[T]) -> bool:
        number = number_of(entry.key)
        at = bisect_left(self._gone, number)
        return at == len(self._gone) or self._gone[at] != number

    def renewed(self, key: bytes, _before: T | None) -> Reading[Entry[T] | None]:
        yield from ()
        return self._entries[key]


def _moved_writers(overlay: Overlay, gone: Iterable[int]) -> dict[bytes, Entry[WriterValue] | None]:
    dead = set(gone)
    return {
        number_key(number, writer_id): None
        if mark is None
        else writer_entry(number, writer_id, mark)
        for number, writers in overlay.writers.items()
        if number not in dead
        for writer_id, mark in writers.items()
    }
