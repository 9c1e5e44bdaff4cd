"""Snapshot pages: the whole catalog in immutable pieces; `page_index.py` names them.

A page holds entries of one kind, ascending: segments by name (each with its last extents), earlier
extents by (segment number, start), tombstones by name, or writer numbers by (segment number, writer
id). Only the last extents of a segment change as it grows, and writer numbers change fastest, so
each kind has pages of its own. A page is at most 1 MiB; the next index refers to unchanged pages
again. The format is MessagePack in an envelope (`envelope.py`), magic ANPG.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2 import wire as w
from anabranch.common.tier2.envelope import open_envelope, seal_envelope
from anabranch.common.tier2.state import (
    Catalog,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)
from anabranch.common.wire.malformed import MALFORMED

PAGE_MAGIC = b"ANPG"
FORMAT = 5
"""The format of pages; formats 2 to 4 added the same as these formats of the manifest, and format 5
the same as the manifest's format 6."""
PAGE_SIZE_BYTES_MAX = 1024 * 1024

Extents = tuple[TieredExtent, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one kind; the other kinds are empty.

    `extents`: runs of adjacent extents by segment number, each after those of earlier pages and
    before those that the segment's own entry holds.
    """

    segments: tuple[tuple[SegmentState, Extents], ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    writers: Mapping[WriterKey, WriterMark] = field(default_factory=dict)
    extents: tuple[tuple[int, Extents], ...] = ()


class _PageSegmentWire(w.Entry, frozen=True):
    state: w.SegmentWire
    extents: tuple[w.ExtentWire, ...]
    attributes: dict[bytes, int] = {}  # noqa: RUF012  empty in format 1


class _RunWire(w.Entry, frozen=True):
    segment_number: int
    extents: tuple[w.ExtentWire, ...]


class _PageWire(msgspec.Struct, frozen=True, omit_defaults=True):
    segments: tuple[_PageSegmentWire, ...]
    tombstones: tuple[w.TombstoneWire, ...]
    writers: tuple[w.WriterWire, ...]
    extents: tuple[_RunWire, ...] = ()


_page_decoder = msgspec.msgpack.Decoder(_PageWire)


def encode_page(page: Page) -> bytes:
    """Encode the page, sorted. The caller keeps it within `PAGE_SIZE_BYTES_MAX`."""
    body = _PageWire(
        segments=tuple(
            _PageSegmentWire(
                w.segment_to_wire(state),
                w.extents_to_wire(extents),
                w.attributes_to_wire(state.attributes),
            )
            for state, extents in sorted(page.segments, key=lambda entry: entry[0].name)
        ),
        tombstones=tuple(
            w.tombstone_to_wire(tombstone)
            for tombstone in sorted(page.tombstones, key=lambda entry: entry.name)
        ),
        writers=tuple(w.writer_to_wire(key, page.writers[key]) for key in sorted(page.writers)),
        extents=tuple(_RunWire(number, w.extents_to_wire(run)) for number, run in page.extents),
    )
    data = seal_envelope(PAGE_MAGIC, FORMAT, msgspec.msgpack.encode(body))
    assert len(data) <= PAGE_SIZE_BYTES_MAX
    return data


def decode_page(data: bytes, name: str) -> Page:
    """Decode and verify a page of the object `name`. Raises CorruptManifest, FormatTooNew."""
    body = open_envelope(data, PAGE_MAGIC, FORMAT, name=name, damaged=CorruptManifest)
    try:
        found = _page_decoder.decode(body)
    except MALFORMED as error:
        raise CorruptManifest("the page is malformed", name=name) from error
    return Page(
        segments=tuple(
            (
                w.segment_from_wire(entry.state, entry.attributes),
                w.extents_from_wire(entry.extents),
            )
            for entry in found.segments
        ),
        tombstones=tuple(map(w.tombstone_from_wire, found.tombstones)),
        writers=w.writers_from_wire(found.writers),
        extents=tuple(
            (run.segment_number, w.extents_from_wire(run.extents)) for run in found.extents
        ),
    )


def catalog_of_pages(applied_sequence: int, pages: Iterable[Page]) -> Catalog:
    """Build the catalog from the pages of a snapshot, in their order.

    Raises CorruptManifest for a repeated key, or for extents of an unknown segment.
    """
    segments: dict[str, SegmentState] = {}
    last: dict[int, Extents] = {}
    runs: dict[int, list[TieredExtent]] = {}
    tombstones: dict[str, Tombstone] = {}
    writers: dict[WriterKey, WriterMark] = {}
    count = 0
    for page in pages:
        count += len(page.segments) + len(page.tombstones) + len(page.writers)
        for state, held in page.segments:
            segments[state.name] = state
            last[state.number] = held
        for number, run in page.extents:
            runs.setdefault(number, []).extend(run)
        tombstones |= {tombstone.name: tombstone for tombstone in page.tombstones}
        writers |= page.writers
    if count != len(segments) + len(tombstones) + len(writers):
        raise CorruptManifest("two pages of a snapshot contain the same key")
    if not runs.keys() <= last.keys():
        raise CorruptManifest("a page holds extents of an unknown segment")
    extents = {number: (*runs.get(number, ()), *held) for number, held in last.items()}
    return Catalog(applied_sequence, segments, tombstones, writers, extents)
