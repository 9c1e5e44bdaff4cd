"""When a snapshot of the catalog is due, and which pages it has (pure).

The entries of each kind are cut into pages where their keys say so, not by count: an entry
begins a page if the checksum of its key falls into a share of all values that grows with the
entry's size. So pages have `page_target` bytes on average, and an entry that comes, goes or grows
moves no cut but those next to it: all other pages are, byte for byte, those of the snapshot
before, and are named again. A page that would pass `page_max` is cut there.

A segment of very many extents keeps in its own entry only those after the last multiple of
`EXTENTS_INLINE`; the others, which only truncation changes, have pages of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from crc32c import crc32c

from anabranch.common.tier2.catalog import Extents
from anabranch.common.tier2.page import HeldPage, Page, encode_page, page_digest
from anabranch.common.tier2.state import (
    Catalog,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)

EXTENTS_INLINE = 1024
MANIFESTS_MAX = 256
MANIFESTS_SIZE_BYTES_MAX = 8 * 1024 * 1024
PAGE_TARGET_BYTES = 128 * 1024
PAGE_BYTES_MAX = 512 * 1024
"""Half of what the format allows: encoding a page takes milliseconds, and nothing runs beside."""
RETRY_MANIFESTS_MAX = 64

_PAGE_OVERHEAD_BYTES = 128
_SEGMENT_BYTES = 96
_EXTENT_BYTES = 48
_TOMBSTONE_BYTES = 48
_WRITER_BYTES = 32
"""More than what an entry's numbers and heads can take in MessagePack; names come on top."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """A snapshot after this many manifests or bytes of manifests; sizes of pages in bytes."""

    manifests_max: int = MANIFESTS_MAX
    manifests_size_max: int = MANIFESTS_SIZE_BYTES_MAX
    page_target: int = PAGE_TARGET_BYTES
    page_max: int = PAGE_BYTES_MAX
    extents_inline: int = EXTENTS_INLINE


# --- when -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinceSnapshot:
    """Manifests after the last snapshot, their bytes, and how trying the next one went."""

    manifests: int
    size_bytes: int
    failures: int = 0
    retry_at: int = 0
    """Not before there are this many manifests."""


def snapshot_due(since: SinceSnapshot, limits: SnapshotLimits) -> bool:
    """Whether the next manifest is to name a new snapshot."""
    reached = (
        since.manifests >= limits.manifests_max or since.size_bytes >= limits.manifests_size_max
    )
    return reached and since.manifests >= since.retry_at


def after_manifest(since: SinceSnapshot, size_bytes: int, *, new_snapshot: bool) -> SinceSnapshot:
    """A manifest was committed; the one that names a new snapshot is the first after it."""
    if new_snapshot:
        return SinceSnapshot(1, size_bytes)
    return replace(since, manifests=since.manifests + 1, size_bytes=since.size_bytes + size_bytes)


def after_failure(since: SinceSnapshot) -> SinceSnapshot:
    """A snapshot could not be written: again after 1, 2, 4 … 64 more manifests."""
    wait = min(2**since.failures, RETRY_MANIFESTS_MAX)
    return replace(since, failures=since.failures + 1, retry_at=since.manifests + wait)


# --- what -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page to be written: its bytes and their `page_digest`."""

    data: bytes
    digest: bytes


def plan_snapshot(
    catalog: Catalog, previous: Iterable[HeldPage], limits: SnapshotLimits
) -> Iterator[HeldPage | NewPage]:
    """The pages of a snapshot in the order of its index: held already, or to be written.

    Made one at a time, as they are asked for; the catalog is a value and does not change.
    """
    held = {page.digest: page for page in previous}
    for page in pages_of(catalog, limits):
        data = encode_page(page)
        digest = page_digest(data)
        yield held.get(digest) or NewPage(data, digest)


def pages_of(catalog: Catalog, limits: SnapshotLimits) -> Iterator[Page]:
    """The catalog as pages, each within `page_max` bytes once encoded."""
    for segments in _split(_segments(catalog, limits.extents_inline), limits):
        yield Page(segments=segments)
    for extents in _split(_earlier_extents(catalog, limits.extents_inline), limits):
        runs = groupby(extents, key=lambda entry: entry[0])
        yield Page(extents=tuple((number, tuple(e for _, e in run)) for number, run in runs))
    for tombstones in _split(_tombstones(catalog), limits):
        yield Page(tombstones=tombstones)
    for writers in _split(_writers(catalog), limits):
        yield Page(writers=dict(writers))


_Sized = tuple[bytes, int, T]
"""(key, most bytes that the entry takes encoded, entry)."""


def _split(entries: Iterable[_Sized[T]], limits: SnapshotLimits) -> Iterator[tuple[T, ...]]:
    """Entries in order, cut into pages; see the module."""
    room = limits.page_max - _PAGE_OVERHEAD_BYTES
    taken: list[T] = []
    size = 0
    for key, entry_size, entry in entries:
        begins = crc32c(key) * limits.page_target < entry_size << 32
        if taken and (begins or size + entry_size > room):
            yield tuple(taken)
            taken, size = [], 0
        taken.append(entry)
        size += entry_size
    if taken:
        yield tuple(taken)


def _segments(catalog: Catalog, inline: int) -> Iterator[_Sized[tuple[SegmentState, Extents]]]:
    for name in sorted(catalog.segments):
        state = catalog.segments[name]
        extents = catalog.extents[state.number]
        last = extents[_inline_from(extents, inline) :]
        key = name.encode()
        yield key, _SEGMENT_BYTES + len(key) + sum(map(_extent_size, last)), (state, last)


def _earlier_extents(catalog: Catalog, inline: int) -> Iterator[_Sized[tuple[int, TieredExtent]]]:
    for number in sorted(n for n, held in catalog.extents.items() if len(held) >= inline):
        extents = catalog.extents[number]
        for extent in extents[: _inline_from(extents, inline)]:
            key = b"%d %d" % (number, extent.start)
            yield key, _extent_size(extent), (number, extent)


def _inline_from(extents: Extents, inline: int) -> int:
    return len(extents) - len(extents) % inline


def _extent_size(extent: TieredExtent) -> int:
    return _EXTENT_BYTES + len(extent.ref.name)


def _tombstones(catalog: Catalog) -> Iterator[_Sized[Tombstone]]:
    for name in sorted(catalog.tombstones):
        key = name.encode()
        yield key, _TOMBSTONE_BYTES + len(key), catalog.tombstones[name]


def _writers(catalog: Catalog) -> Iterator[_Sized[tuple[WriterKey, WriterMark]]]:
    for key in sorted(catalog.writers):
        number, writer_id = key
        size = _WRITER_BYTES + len(writer_id)
        yield b"%d " % number + writer_id, size, (key, catalog.writers[key])
