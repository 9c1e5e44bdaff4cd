"""The columns that a write takes, and Spark's Arrow batches → the client's. Pure.

    event         binary or string, never null
    routing_key   string; null: no key
    event_time    timestamp; null: the time of writing

No step makes a Python object per row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.common.errors import EventTooLarge, InvalidRequest

E = TypeVar("E", InvalidRequest, EventTooLarge)
EVENT, KEY, TIME = "event", "routing_key", "event_time"
SLICE_SIZE_BYTES = 8 * 1024 * 1024
"""A batch goes to the client in slices of about this size, which fit into its buffer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows lie, for errors: the task's partition, and its rows before them."""

    partition: int
    rows_before: int = 0


def event_slices(
    batch: pa.RecordBatch, place: Place, event_size_bytes_max: int, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """The rows in slices of about `SLICE_SIZE_BYTES`, or of one event.

    Raises InvalidRequest (an event is null), EventTooLarge.
    """
    if not batch.num_rows:
        return
    events = batch.column(EVENT)
    if events.null_count:
        raise _refused(
            InvalidRequest, "an event is null", _first(pc.is_null(events)), place,
            "give each row an event, or drop it: df.where('event IS NOT NULL')",
        )  # fmt: skip
    sizes = pc.binary_length(events)
    if (pc.max(sizes).as_py() or 0) > event_size_bytes_max:
        raise _too_large(sizes, place, event_size_bytes_max)
    batch = _with_times(batch, now_ms)
    for start, end in _bounds(sizes):
        yield batch.slice(start, end - start)


def _with_times(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    place = batch.schema.get_field_index(TIME)
    if place < 0 or not batch.column(place).null_count:
        return batch
    times = batch.column(place)
    now = pa.scalar(now_ms, pa.timestamp("ms", times.type.tz)).cast(times.type)
    return batch.set_column(place, batch.schema.field(place), pc.fill_null(times, now))


def _bounds(sizes: pa.Array) -> Iterator[tuple[int, int]]:
    """Half-open ranges of rows; each ends before the row that would make it too large."""
    count = len(sizes)
    ends = np.cumsum(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)
    start, before = 0, 0
    while start < count:
        end = int(np.searchsorted(ends, before + SLICE_SIZE_BYTES, side="right"))
        end = min(count, max(end, start + 1))
        yield start, end
        start, before = end, int(ends[end - 1])


def _first(chosen: pa.Array) -> int:
    return int(pc.index(chosen, True).as_py())


def _too_large(sizes: pa.Array, place: Place, limit: int) -> EventTooLarge:
    row = _first(pc.greater(sizes, limit))
    what = "an event is over the limit"
    error = _refused(EventTooLarge, what, row, place, "split the event")
    error.fields = {**error.fields, "size": sizes[row].as_py(), "limit": limit}
    return error


def _refused(kind: type[E], what: str, row: int, place: Place, remedy: str) -> E:
    row += place.rows_before
    return kind(
        f"{what}, in row {row} of partition {place.partition}; nothing of the batch is committed",
        remedy=remedy, partition=place.partition, row=row,
    )  # fmt: skip
