"""The routing key of one event in an append, without a look at the others.

A segment store takes samples of the keys that it receives. It has checked the contents of blocks at
the door, but the content of a byte stream is no block, though it may look like one: nothing here
raises, whatever the bytes are.
"""

import struct
from typing import NamedTuple

from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.wire.block import (
    FLAG_KEYS,
    HEADER_SIZE_BYTES,
    LARGE_EVENT_SIZE_BYTES_MAX,
    LARGE_REFERENCE,
    LARGE_REFERENCE_SIZE_BYTES,
    NO_KEY,
    BlockHeader,
    parse_header,
)
from anabranch.common.wire.codec import CODEC_NONE
from anabranch.common.wire.contents import sum_column

BLOCKS_MAX = 64
"""Of one append; events behind them are not looked for."""
LENGTHS_MAX = 131_072
"""So many key lengths are added up: about a tenth of a millisecond."""

_LENGTH = struct.Struct("<I")
_NO_KEY = struct.pack("<H", NO_KEY)


class EventKey(NamedTuple):
    """`key` None: the event has none. `size`: of the event, in bytes."""

    key: bytes | None
    size: int


def event_key(payload: bytes | memoryview, index: int) -> EventKey | None:
    """The event at `index`, from 0, in a run of whole blocks.

    None: its block is compressed, these bytes are no blocks, or the event is further than
    `LENGTHS_MAX` events from both ends of its block. Costs one sum over the key lengths up to the
    nearer end, and no object per event.
    """
    at = 0
    try:
        for _ in range(BLOCKS_MAX):
            header = parse_header(payload, at)
            if index < header.event_count:
                return _in_block(payload, at, header, index)
            index -= header.event_count
            at += header.size
    except (CorruptBlock, FormatTooNew):
        return None
    return None


def _in_block(
    payload: bytes | memoryview, at: int, header: BlockHeader, index: int
) -> EventKey | None:
    if header.codec != CODEC_NONE or at + header.size > len(payload):
        return None
    body = memoryview(payload)[at + HEADER_SIZE_BYTES : at + header.size]
    size = _size(body, header, index)
    if not header.flags & FLAG_KEYS:
        return EventKey(None, size)
    count = header.event_count
    lengths = body[4 * count : 6 * count].cast("H")
    length = lengths[index]
    if length == NO_KEY:
        return EventKey(None, size)
    if min(index, count - index) > LENGTHS_MAX:
        return None
    if 2 * index <= count:
        before = _together(lengths[:index])
    else:
        before = header.keys_size - _together(lengths[index:])
    if not 0 <= before <= header.keys_size - length:
        return None
    key_at = header.columns_size + header.payloads_size + before
    return EventKey(bytes(body[key_at : key_at + length]), size)


def _size(body: memoryview, header: BlockHeader, index: int) -> int:
    if header.is_large:
        at = header.columns_size
        found = LARGE_REFERENCE.unpack(body[at : at + LARGE_REFERENCE_SIZE_BYTES])
        return min(int(found[2]), LARGE_EVENT_SIZE_BYTES_MAX)
    (size,) = _LENGTH.unpack_from(body, 4 * index)
    return int(size)


def _together(lengths: memoryview) -> int:
    """The sum of key lengths. A length below that of a missing key has no byte 0xFF at its upper
    end, so that missing keys can be counted as pairs of bytes."""
    column = lengths.tobytes()
    return sum_column(column, 2) - NO_KEY * column.count(_NO_KEY)
