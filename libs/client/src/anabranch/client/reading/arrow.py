"""Blocks as Arrow columns, without a Python object per event; needs pyarrow and numpy.

    event         binary, the payload
    key           string, null where the event has none
    timestamp_ms  timestamp("ms", UTC): as its writer said, else when its block was written
    segment       dictionary of strings: the full name
    offset, index int64, int32: the event's position, see `Position`

The payloads of a single block that is stored plain are not copied; those of several are joined.
A reader with `ReaderSettings.time_windows` puts the window of event time of each batch into the
metadata of the batch's schema, once per batch: `TIME_LOWER_MS` and `TIME_UPPER_MS`, as decimal
digits; a missing bound is unknown. `time_window_of` reads them.
Imported when it is first needed (`events`), because pyarrow is no dependency of the client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.client.reading.times.window import TimeWindow
from anabranch.common.errors import CorruptBlock
from anabranch.common.wire.block import FLAG_KEYS, FLAG_TIMESTAMPS, NO_KEY, BlockHeader

SCHEMA = pa.schema(
    [
        pa.field("event", pa.binary(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("timestamp_ms", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("segment", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
    ]
)

TIME_LOWER_MS = b"anabranch.time_lower_ms"
"""Every event of the batch and after it is of this time or later, see `TimeWindow`."""
TIME_UPPER_MS = b"anabranch.time_upper_ms"
"""No writer had noted a later time when all writers were beyond the batch."""

Ints: TypeAlias = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A verified block at byte `offset` of its segment; columns, payloads and keys as they were.

    Events before `first` and from `stop` on (None: none) are left out by `batch_of`, not by
    `columns_of`.
    """

    segment: str
    offset: int
    header: BlockHeader
    body: bytes | memoryview
    first: int = 0
    stop: int | None = None

    @property
    def payloads(self) -> memoryview:
        start = self.header.columns_size
        return memoryview(self.body)[start : start + self.header.payloads_size]

    @property
    def keys(self) -> memoryview:
        return memoryview(self.body)[self.header.columns_size + self.header.payloads_size :]

    @property
    def end(self) -> int:
        return self.offset + self.header.size


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """All events of some blocks, in order; the numbers are not yet columns of Arrow."""

    event: pa.Array
    key: pa.Array
    times_ms: Ints
    offset: Ints
    index: Ints


def columns_of(blocks: Sequence[PlacedBlock]) -> ArrowColumns:
    """At least one block. Raises CorruptBlock, naming the first of the blocks."""
    counts = [block.header.event_count for block in blocks]
    rows = sum(counts)
    try:
        return ArrowColumns(
            event=events_of(blocks, rows),
            key=keys_of(blocks, rows),
            times_ms=times_of(blocks),
            offset=per_event(counts, [block.offset for block in blocks], np.int64),
            index=indexes_of(counts),
        )
    except CorruptBlock as error:
        raise CorruptBlock(
            error.message, segment=blocks[0].segment, offset=blocks[0].offset
        ) from error


def batch_of(blocks: Sequence[PlacedBlock]) -> pa.RecordBatch:
    """The events of at least one block as one batch. Raises CorruptBlock."""
    columns = columns_of(blocks)
    names = list(dict.fromkeys(block.segment for block in blocks))
    counts = [block.header.event_count for block in blocks]
    numbers = per_event(counts, [names.index(block.segment) for block in blocks], np.int32)
    segment = pa.DictionaryArray.from_arrays(fixed(pa.int32(), numbers), strings(names))
    batch = pa.RecordBatch.from_arrays(
        [
            columns.event,
            columns.key,
            fixed(SCHEMA.field("timestamp_ms").type, columns.times_ms),
            segment,
            fixed(pa.int64(), columns.offset),
            fixed(pa.int32(), columns.index),
        ],
        schema=SCHEMA,
    )
    if not any(block.first or block.stop is not None for block in blocks):
        return batch
    return _asked(batch, blocks)


def with_time_window(batch: pa.RecordBatch, window: TimeWindow) -> pa.RecordBatch:
    """The same batch with the window in the metadata of its schema."""
    bounds = {TIME_LOWER_MS: window.lower_ms, TIME_UPPER_MS: window.upper_ms}
    known = {name: b"%d" % at_ms for name, at_ms in bounds.items() if at_ms is not None}
    return batch.replace_schema_metadata(known)


def time_window_of(batch: pa.RecordBatch) -> TimeWindow:
    """The window of event time that a reader's batch carries; unknown bounds are None.

    ::

        async for batch in reader.arrow_batches():
            print(time_window_of(batch).lower_ms, batch.num_rows)
    """
    known = batch.schema.metadata or {}
    lower, upper = known.get(TIME_LOWER_MS), known.get(TIME_UPPER_MS)
    return TimeWindow(None if lower is None else int(lower), None if upper is None else int(upper))


