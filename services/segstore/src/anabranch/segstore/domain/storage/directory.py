"""The page directory: finds the page of a snapshot that can hold a key (pure).

    look_up(directory, names)   the pages to read, one after another, and the result

Finding a page requires no page to be read. A plan like `look_up` is a generator: it yields a page
that it needs, is sent the page's contents, and returns its result. The caller reads the pages.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TypeVar

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import Extents
from anabranch.common.tier2.page import Page
from anabranch.common.tier2.page_index import HeldPage, PageKind, name_key, number_key
from anabranch.common.tier2.state import (
    Catalog,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)

T = TypeVar("T")


class OpenPage:
    """A page that was read, with indexes for look-ups in it."""

    __slots__ = ("extents", "page", "segments", "tombstones", "writers")

    def __init__(self, page: Page) -> None:
        self.page = page
        self.segments: Mapping[str, tuple[SegmentState, Extents]] = {
            state.name: (state, last) for state, last in page.segments
        }
        self.tombstones: Mapping[str, Tombstone] = {held.name: held for held in page.tombstones}
        self.extents: Mapping[int, Extents] = dict(page.extents)
        self.writers: dict[int, dict[bytes, WriterMark]] = {}
        for (number, writer_id), mark in page.writers.items():
            self.writers.setdefault(number, {})[writer_id] = mark


Reading = Generator[HeldPage, OpenPage, T]
"""A plan: yields pages to read, is sent their contents, returns its result."""


class Directory:
    """The pages of the snapshot of the state at `applied_sequence`, in the order of its index."""

    def __init__(self, pages: Iterable[HeldPage] = (), applied_sequence: int = 0) -> None:
        self.applied_sequence = applied_sequence
        self.pages = tuple(pages)
        self._kinds = {
            kind: tuple(held for held in self.pages if held.head.kind is kind) for kind in PageKind
        }
        self._firsts = {
            kind: [held.head.first for held in pages] for kind, pages in self._kinds.items()
        }

    def of_kind(self, kind: PageKind) -> Sequence[HeldPage]:
        """The pages of one kind, ascending."""
        return self._kinds[kind]

    def page_of(self, kind: PageKind, key: bytes) -> HeldPage | None:
        """The only page that can hold the key."""
        at = bisect_right(self._firsts[kind], key) - 1
        if at < 0 or self._kinds[kind][at].head.last < key:
            return None
        return self._kinds[kind][at]

    def pages_of_number(self, kind: PageKind, number: int) -> Sequence[HeldPage]:
        """The pages that can hold extents or writers of a segment, ascending."""
        lowest, above = number_key(number), number_key(number + 1)
        stop = bisect_left(self._firsts[kind], above)
        start = max(bisect_right(self._firsts[kind], lowest, 0, stop) - 1, 0)
        return [held for held in self._kinds[kind][start:stop] if held.head.last >= lowest]


def look_up(directory: Directory, names: Iterable[str]) -> Reading[Catalog]:
    """The snapshot's records of these names alone, with tombstones of any age.

    It requests pages in order, each once unless its names are separated by others.
    """
    segments: dict[str, SegmentState] = {}
    tombstones: dict[str, Tombstone] = {}
    last: dict[int, Extents] = {}
    for name in sorted(names):
        key = name_key(name)
        page = yield from _open(directory.page_of(PageKind.SEGMENTS, key))
        if page is not None and name in page.segments:
            segments[name], extents = page.segments[name]
            last[segments[name].number] = extents
            continue
        page = yield from _open(directory.page_of(PageKind.TOMBSTONES, key))
        if page is not None and name in page.tombstones:
            tombstones[name] = page.tombstones[name]
    if len(last) != len(segments):
        raise CorruptManifest("two segments have the same number")
    held: dict[int, Extents] = {}
    writers: dict[WriterKey, WriterMark] = {}
    for number in sorted(last):
        earlier = yield from earlier_extents(directory, number)
        held[number] = (*earlier, *last[number])
    for number in sorted(last):
        for found in directory.pages_of_number(PageKind.WRITERS, number):
            page = yield found
            of_number = page.writers.get(number, {})
            writers |= {(number, writer_id): event for writer_id, event in of_number.items()}
    return Catalog(directory.applied_sequence, segments, tombstones, writers, held)


def _open(held: HeldPage | None) -> Reading[OpenPage | None]:
    if held is None:
        return None
    return (yield held)


def earlier_extents(directory: Directory, number: int) -> Reading[Extents]:
    """A segment's extents before those in its own entry."""
    earlier: list[TieredExtent] = []
    for held in directory.pages_of_number(PageKind.EXTENTS, number):
        page = yield held
        earlier += page.extents.get(number, ())
    return tuple(earlier)
