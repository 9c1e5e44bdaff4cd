"""Divides the entries of a catalog into pages (pure).

The keys of each kind's entries decide where pages begin, not a count: an entry begins a page if the
checksum of its key falls into a share of all values that grows with the entry's size. Pages thus
have `page_target` bytes on average, and an entry that is added, removed or resized moves only the
cuts next to it: all other pages equal those of the previous snapshot. A page that would exceed
`page_max` is cut there.

A segment with very many extents keeps in its own entry only those after the last multiple of
`extents_inline`. The others, which only truncation changes, have pages of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from crc32c import crc32c

from anabranch.common.tier2.catalog import Extents
from anabranch.common.tier2.page import Page, encode_page
from anabranch.common.tier2.page_index import (
    PageHead,
    PageKind,
    extent_key,
    keys_of,
    name_key,
    number_key,
    number_of,
)
from anabranch.common.tier2.state import (
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)

EXTENTS_INLINE = 1024
PAGE_TARGET_BYTES = 128 * 1024
PAGE_BYTES_MAX = 512 * 1024
"""Half of the format's limit: encoding a page takes milliseconds, which block the event loop."""

_PAGE_OVERHEAD_BYTES = 128
_SEGMENT_BYTES = 96
_ATTRIBUTE_BYTES = 32
_EXTENT_BYTES = 48
_TOMBSTONE_BYTES = 48
_MERGED_BYTES = 40
_WRITER_BYTES = 32
"""An upper bound of an entry's numbers and heads in MessagePack; names come on top."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Sizes of pages in bytes; the number of a segment's last extents that are in its own entry."""

    page_target: int = PAGE_TARGET_BYTES
    page_max: int = PAGE_BYTES_MAX
    extents_inline: int = EXTENTS_INLINE


class Entry(NamedTuple, Generic[T]):
    """One entry of a page: its key, an upper bound of its encoded size, and its value."""

    key: bytes
    size: int
    value: T


@dataclass(frozen=True, slots=True)
class PageShape(Generic[T]):
    """The functions that read a kind of entries from pages, build pages from them, and cut them."""

    kind: PageKind
    entries: Callable[[Page], Iterator[Entry[T]]]
    page: Callable[[Sequence[T]], Page]
    cut_key: Callable[[bytes], bytes]
    """The part of a key that decides where pages are cut."""

    def anchors(self, entry: Entry[T], limits: PageLimits) -> bool:
        """Whether the entry begins a page, regardless of the entries before it."""
        return crc32c(self.cut_key(entry.key)) * limits.page_target < entry.size << 32


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page to be written: its contents, its bytes, and its head."""

    page: Page
    data: bytes
    head: PageHead


class Filling(Generic[T]):
    """The page that is being filled, entry by entry in the order of keys."""

    def __init__(self, shape: PageShape[T], limits: PageLimits) -> None:
        self._shape = shape
        self._limits = limits
        self._taken: list[Entry[T]] = []
        self._size = _PAGE_OVERHEAD_BYTES

    @property
    def empty(self) -> bool:
        return not self._taken

    def takes(self, entry: Entry[T]) -> bool:
        """Whether the entry belongs to this page and not to the next one."""
        if self.empty:
            return True
        fits = self._size + entry.size <= self._limits.page_max
        return fits and not self._shape.anchors(entry, self._limits)

    def add(self, entry: Entry[T]) -> None:
        self._taken.append(entry)
        self._size += entry.size

    def finish(self) -> NewPage:
        """Return the page, which is not empty, and begin the next one."""
        page = self._shape.page([entry.value for entry in self._taken])
        head = head_of(page, self._limits)
        self._taken, self._size = [], _PAGE_OVERHEAD_BYTES
        return NewPage(page, encode_page(page), head)


def head_of(page: Page, limits: PageLimits) -> PageHead:
    """A page's head in an index. Raises CorruptManifest for a page of no kind or several."""
    kind, keys = keys_of(page)
    return PageHead(
        kind=kind,
        first=keys[0],
        last=keys[-1],
        anchored=_begins_anchored(kind, page, limits),
        oldest_ms=min((tombstone.deleted_ms for tombstone in page.tombstones), default=0),
    )