def _asked(batch: pa.RecordBatch, blocks: Sequence[PlacedBlock]) -> pa.RecordBatch:
    """Only the first block of a segment that is read can begin in its middle, and only the last one
    can stop there."""
    first, last = blocks[0], blocks[-1]
    if not any(block.first for block in blocks[1:]) and not any(
        block.stop is not None for block in blocks[:-1]
    ):
        left_out = 0 if last.stop is None else last.header.event_count - last.stop
        return batch.slice(first.first, max(0, batch.num_rows - first.first - left_out))
    counts = [block.header.event_count for block in blocks]
    stops = [count if b.stop is None else b.stop for b, count in zip(blocks, counts, strict=True)]
    index = batch.column("index").to_numpy()
    is_asked = index >= np.repeat([block.first for block in blocks], counts)
    is_asked &= index < np.repeat(stops, counts)
    return batch.take(fixed(pa.int64(), np.flatnonzero(is_asked)))


def strings(texts: Sequence[str]) -> pa.Array:
    stored = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, stored)], dtype=np.int32)
    values = pa.py_buffer(b"".join(stored))
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(offsets), values])


def fixed(kind: pa.DataType, values: Ints) -> pa.Array:
    """As `pa.array`, which would import pandas first."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def per_event(counts: Sequence[int], values: Sequence[int] | Ints, kind: type[np.generic]) -> Ints:
    """One value per block, for each of its events; `counts`: the events of each block."""
    return np.repeat(np.asarray(values, kind), counts)


def indexes_of(counts: Sequence[int]) -> Ints:
    """The place of each event in its block, from 0, as int32; `counts`: the events of each."""
    starts = np.cumsum([0, *counts[:-1]], dtype=np.int32)
    return np.arange(sum(counts), dtype=np.int32) - per_event(counts, starts, np.int32)


def events_of(blocks: Sequence[PlacedBlock], rows: int) -> pa.Array:
    """The payloads of at least one block, `rows` of them. Raises CorruptBlock without a place."""
    lengths = _end_to_end([_column(block, np.uint32, 0) for block in blocks])
    sizes = [block.header.payloads_size for block in blocks]
    _check_lengths(blocks, lengths, sizes, "a block's lengths do not add up")
    values = _joined([block.payloads for block in blocks])
    return pa.Array.from_buffers(pa.binary(), rows, [None, _offsets(lengths), values])


def keys_of(blocks: Sequence[PlacedBlock], rows: int) -> pa.Array:
    """The routing keys, null where an event has none. Raises CorruptBlock without a place."""
    if not any(block.header.flags & FLAG_KEYS for block in blocks):
        return pa.nulls(rows, pa.string())
    stored = _end_to_end(
        [
            _column(block, np.uint16, 4)
            if block.header.flags & FLAG_KEYS
            else np.full(block.header.event_count, NO_KEY, np.uint16)
            for block in blocks
        ]
    )
    has_key = stored != NO_KEY
    lengths = np.where(has_key, stored, 0)
    sizes = [block.header.keys_size for block in blocks]
    _check_lengths(blocks, lengths, sizes, "a block's key lengths do not add up")
    valid = np.packbits(has_key, bitorder="little")
    values = _joined([block.keys for block in blocks])
    keys = pa.Array.from_buffers(
        pa.string(), rows, [pa.py_buffer(valid), _offsets(lengths), values]
    )
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptBlock("a block's routing keys are not UTF-8") from error
    return keys


def times_of(blocks: Sequence[PlacedBlock]) -> Ints:
    """The event times in Unix ms: the writer's, else the time of the block."""
    if not any(block.header.flags & FLAG_TIMESTAMPS for block in blocks):
        counts = [block.header.event_count for block in blocks]
        return per_event(counts, [block.header.base_timestamp_ms for block in blocks], np.int64)
    return _end_to_end([_times_ms(block) for block in blocks])


def _times_ms(block: PlacedBlock) -> Ints:
    header = block.header
    if not header.flags & FLAG_TIMESTAMPS:
        return np.full(header.event_count, header.base_timestamp_ms, np.int64)
    return _column(block, np.int64, 6 if header.flags & FLAG_KEYS else 4)


def _column(block: PlacedBlock, kind: type[np.integer[Any]], bytes_before: int) -> Ints:
    """A column of a block; `bytes_before`: of the columns before it, per event."""
    count = block.header.event_count
    return np.frombuffer(block.body, kind, count, bytes_before * count)


def _check_lengths(
    blocks: Sequence[PlacedBlock], lengths: Ints, sizes: Sequence[int], fault: str
) -> None:
    """Check that the lengths of each block's events, of all blocks end to end, add up to its size.
    No block is without events."""
    counts = [block.header.event_count for block in blocks[:-1]]
    starts = np.cumsum([0, *counts], dtype=np.int64)
    if np.any(np.add.reduceat(lengths, starts, dtype=np.uint64) != np.asarray(sizes, np.uint64)):
        raise CorruptBlock(fault)


def _offsets(lengths: Ints) -> pa.Buffer:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.py_buffer(offsets)


def _end_to_end(columns: Sequence[Ints]) -> Ints:
    """The columns as one; a single one is not copied."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _joined(parts: Sequence[memoryview]) -> pa.Buffer:
    """The parts end to end; a single one is not copied."""
    return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))
