"""Blocks of a segment → Arrow record batches, without a Python object per event.

    event          the payload
    routing_key    null for an event without a key
    event_time     the writer's event time, otherwise the time of its block
    segment        full name
    offset, index  the event's position: byte offset of its block, index within the block

The module joins small blocks into batches of about 1 MiB, and does not copy the payloads of larger
ones. It verifies every block's checksum, and decompresses blocks one batch at a time.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch.client.reading.arrow import Ints, PlacedBlock, columns_of, fixed
from anabranch.common.errors import CorruptBlock, EventTooLarge, InvalidRequest
from anabranch.common.wire.block import block_body, verify_block

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


def record_batches(
    segment: str, data: bytes, offset: int, *, skip: int = 0, keep: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the events of whole blocks, `data`, that lie at `offset` of the segment.

    Omits the first `skip` events and, of the last block, the events after the first `keep` (0:
    omits none). Skips parts of large events. Raises CorruptBlock, FormatTooNew, CodecMissing, and
    EventTooLarge for a large event itself.
    """
    for blocks in _groups(segment, data, offset):
        columns = _columns(blocks)
        first, end = 0, len(columns["event"])
        if blocks[0].offset == offset:
            first = skip
        if keep and blocks[-1].end == offset + len(data):
            end -= blocks[-1].header.event_count - keep
        for start in range(first, end, BATCH_ROWS_MAX):
            rows = min(BATCH_ROWS_MAX, end - start)
            part = {name: column.slice(start, rows) for name, column in columns.items()}
            # Per batch: for all rows of a large block it would exceed Arrow's 32-bit offsets.
            part["segment"] = _repeated(segment.encode(), rows)
            yield pa.RecordBatch.from_arrays([part[name] for name in SCHEMA.names], schema=SCHEMA)


def _groups(segment: str, data: bytes, offset: int) -> Iterator[list[PlacedBlock]]:
    """Yield runs of blocks, each of which becomes one batch."""
    view = memoryview(data)
    at = rows = size = 0
    group: list[PlacedBlock] = []
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
        group.append(PlacedBlock(segment, offset + at, header, body))
        at += header.size
        rows += header.event_count
        size += header.body_size
        if size >= BATCH_BYTES or rows >= BATCH_ROWS_MAX:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _columns(blocks: Sequence[PlacedBlock]) -> dict[str, pa.Array]:
    """All columns but `segment`, by name."""
    columns = columns_of(blocks)
    return {
        "event": columns.event,
        "routing_key": columns.key,
        "event_time": _event_times(columns.times_ms),
        "offset": _fixed("offset", columns.offset),
        "index": _fixed("index", columns.index),
    }


def _repeated(text: bytes, rows: int) -> pa.Array:
    """Do as `pa.repeat`, which would first import pandas: a second or two in every task."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(text * rows)])


def _fixed(name: str, values: Ints) -> pa.Array:
    return fixed(SCHEMA.field(name).type, values)


def _event_times(times_ms: Ints) -> pa.Array:
    if int(times_ms.max()) > _EVENT_TIME_MS_MAX or int(times_ms.min()) < -_EVENT_TIME_MS_MAX:
        raise InvalidRequest(
            "an event's time exceeds Spark's range",
            remedy="read the stream with the Python client, which returns times as numbers",
        )
    return _fixed("event_time", times_ms * 1000)


def _too_large(segment: str, offset: int) -> EventTooLarge:
    return EventTooLarge(
        "an event of the stream exceeds 8 MiB, which the Spark source cannot read",
        remedy="read the stream with the Python client, or from a position behind the event",
        segment=segment, offset=offset,
    )  # fmt: skip


def _corrupt(what: str, segment: str, offset: int) -> CorruptBlock:
    return CorruptBlock(what, segment=segment, offset=offset)
