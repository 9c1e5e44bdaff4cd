"""Bytes of a segment → one row per stored block, and a row in place of each damaged stretch. Pure.

    scan        bytes ──► blocks, verified, and damages; after a damage it continues with the next
                block that it can find
    block_rows  blocks and damages ──► rows of the table `blocks`

No Python object is made per event: a group of blocks is measured with NumPy, and each distinct key
of a group is hashed once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.client.reading.arrow import PlacedBlock, columns_of
from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.key_range import KeyRange
from anabranch.common.wire.block import (
    CRC_AT,
    FLAG_TABLE,
    BlockHeader,
    block_body,
    parse_header,
    verify_block,
)
from anabranch.spark.tables.arrow import TIME, batch

BATCH_ROWS = 4096
GROUP_BYTES = 1024 * 1024
GROUP_BLOCKS = 512
KEYS_CACHED_MAX = 65_536
_INT63 = 2**63 - 1

SCHEMA = pa.schema(
    [
        pa.field("scope", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("writer_id", pa.string()),
        pa.field("first_event_number", pa.int64()),
        pa.field("event_count", pa.int32()),
        pa.field("payload_size_bytes", pa.int64()),
        pa.field("block_time", TIME),
        pa.field("event_time_min", TIME),
        pa.field("event_time_max", TIME),
        pa.field("key_position_min", pa.float64()),
        pa.field("key_position_max", pa.float64()),
        pa.field("misplaced_event_count", pa.int32()),
        pa.field("crc32c", pa.int64()),
        pa.field("object", pa.string()),
        pa.field("object_offset", pa.int64()),
        pa.field("damage", pa.string()),
    ]
)

Boundaries = Callable[[], Sequence[int]]
"""Append boundaries, ascending, relative to the bytes; called only after a damage."""
PositionOf = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Damage:
    """`size` bytes at `offset` of the segment that are no valid blocks, and why."""

    offset: int
    size: int
    text: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """The place of the bytes that are scanned: `size` bytes at `offset` of the segment, from
    `object_offset` of an object of tier 2 on. `keys` None: keys are not checked."""

    segment: str
    offset: int
    size: int
    object: str
    object_offset: int
    keys: KeyRange | None


def scan(
    stretch: Stretch, data: bytes | memoryview, boundaries: Boundaries, fault: str = ""
) -> Iterator[PlacedBlock | Damage]:
    """Yield the blocks and damages of the stretch, in order, without gaps.

    `data` may be shorter than the stretch, if its object was cut off. `fault`: the checksums of the
    object do not match; if all blocks match theirs, a damage without bytes reports it. Raises
    CodecMissing.
    """
    view, at, is_sound = memoryview(data), 0, True
    while at < len(view):
        try:
            header = verify_block(view, at)
            if header.flags & FLAG_TABLE:
                raise CorruptBlock("a block of a key-value table lies in a stream")
            body = b"" if header.is_part else block_body(view, header, at)
        except (CorruptBlock, FormatTooNew) as error:
            end = _resume(view, at, stretch.size, boundaries())
            yield Damage(stretch.offset + at, end - at, error.message)
            at, is_sound = end, False
            continue
        yield PlacedBlock(stretch.segment, stretch.offset + at, header, body)
        at += header.size
    if at < stretch.size:
        yield Damage(stretch.offset + at, stretch.size - at, "the object ends before its data")
    elif fault and is_sound:
        yield Damage(stretch.offset, 0, fault)


def _resume(view: memoryview, at: int, size: int, boundaries: Sequence[int]) -> int:
    """Where the scan continues after a damaged block at `at`: behind it, if its header is right
    enough to tell its size, else at the next append boundary, else at the end."""
    try:
        behind = at + parse_header(view, at).size
        if behind == len(view) == size:
            return behind
        verify_block(view, behind)
    except (CorruptBlock, FormatTooNew):
        return next((each for each in boundaries if at < each < len(view)), size)
    return behind


def crc_in(block_start: bytes | memoryview) -> int:
    """The checksum in a block's header."""
    return int.from_bytes(block_start[CRC_AT : CRC_AT + 4], "little")


def new_hash() -> PositionOf:
    """The key's place in the key space, as `routing_position`; remembers the latest keys."""
    return lru_cache(KEYS_CACHED_MAX)(routing_position)


