"""Columns of Arrow → blocks' columns, without a Python object per event. Needs pyarrow.

Payloads and keys of a block are slices of Arrow's own buffers, which are not to change before
the events are acknowledged; nothing is copied before a block is sent. With keys, each *distinct*
key is routed once, and each segment's rows are then taken out as columns again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.client.serializers import require_pyarrow
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, ColumnBatch
from anabranch.client.writing.outbox import Outbox
from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.block import NO_KEY
from anabranch.common.wire.block_encoding import BlockColumns

ARROW_SIZE_BYTES_MIN = 16 * 1024
"""A smaller batch is not worth a block of its own: it joins other events."""


@dataclass(frozen=True, slots=True)
class ArrowEvents:
    """Arrays of Arrow of one length: events (large_binary, without nulls), keys (large_string,
    null: none) and times (int64, without nulls)."""

    events: Any
    keys: Any = None
    stamps: Any = None

    @property
    def cost(self) -> int:
        """The events' share of the writer's buffer."""
        return _CostUpTo(self)(len(self.events))

    @property
    def largest(self) -> int:
        """The size of the largest event; 0 when there is none."""
        compute = require_pyarrow().compute
        return compute.max(compute.binary_length(self.events)).as_py() or 0

    def as_lists(self) -> tuple[list[bytes], list[str | None] | None, list[int] | None]:
        """Events, keys and times as Python objects."""
        keys = None if self.keys is None else self.keys.to_pylist()
        stamps = None if self.stamps is None else self.stamps.to_pylist()
        return self.events.to_pylist(), keys, stamps

    def divide(
        self, route: Callable[[str], tuple[Outbox, bytes]], keyless: Callable[[], Outbox]
    ) -> Iterator[tuple[Outbox, "ArrowEvents"]]:
        """Each segment's events, in order, with the outbox that they go to. Raises as `route`."""
        arrow = require_pyarrow()
        encoded = self.keys.dictionary_encode()
        outboxes: dict[Outbox, int] = {}
        routes = [
            outboxes.setdefault(route(key)[0], len(outboxes))
            for key in encoded.dictionary.to_pylist()
        ]
        chosen = arrow.array(routes, arrow.int32()).take(encoded.indices)
        if chosen.null_count:
            chosen = chosen.fill_null(outboxes.setdefault(keyless(), len(outboxes)))
        if len(outboxes) == 1:
            yield from ((outbox, self) for outbox in outboxes)
            return
        for outbox, index in outboxes.items():
            rows = arrow.compute.equal(chosen, index)
            stamps = None if self.stamps is None else self.stamps.filter(rows)
            yield outbox, ArrowEvents(self.events.filter(rows), self.keys.filter(rows), stamps)

    def blocks(self, block_size: int) -> Iterator[ColumnBatch]:
        """The events in blocks; each block ends with the event that reaches its size."""
        columns = _Stored(self)
        cost, count = _CostUpTo(self), len(self.events)
        start = 0
        while start < count:
            wanted = cost(start) + block_size
            end = min(count, start + 1 + bisect_left(range(start + 1, count), wanted, key=cost))
            yield ColumnBatch(columns.between(start, end), end - start, cost(end) - cost(start))
            start = end


class _CostUpTo:
    """The cost of the events before an index, in bytes of the writer's buffer."""

    def __init__(self, content: ArrowEvents) -> None:
        self._ends = _offsets(content.events)
        self._key_ends = None if content.keys is None else _offsets(_filled(content.keys))

    def __call__(self, index: int) -> int:
        stored = self._ends[index] - self._ends[0] + EVENT_OVERHEAD_BYTES * index
        if self._key_ends is not None:
            stored += self._key_ends[index] - self._key_ends[0]
        return stored


