"""A stream in tier 2 as the stores and controllers leave it there, made by hand."""

import asyncio
from collections.abc import Mapping, Sequence

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import SegmentId, segment_id, segment_name, stream_ref
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.manifest import (
    Changes,
    LogBinding,
    Manifest,
    SegmentChange,
    encode_manifest,
)
from anabranch.common.tier2.names import chunk_name, manifest_name
from anabranch.common.tier2.state import ChunkRef, SegmentState, TieredExtent
from anabranch.common.tier2.streams import (
    ExportedEpoch,
    ExportedStream,
    encode_stream,
    stream_object_name,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Stamp

REF = stream_ref("demo/flights")
BASE_MS = 1_700_000_000_000


def name_of(number: int) -> str:
    return segment_name(REF, segment_id(0, number))


def block(events: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> bytes:
    return encode_block(
        events, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=BASE_MS, keys=keys
    )


def tier_two(
    segments: Mapping[int, Sequence[Sequence[bytes]]],
    *,
    segment_count: int | None = None,
    starts: Mapping[int, int] | None = None,
    incarnation: int = 1,
    told_incarnation: int = 1,
    flushed: bool = True,
    times: Mapping[int, Sequence[int]] | None = None,
) -> MemoryChunkStorage:
    """By segment number: its extents, each as the blocks in it. One container holds them all.

    `starts`: where a truncated segment starts; its extents begin at 0 all the same. `times`: when
    the blocks of a segment were appended, in Unix ms; otherwise all at `BASE_MS`.
    """
    storage = MemoryChunkStorage()
    storage.objects |= _told(segment_count or len(segments), told_incarnation)
    if not flushed:
        return storage
    changes = tuple(
        _segment(
            storage, number, extents, start=(starts or {}).get(number, 0),
            incarnation=incarnation,
            times=(times or {}).get(number, [BASE_MS] * sum(map(len, extents))),
        )
        for number, extents in segments.items()
    )  # fmt: skip
    _manifest(storage, changes)
    return storage


def shared_chunk(blocks: Sequence[bytes]) -> MemoryChunkStorage:
    """A block for each of so many segments, all in one chunk."""
    storage = MemoryChunkStorage()
    storage.objects |= _told(len(blocks), 1)
    chunk, at = chunk_name(0, 1, 1), 0
    pieces: list[chunks.Piece] = []
    changes: list[SegmentChange] = []
    for number, data in enumerate(blocks):
        name, crc = name_of(number), chunks.crc_of([data])
        entries = (chunks.SparseEntry(len(data), 1, BASE_MS),)
        pieces.append(chunks.Piece(name, number + 1, 0, at, len(data), crc, entries))
        state = SegmentState(name, number + 1, Stamp(1, 1), length=len(data))
        extent = TieredExtent(0, ChunkRef(chunk, at, len(data), crc))
        changes.append(SegmentChange(state, added=(extent,)))
        at += len(data)
    footer = chunks.ChunkFooter(chunk, at, tuple(pieces), chunks.block_crcs_of(blocks))
    asyncio.run(storage.put_new(chunk, [*blocks, chunks.encode_footer(footer)]))
    _manifest(storage, tuple(changes))
    return storage


def _manifest(storage: MemoryChunkStorage, changes: tuple[SegmentChange, ...]) -> None:
    manifest = Manifest(
        container=0, number=1, container_epoch=1, nonce=bytes(16), log=LogBinding("log"),
        applied_sequence=9, changes=Changes(segments=changes),
    )  # fmt: skip
    storage.objects[manifest_name(0, 1)] = encode_manifest(manifest)


def _told(segment_count: int, incarnation: int) -> dict[str, bytes]:
    ids: list[SegmentId] = [segment_id(0, number) for number in range(segment_count)]
    ranges = tuple(map(SegmentRange, ids, even_ranges(segment_count)))
    stream = ExportedStream(
        ref=REF, incarnation=incarnation, revision=3, state=StreamState.ACTIVE, created_ms=BASE_MS,
        container_count=1, epochs=(ExportedEpoch(0, ranges),),
    )  # fmt: skip
    return {stream_object_name(REF, 3): encode_stream(stream)}


def _segment(
    storage: MemoryChunkStorage,
    number: int,
    extents: Sequence[Sequence[bytes]],
    *,
    start: int,
    incarnation: int,
    times: Sequence[int],
) -> SegmentChange:
    name, length, added = name_of(number), 0, []
    remaining = iter(times)
    for place, blocks in enumerate(extents):
        data = b"".join(blocks)
        ends = [sum(map(len, blocks[: count + 1])) for count in range(len(blocks))]
        entries = tuple(chunks.SparseEntry(end, 1, next(remaining)) for end in ends)
        chunk = chunk_name(0, number + 1, place + 1)
        crc = chunks.crc_of([data])
        piece = chunks.Piece(name, number + 1, length, 0, len(data), crc, entries)
        footer = chunks.ChunkFooter(chunk, len(data), (piece,), chunks.block_crcs_of([data]))
        asyncio.run(storage.put_new(chunk, [data, chunks.encode_footer(footer)]))
        added.append(TieredExtent(length, ChunkRef(chunk, 0, len(data), crc)))
        length += len(data)
    state = SegmentState(name, number + 1, Stamp(incarnation, 1), start=start, length=length)
    return SegmentChange(state, added=tuple(added))