def block_rows(
    stretch: Stretch,
    data: bytes | memoryview,
    found: Iterable[PlacedBlock | Damage],
    position_of: PositionOf,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan, in its order."""
    rows: list[Sequence[Any]] = []
    table = _Rows(stretch, memoryview(data))
    for group in _groups(found):
        rows += table.of(group, position_of)
        if len(rows) >= BATCH_ROWS:
            yield batch(SCHEMA, rows)
            rows = []
    if rows:
        yield batch(SCHEMA, rows)


def _groups(
    found: Iterable[PlacedBlock | Damage],
) -> Iterator[Damage | list[PlacedBlock]]:
    """Damages and parts of large events apart, other blocks in groups that are measured at once."""
    group: list[PlacedBlock] = []
    size = 0
    for each in found:
        is_apart = isinstance(each, Damage) or each.header.is_part
        if group and (is_apart or size >= GROUP_BYTES or len(group) >= GROUP_BLOCKS):
            yield group
            group, size = [], 0
        if isinstance(each, Damage):
            yield each
        elif is_apart:
            yield [each]
        else:
            group.append(each)
            size += each.header.body_size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Measure:
    """The facts about the events of one block; positions None if no event has a key, `misplaced`
    (the events with a key outside the segment's range) None if keys are not checked."""

    time_min_ms: int
    time_max_ms: int
    position_min: float | None
    position_max: float | None
    misplaced: int | None


def measured(
    blocks: Sequence[PlacedBlock], keys: KeyRange | None, position_of: PositionOf
) -> list[Measure]:
    """A measure per block, none of which is a part. Raises CorruptBlock."""
    columns = columns_of(blocks)
    counts = [block.header.event_count for block in blocks]
    starts = np.cumsum([0, *counts[:-1]])
    times = (np.minimum.reduceat(columns.times_ms, starts).tolist(),
             np.maximum.reduceat(columns.times_ms, starts).tolist())  # fmt: skip
    if keys is None or columns.key.null_count == len(columns.key):
        return [
            Measure(low_ms, high_ms, None, None, None if keys is None else 0)
            for low_ms, high_ms in zip(*times, strict=True)
        ]
    encoded = columns.key.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    hashed = np.array([*map(position_of, distinct), np.nan])  # the last one: without a key
    at = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(encoded))
    if columns.key.null_count:  # `fill_null` would import pandas.
        at = np.where(columns.key.is_valid().to_numpy(zero_copy_only=False), at, len(distinct))
    position = hashed[at]
    misplaced = (position < keys.start) | (position >= keys.end)
    return [
        Measure(low_ms, high_ms, _known(low), _known(high), count)
        for low_ms, high_ms, low, high, count in zip(
            *times,
            np.fmin.reduceat(position, starts).tolist(),
            np.fmax.reduceat(position, starts).tolist(),
            np.add.reduceat(misplaced.astype(np.int64), starts).tolist(),
            strict=True,
        )
    ]


def _known(position: float) -> float | None:
    return None if isnan(position) else position


class _Rows:
    """Makes the rows of one stretch."""

    def __init__(self, stretch: Stretch, view: memoryview) -> None:
        self._stretch = stretch
        self._view = view
        scope, stream, _ = stretch.segment.split("/", 2)
        self._place = (scope, stream, stretch.segment)

    def of(self, group: Damage | list[PlacedBlock], position_of: PositionOf) -> list[list[Any]]:
        if isinstance(group, Damage):
            return [self._damaged(group)]
        if group[0].header.is_part:
            return [self._row(block, None, "") for block in group]
        try:
            measures = measured(group, self._stretch.keys, position_of)
        except CorruptBlock as error:
            if len(group) == 1:
                return [self._row(group[0], None, error.message)]
            return [row for block in group for row in self.of([block], position_of)]
        return [self._row(*each, "") for each in zip(group, measures, strict=True)]

    def _damaged(self, damage: Damage) -> list[Any]:
        unknown = [None] * (len(SCHEMA) - 8)
        return [
            *self._place, damage.offset, damage.size, *unknown,
            self._stretch.object, self._object_offset(damage.offset), damage.text,
        ]  # fmt: skip

    def _row(self, block: PlacedBlock, measure: Measure | None, damage: str) -> list[Any]:
        header, at = block.header, block.offset - self._stretch.offset
        facts: list[Any] = [None] * 5
        if measure is not None:
            facts = [
                measure.time_min_ms, measure.time_max_ms, measure.position_min,
                measure.position_max, measure.misplaced,
            ]  # fmt: skip
        return [
            *self._place, block.offset, header.size, _kind(header), header.writer_id.hex(),
            min(header.first_event_number, _INT63), header.event_count, header.payloads_size,
            header.base_timestamp_ms, *facts, crc_in(self._view[at : at + header.size]),
            self._stretch.object, self._object_offset(block.offset), damage or None,
        ]  # fmt: skip

    def _object_offset(self, offset: int) -> int:
        return self._stretch.object_offset + offset - self._stretch.offset


def _kind(header: BlockHeader) -> str:
    return "part" if header.is_part else "large" if header.is_large else "events"