class _Stored:
    """The columns in the form in which a block stores them."""

    def __init__(self, content: ArrowEvents) -> None:
        arrow = require_pyarrow()
        sizes = arrow.compute.binary_length
        self._lengths = _values(sizes(content.events).cast(arrow.uint32()), 4)
        self._ends, self._data = _offsets(content.events), _data(content.events)
        self._key_lengths = self._stamps = memoryview(b"")
        self._key_ends, self._key_data = memoryview(bytes(8)).cast("q"), memoryview(b"")
        if content.keys is not None and content.keys.null_count < len(content.keys):
            lengths = sizes(content.keys).fill_null(NO_KEY).cast(arrow.uint16())
            filled = _filled(content.keys)
            self._key_lengths = _values(lengths, 2)
            self._key_ends, self._key_data = _offsets(filled), _data(filled)
        if content.stamps is not None:
            self._stamps = _values(content.stamps, 8)

    def between(self, start: int, end: int) -> BlockColumns:
        """The columns of the events from `start` up to `end`."""
        keyed = bool(self._key_lengths)
        first, last = (self._key_ends[start], self._key_ends[end]) if keyed else (0, 0)
        return BlockColumns(
            bytes(self._lengths[4 * start : 4 * end]),
            [self._data[self._ends[start] : self._ends[end]]],
            bytes(self._key_lengths[2 * start : 2 * end]),
            self._key_data[first:last],
            bytes(self._stamps[8 * start : 8 * end]),
        )


def arrow_events(
    batch: Any, event: str, key: str | None, timestamp_ms: str | int | None
) -> ArrowEvents:
    """The named columns of a Table or RecordBatch. Raises InvalidRequest, CodecMissing."""
    arrow = require_pyarrow()
    if not isinstance(batch, arrow.Table | arrow.RecordBatch):
        raise InvalidRequest(
            "the data is neither a Table nor a RecordBatch", type=type(batch).__name__
        )
    texts = (arrow.types.is_string, arrow.types.is_large_string)
    binaries = (*texts, arrow.types.is_binary, arrow.types.is_large_binary)
    events = _column(batch, event, binaries, arrow.large_binary())
    keys = stamps = None
    if key is not None:
        keys = _column(batch, key, texts, arrow.large_string(), nulls=True)
    if isinstance(timestamp_ms, int):
        stamps = arrow.repeat(arrow.scalar(timestamp_ms, arrow.int64()), len(events))
    elif timestamp_ms is not None:
        times = (arrow.types.is_integer, arrow.types.is_timestamp)
        stamps = _times(_column(batch, timestamp_ms, times, None), timestamp_ms)
    return ArrowEvents(events, keys, stamps)


def _column(batch: Any, name: str, kinds: Any, wanted: Any, *, nulls: bool = False) -> Any:
    """The column as one array of the wanted type. Raises InvalidRequest."""
    arrow = require_pyarrow()
    if batch.schema.get_field_index(name) < 0:
        raise InvalidRequest("the column does not exist, or exists more than once", column=name)
    column = batch.column(name)
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not any(kind(column.type) for kind in kinds):
        raise InvalidRequest(
            "the column has an unsupported type", column=name, type=str(column.type)
        )
    if column.null_count and not nulls:
        raise InvalidRequest("a column has nulls", column=name, count=column.null_count)
    if wanted is not None:
        column = column.cast(wanted)
    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, arrow.ChunkedArray):
            column = arrow.concat_arrays(column.chunks)
    return column


def _times(column: Any, name: str) -> Any:
    arrow = require_pyarrow()
    try:
        if arrow.types.is_timestamp(column.type):
            column = column.cast(arrow.timestamp("ms", column.type.tz), safe=False)
        return column.cast(arrow.int64())
    except arrow.ArrowInvalid as error:
        raise InvalidRequest(
            "a column's times are not milliseconds in 64 bits", column=name
        ) from error


def _filled(keys: Any) -> Any:
    """Without nulls, so that offsets count stored values."""
    return keys.fill_null("") if keys.null_count else keys


def _offsets(array: Any) -> "memoryview[int]":
    if not len(array):
        return memoryview(bytes(8)).cast("q")
    offsets = memoryview(array.buffers()[1]).cast("B").cast("q")
    return offsets[array.offset : array.offset + len(array) + 1]


def _data(array: Any) -> memoryview:
    """The bytes to which the offsets refer."""
    data = array.buffers()[2]
    return memoryview(b"" if data is None else data).cast("B")


def _values(array: Any, size: int) -> memoryview:
    """The bytes of numbers of `size` bytes each."""
    if not len(array):
        return memoryview(b"")
    data = memoryview(array.buffers()[1]).cast("B")
    return data[size * array.offset : size * (array.offset + len(array))]
