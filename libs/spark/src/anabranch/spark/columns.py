"""Blocks of a segment → Arrow record batches, without a Python object per event.

    event          the payload
    routing_key    null where the event has none
    event_time     as its writer said, else when its block was written
    segment        full name
    offset, index  the event's position: byte offset of its block, place within the block

Small blocks are joined into batches of about 1 MiB; the payloads of a larger block are not copied.
Every block's checksum is verified. Compressed blocks are decompressed one batch at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.common.errors import CorruptBlock, EventTooLarge, InvalidRequest
from anabranch.common.wire.block import (
    FLAG_KEYS,
    FLAG_TIMESTAMPS,
    NO_KEY,
    BlockHeader,
    block_body,
    verify_block,
)

BATCH_BYTES = 1024 * 1024
BATCH_ROWS_MAX = 64 * 1024
_EVENT_TIME_MS_MAX = (2**63 - 1) // 1000

SCHEMA = pa.schema(
    [
        pa.field("event", pa.binary(), nullable=False),
        pa.field("routing_key", pa.string()),
        pa.field("event_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
    ]
)

Ints: TypeAlias = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class _PlacedBlock:
    """A verified block at `at` of the data, and its columns, payloads and keys as they were."""

    at: int
    header: BlockHeader
    body: bytes | memoryview

    @property
    def payloads(self) -> memoryview:
        start = self.header.columns_size
        return memoryview(self.body)[start : start + self.header.payloads_size]

    @property
    def keys(self) -> memoryview:
        return memoryview(self.body)[self.header.columns_size + self.header.payloads_size :]

    @property
    def end(self) -> int:
        return self.at + self.header.size


def record_batches(
    segment: str, data: bytes, offset: int, *, skip: int = 0, keep: int = 0
) -> Iterator[pa.RecordBatch]:
    """The events of whole blocks, `data`, that lie at `offset` of the segment.

    The first `skip` events are left out, and of the last block all but the first `keep` (0: none
    is). Parts of large events are passed over. Raises CorruptBlock, FormatTooNew, CodecMissing, and
    EventTooLarge for the large event itself.
    """
    for blocks in _groups(segment, data, offset):
        columns = _columns(segment, offset, blocks)
        first, end = 0, len(columns["event"])
        if blocks[0].at == 0:
            first = skip
        if keep and blocks[-1].end == len(data):
            end -= blocks[-1].header.event_count - keep
        for start in range(first, end, BATCH_ROWS_MAX):
            rows = min(BATCH_ROWS_MAX, end - start)
            part = {name: column.slice(start, rows) for name, column in columns.items()}
            # Made per batch: for all rows of a large block it would be beyond what Arrow can count.
            part["segment"] = _repeated(segment.encode(), rows)
            yield pa.RecordBatch.from_arrays([part[name] for name in SCHEMA.names], schema=SCHEMA)


def _groups(segment: str, data: bytes, offset: int) -> Iterator[list[_PlacedBlock]]:
    """Runs of blocks that make one batch."""
    view = memoryview(data)
    at = rows = size = 0
    group: list[_PlacedBlock] = []
    while at < len(view):
        try:
            header = verify_block(view, at)
            body = b"" if header.is_part else block_body(view, header, at)
        except CorruptBlock as error:
            raise _corrupt(error.message, segment, offset + at) from error
        if header.is_large:
            raise _too_large(segment, offset + at)
        if header.is_part:
            at += header.size
            continue
        group.append(_PlacedBlock(at, header, body))
        at += header.size
        rows += header.event_count
        size += header.body_size
        if size >= BATCH_BYTES or rows >= BATCH_ROWS_MAX:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _columns(segment: str, offset: int, blocks: Sequence[_PlacedBlock]) -> dict[str, pa.Array]:
    """By name, all columns but `segment`."""
    counts = np.array([block.header.event_count for block in blocks], np.int64)
    rows = int(counts.sum())
    offsets = np.array([offset + block.at for block in blocks], np.int64)
    indexes = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    try:
        return {
            "event": _events(blocks, rows),
            "routing_key": _keys(blocks, rows),
            "event_time": _event_times(blocks),
            "offset": _fixed("offset", np.repeat(offsets, counts)),
            "index": _fixed("index", indexes.astype(np.int32)),
        }
    except CorruptBlock as error:
        raise _corrupt(error.message, segment, offset + blocks[0].at) from error


def _events(blocks: Sequence[_PlacedBlock], rows: int) -> pa.Array:
    lengths = [_column(block, np.uint32, 0) for block in blocks]
    sizes = [block.header.payloads_size for block in blocks]
    _check_lengths(lengths, sizes, "a block's lengths do not add up")
    values = _joined([block.payloads for block in blocks])
    return pa.Array.from_buffers(pa.binary(), rows, [None, _offsets(lengths, rows), values])


def _keys(blocks: Sequence[_PlacedBlock], rows: int) -> pa.Array:
    if not any(block.header.flags & FLAG_KEYS for block in blocks):
        return pa.nulls(rows, pa.string())
    stored = [
        _column(block, np.uint16, 4)
        if block.header.flags & FLAG_KEYS
        else np.full(block.header.event_count, NO_KEY, np.uint16)
        for block in blocks
    ]
    lengths = [np.where(column == NO_KEY, 0, column) for column in stored]
    sizes = [block.header.keys_size for block in blocks]
    _check_lengths(lengths, sizes, "a block's key lengths do not add up")
    valid = np.packbits(np.concatenate(stored) != NO_KEY, bitorder="little")
    values = _joined([block.keys for block in blocks])
    buffers = [pa.py_buffer(valid), _offsets(lengths, rows), values]
    keys = pa.Array.from_buffers(pa.string(), rows, buffers)
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptBlock("a block's routing keys are not UTF-8") from error
    return keys


def _repeated(text: bytes, rows: int) -> pa.Array:
    """As `pa.repeat`, which would import pandas first: a second or two in every task."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(text * rows)])


