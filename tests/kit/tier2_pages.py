"""Snapshots without storage: a whole catalog cut into pages, and plans performed by hand."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from anabranch.common.tier2.catalog import Extents
from anabranch.common.tier2.envelope import HEAD, seal_envelope
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest, SegmentChange
from anabranch.common.tier2.page import Page
from anabranch.common.tier2.page_index import MAGIC, HeldPage, PageIndex, encode_index
from anabranch.common.tier2.state import Catalog, ChunkRef
from anabranch.segstore.domain.storage.directory import Directory, OpenPage, Reading
from anabranch.segstore.domain.storage.merge import Read, plan_snapshot
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.domain.storage.paging import (
    EXTENTS,
    SEGMENTS,
    TOMBSTONES,
    WRITERS,
    Entry,
    Filling,
    NewPage,
    PageLimits,
    PageShape,
    extent_entry,
    inline_from,
    segment_entry,
    tombstone_entry,
    writer_entry,
)

T = TypeVar("T")
NEVER_MS = -1
"""Forget tombstones made then or before: none."""


def pages_of(catalog: Catalog, limits: PageLimits) -> Iterator[NewPage]:
    """A whole catalog as pages, cut anew from its first entry to its last."""
    states = sorted(catalog.segments.values(), key=lambda state: state.name)
    last: dict[int, Extents] = {}
    earlier = []
    for number, extents in sorted(catalog.extents.items()):
        inline = inline_from(extents, limits)
        last[number] = extents[inline:]
        earlier += [extent_entry(number, extent) for extent in extents[:inline]]
    yield from _cut(SEGMENTS, (segment_entry(s, last[s.number]) for s in states), limits)
    yield from _cut(EXTENTS, earlier, limits)
    tombstones = sorted(catalog.tombstones.values(), key=lambda tombstone: tombstone.name)
    yield from _cut(TOMBSTONES, map(tombstone_entry, tombstones), limits)
    writers = (writer_entry(*key, last) for key, last in sorted(catalog.writers.items()))
    yield from _cut(WRITERS, writers, limits)


def _cut(shape: PageShape[T], entries: Iterable[Entry[T]], limits: PageLimits) -> Iterator[NewPage]:
    filling = Filling(shape, limits)
    for entry in entries:
        if not filling.takes(entry):
            yield filling.finish()
        filling.add(entry)
    if not filling.empty:
        yield filling.finish()


def overlay_between(before: Catalog, after: Catalog) -> Overlay:
    """What one manifest says that leads from one catalog to the other."""
    changes = Changes(
        segments=tuple(
            SegmentChange(
                state,
                added=tuple(e for e in after.extents[state.number] if e not in held),
                dropped=tuple(e for e in held if e not in after.extents[state.number]),
            )
            for name, state in after.segments.items()
            for held in [before.extents.get(state.number, ())]
            if before.segments.get(name) != state or held != after.extents[state.number]
        ),
        tombstones=tuple(
            held for name, held in after.tombstones.items() if before.tombstones.get(name) != held
        ),
        tombstones_dropped=tuple(before.tombstones.keys() - after.tombstones.keys()),
        writers={k: last for k, last in after.writers.items() if before.writers.get(k) != last},
        writers_dropped=tuple(before.writers.keys() - after.writers.keys()),
    )
    overlay = Overlay(before.applied_sequence)
    overlay.apply(Manifest(3, 2, 1, bytes(16), LogBinding("log"), 10, None, changes))
    return overlay


@dataclass
class PageShelf:
    """Pages as if they had been written; notes which were read and which were new."""

    pages: dict[str, Page] = field(default_factory=dict)
    read: list[HeldPage] = field(default_factory=list)
    written: list[HeldPage] = field(default_factory=list)

    def put(self, made: NewPage) -> HeldPage:
        ref = ChunkRef(f"c3/0000000001-{len(self.pages):010}", 0, len(made.data), 0)
        self.pages[ref.name] = made.page
        self.written.append(HeldPage(ref, made.head))
        return self.written[-1]

    def open(self, held: HeldPage) -> OpenPage:
        self.read.append(held)
        return OpenPage(self.pages[held.ref.name])

    def snapshot(self, catalog: Catalog, limits: PageLimits) -> Directory:
        """The first snapshot of a catalog."""
        pages = [self.put(made) for made in pages_of(catalog, limits)]
        return Directory(pages, catalog.applied_sequence)

    def next_snapshot(
        self, last: Directory, overlay: Overlay, limits: PageLimits, forget_ms: int = NEVER_MS
    ) -> Directory:
        """The snapshot after an overlay; `read` and `written` tell of it alone."""
        self.read, self.written = [], []
        plan = plan_snapshot(last, overlay, limits, forget_ms)
        pages: list[HeldPage] = []
        opened: OpenPage | None = None
        while True:
            try:
                step = plan.send(opened)
            except StopIteration:
                return Directory(pages, overlay.applied_sequence)
            opened = self.open(step.page) if isinstance(step, Read) else None
            if isinstance(step, NewPage):
                pages.append(self.put(step))
            elif isinstance(step, HeldPage):
                pages.append(step)

    def perform(self, reading: Reading[T]) -> T:
        """Answer what a plan asks for."""
        try:
            held = next(reading)
            while True:
                held = reading.send(self.open(held))
        except StopIteration as end:
            found: T = end.value
            return found


def encode_index_format_1(index: PageIndex) -> bytes:
    """The index as releases before the page directory wrote it."""
    fields = msgspec.msgpack.decode(encode_index(index)[HEAD.size :])
    del fields["heads"]
    return seal_envelope(MAGIC, 1, msgspec.msgpack.encode(fields))