def _begins_anchored(kind: PageKind, page: Page, limits: PageLimits) -> bool:
    match kind:
        case PageKind.SEGMENTS:
            return SEGMENTS.anchors(next(SEGMENTS.entries(page)), limits)
        case PageKind.EXTENTS:
            return EXTENTS.anchors(next(EXTENTS.entries(page)), limits)
        case PageKind.TOMBSTONES:
            return TOMBSTONES.anchors(next(TOMBSTONES.entries(page)), limits)
        case PageKind.WRITERS:
            return WRITERS.anchors(next(WRITERS.entries(page)), limits)


def inline_from(extents: Extents, limits: PageLimits) -> int:
    """The index of the first extent that the segment's own entry holds."""
    return len(extents) - len(extents) % limits.extents_inline


# --- the kinds --------------------------------------------------------------------------------

SegmentValue = tuple[SegmentState, Extents]
ExtentValue = tuple[int, TieredExtent]
WriterValue = tuple[WriterKey, WriterMark]


def segment_entry(state: SegmentState, last: Extents) -> Entry[SegmentValue]:
    """A segment with its last extents."""
    key = name_key(state.name)
    size = _SEGMENT_BYTES + len(key) + _ATTRIBUTE_BYTES * len(state.attributes)
    return Entry(key, size + sum(map(_extent_size, last)), (state, last))


def extent_entry(number: int, extent: TieredExtent) -> Entry[ExtentValue]:
    """One of a segment's earlier extents."""
    return Entry(extent_key(number, extent.start), _extent_size(extent), (number, extent))


def tombstone_entry(tombstone: Tombstone) -> Entry[Tombstone]:
    key = name_key(tombstone.name)
    size = _TOMBSTONE_BYTES + len(key)
    if tombstone.merged is not None:
        size += _MERGED_BYTES + len(name_key(tombstone.merged.target))
    return Entry(key, size, tombstone)


def writer_entry(number: int, writer_id: bytes, mark: WriterMark) -> Entry[WriterValue]:
    """A writer's mark in a segment."""
    key = number_key(number, writer_id)
    return Entry(key, _WRITER_BYTES + len(writer_id), ((number, writer_id), mark))


def _extent_size(extent: TieredExtent) -> int:
    return _EXTENT_BYTES + len(extent.ref.name)


def _extents_page(values: Sequence[ExtentValue]) -> Page:
    runs = groupby(values, key=lambda value: value[0])
    return Page(extents=tuple((number, tuple(extent for _, extent in run)) for number, run in runs))


def _cut_by_start(key: bytes) -> bytes:
    return b"%d %d" % (number_of(key), number_of(key[8:]))


def _cut_by_writer(key: bytes) -> bytes:
    return b"%d " % number_of(key) + key[8:]


SEGMENTS: PageShape[SegmentValue] = PageShape(
    PageKind.SEGMENTS,
    entries=lambda page: (segment_entry(state, last) for state, last in page.segments),
    page=lambda values: Page(segments=tuple(values)),
    cut_key=lambda key: key,
)
EXTENTS: PageShape[ExtentValue] = PageShape(
    PageKind.EXTENTS,
    entries=lambda page: (extent_entry(n, extent) for n, run in page.extents for extent in run),
    page=_extents_page,
    cut_key=_cut_by_start,
)
TOMBSTONES: PageShape[Tombstone] = PageShape(
    PageKind.TOMBSTONES,
    entries=lambda page: map(tombstone_entry, page.tombstones),
    page=lambda values: Page(tombstones=tuple(values)),
    cut_key=lambda key: key,
)
WRITERS: PageShape[WriterValue] = PageShape(
    PageKind.WRITERS,
    entries=lambda page: (writer_entry(*key, mark) for key, mark in page.writers.items()),
    page=lambda values: Page(writers=dict(values)),
    cut_key=_cut_by_writer,
)
