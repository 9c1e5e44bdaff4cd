"""Blocks of segments → Arrow record batches, without a Python object per event.

Only the columns that a read asks for are made. A column is one of two kinds: one value per event,
made for a whole run of blocks and cut into batches, or one text per block, repeated batch by batch.
`key_position` costs a hash per distinct key of a run. Payloads of a run with one block are not
copied.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.client.reading.arrow import (
    PlacedBlock,
    events_of,
    fixed,
    indexes_of,
    keys_of,
    per_event,
    strings,
    times_of,
)
from anabranch.common.errors import CorruptBlock, InvalidRequest
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.spark.options.columns import DEFAULT
from anabranch.spark.reading import blocks as runs
from anabranch.spark.reading.blocks import FetchLarge, groups, placed_blocks

_TIME = pa.timestamp("us", "UTC")
_TIME_MS_MAX = (2**63 - 1) // 1000

FIELDS: Mapping[str, pa.Field] = {
    field.name: field
    for field in (
        pa.field("event", pa.binary(), nullable=False),
        pa.field("routing_key", pa.string()),
        pa.field("event_time", _TIME, nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("writer_id", pa.string()),
        pa.field("event_number", pa.int64()),
        pa.field("key_position", pa.float64()),
        pa.field("watermark", _TIME),
    )
}
"""By name, as `reading.schema.FIELDS`."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The columns in their order."""
    return pa.schema([FIELDS[name] for name in columns])


SCHEMA = arrow_schema(DEFAULT)

Watermarks = Mapping[StreamRef, int]
"""In Unix ms; streams without one are left out."""


def record_batches(
    segment: str,
    data: bytes | memoryview,
    offset: int,
    *,
    skip: int = 0,
    keep: int = 0,
    columns: Sequence[str] = DEFAULT,
    watermarks: Watermarks | None = None,
    fetch_large: FetchLarge | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the events of whole blocks of one segment; see `placed_blocks` and `batches`."""
    placed = placed_blocks(segment, data, offset, skip=skip, keep=keep, fetch_large=fetch_large)
    yield from batches(placed, columns, watermarks or {})


def batches(
    blocks: Iterable[PlacedBlock], columns: Sequence[str], watermarks: Watermarks
) -> Iterator[pa.RecordBatch]:
    """Yield the events of the blocks, in order, in batches of about 1 MiB with these columns.

    Raises CorruptBlock, InvalidRequest for a time that Spark cannot hold, and the errors of
    `blocks`.
    """
    schema = arrow_schema(columns)
    for group in groups(blocks):
        run = Run(group, watermarks)
        whole = {name: run.made(name) for name in columns if name in _PER_EVENT}
        for start in range(run.first, run.stop, runs.BATCH_ROWS_MAX):
            stop = min(start + runs.BATCH_ROWS_MAX, run.stop)
            arrays = [
                whole[name].slice(start, stop - start)
                if name in whole
                # Per batch: for all rows of a large block it would exceed Arrow's 32-bit offsets.
                else run.texts(_PER_BLOCK[name], start, stop)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class Run:
    """The events of some blocks, of which rows from `first` up to `stop` are asked for."""

    def __init__(self, blocks: Sequence[PlacedBlock], watermarks: Watermarks) -> None:
        self.blocks = blocks
        self.watermarks = watermarks
        self.counts = [block.header.event_count for block in blocks]
        self.rows = sum(self.counts)
        last = blocks[-1]
        left_out = 0 if last.stop is None else last.header.event_count - last.stop
        self.first, self.stop = blocks[0].first, self.rows - left_out

    def made(self, name: str) -> pa.Array:
        """A column with one value per event. Raises CorruptBlock with the place of the run."""
        try:
            return _PER_EVENT[name](self)
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message, segment=self.blocks[0].segment, offset=self.blocks[0].offset
            ) from error

    @cached_property
    def keys(self) -> pa.Array:
        """The routing keys."""
        return keys_of(self.blocks, self.rows)

    def texts(self, text_of: Callable[[PlacedBlock], str], start: int, stop: int) -> pa.Array:
        """One text per block, for the events from `start` up to `stop`."""
        found = [text_of(block) for block in self.blocks]
        distinct = list(dict.fromkeys(found))
        if len(distinct) == 1:
            return _repeated(found[0].encode(), stop - start)
        numbers = {text: number for number, text in enumerate(distinct)}
        rows = per_event(self.counts, [numbers[text] for text in found], np.int32)[start:stop]
        return strings(distinct).take(fixed(pa.int32(), np.ascontiguousarray(rows)))


def _repeated(text: bytes, rows: int) -> pa.Array:
    """Do as `pa.repeat`, which would first import pandas: a second or two in every task."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(text * rows)])


def _event_times(run: Run) -> pa.Array:
    times_ms = times_of(run.blocks)
    if int(times_ms.max()) > _TIME_MS_MAX or int(times_ms.min()) < -_TIME_MS_MAX:
        raise InvalidRequest(
            "an event's time exceeds Spark's range",
            remedy="name the wanted columns in the option columns, without event_time; or read the "
            "stream with the Python client, which returns times as numbers",
        )
    return fixed(_TIME, times_ms * 1000)


def _event_numbers(run: Run) -> pa.Array:
    """The numbers ascend by one in a block; the arithmetic is that of unsigned numbers."""
    firsts = [block.header.first_event_number for block in run.blocks]
    numbers = per_event(run.counts, firsts, np.uint64) + indexes_of(run.counts).astype(np.uint64)
    return fixed(pa.int64(), numbers.view(np.int64))


def _key_positions(run: Run) -> pa.Array:
    if run.keys.null_count == run.rows:
        return pa.nulls(run.rows, pa.float64())
    encoded = run.keys.dictionary_encode()
    keys = encoded.dictionary.to_pylist()
    positions = np.fromiter(map(routing_position, keys), np.float64, len(keys))
    values = pa.Array.from_buffers(pa.float64(), len(keys), [None, pa.py_buffer(positions)])
    return values.take(encoded.indices)


def _watermarks(run: Run) -> pa.Array:
    found = [run.watermarks.get(parse_segment_name(b.segment)[0]) for b in run.blocks]
    if all(at_ms is None for at_ms in found):
        return pa.nulls(run.rows, _TIME)
    times_us = [0 if at_ms is None else at_ms * 1000 for at_ms in found]
    times = per_event(run.counts, times_us, np.int64)
    valid = per_event(run.counts, [at_ms is not None for at_ms in found], np.bool_)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(_TIME, run.rows, [bits, pa.py_buffer(times)])


_PER_EVENT: Mapping[str, Callable[[Run], pa.Array]] = {
    "event": lambda run: events_of(run.blocks, run.rows),
    "routing_key": lambda run: run.keys,
    "event_time": _event_times,
    "offset": lambda run: fixed(
        pa.int64(), per_event(run.counts, [block.offset for block in run.blocks], np.int64)
    ),
    "index": lambda run: fixed(pa.int32(), indexes_of(run.counts)),
    "event_number": _event_numbers,
    "key_position": _key_positions,
    "watermark": _watermarks,
}
_PER_BLOCK: Mapping[str, Callable[[PlacedBlock], str]] = {
    "segment": lambda block: block.segment,
    "scope": lambda block: parse_segment_name(block.segment)[0].scope,
    "stream": lambda block: parse_segment_name(block.segment)[0].stream,
    "writer_id": lambda block: block.header.writer_id.hex(),
}