def _fixed(name: str, values: Ints) -> pa.Array:
    """As `pa.array`, which would import pandas first."""
    return pa.Array.from_buffers(SCHEMA.field(name).type, len(values), [None, pa.py_buffer(values)])


def _event_times(blocks: Sequence[_PlacedBlock]) -> pa.Array:
    times_ms = np.concatenate([_times_ms(block) for block in blocks])
    if int(times_ms.max()) > _EVENT_TIME_MS_MAX or int(times_ms.min()) < -_EVENT_TIME_MS_MAX:
        raise InvalidRequest(
            "an event's time lies beyond what Spark can hold",
            remedy="read the stream with the Python client, which gives times as numbers",
        )
    return _fixed("event_time", times_ms * 1000)


def _times_ms(block: _PlacedBlock) -> Ints:
    header = block.header
    if not header.flags & FLAG_TIMESTAMPS:
        return np.full(header.event_count, header.base_timestamp_ms, np.int64)
    return _column(block, np.int64, 6 if header.flags & FLAG_KEYS else 4)


def _column(block: _PlacedBlock, kind: type[np.integer[Any]], bytes_before: int) -> Ints:
    """A column of a block; `bytes_before`: of the columns before it, per event."""
    count = block.header.event_count
    return np.frombuffer(block.body, kind, count, bytes_before * count)


def _check_lengths(lengths: Sequence[Ints], sizes: Sequence[int], fault: str) -> None:
    for column, size in zip(lengths, sizes, strict=True):
        if int(column.sum(dtype=np.uint64)) != size:
            raise CorruptBlock(fault)


def _offsets(lengths: Sequence[Ints], rows: int) -> pa.Buffer:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.concatenate(lengths), out=offsets[1:])
    return pa.py_buffer(offsets)


def _joined(parts: Sequence[memoryview]) -> pa.Buffer:
    """The parts end to end; a single one is not copied."""
    return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


def _too_large(segment: str, offset: int) -> EventTooLarge:
    return EventTooLarge(
        "an event of the stream is over 8 MiB: Spark reads streams without such events only",
        remedy="read the stream with the Python client, or from a position behind the event",
        segment=segment, offset=offset,
    )  # fmt: skip


def _corrupt(what: str, segment: str, offset: int) -> CorruptBlock:
    return CorruptBlock(what, segment=segment, offset=offset)
