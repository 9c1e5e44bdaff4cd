"""The block: the unit of append, acknowledgement, checksum and read.

Layout (little-endian)::

    header   68 bytes, `HEADER` below; CRC32C (last field) covers everything else
    columns  payload lengths u32[n]
             key lengths     u16[n]  when FLAG_KEYS;       0xFFFF = no routing key
             timestamps      i64[n]  when FLAG_TIMESTAMPS; event time, ms since the epoch
    payloads joined
    keys     joined (UTF-8)

Columns make Python fast: encoding is two C-level joins, decoding is one cumulative sum with
lazy slices, and the two first columns are an Arrow binary column as they stand. The checksum
travels from the writer to the reader unchanged; the store verifies it before it accepts.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from crc32c import crc32c

from anabranch.common.errors import CorruptBlock, EventTooLarge, FormatTooNew, InvalidRequest

assert sys.byteorder == "little", "columns are read and written in native order"
assert array("I").itemsize == 4
assert array("H").itemsize == 2
assert array("q").itemsize == 8

MAGIC = b"ANBK"
FORMAT = 1
CODEC_NONE = 0

FLAG_KEYS = 1
FLAG_TIMESTAMPS = 2
_FLAGS_KNOWN = FLAG_KEYS | FLAG_TIMESTAMPS

NO_KEY = 0xFFFF
KEY_SIZE_BYTES_MAX = 8192
EVENT_SIZE_BYTES_MAX = 8 * 1024 * 1024
BLOCK_SIZE_BYTES_MAX = 16 * 1024 * 1024 - 65536
"""Room is left for the headers of packet, log operation and frame (each ≤ 16 MiB)."""

# magic, format, flags, codec, reserved, event count, block size, columns size, payloads size,
# keys size, writer id, first event number, base timestamp, reserved, crc
HEADER = struct.Struct("<4sBBBBIIIII16sQqII")
HEADER_SIZE_BYTES = HEADER.size
_CRC_AT = HEADER_SIZE_BYTES - 4


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """A block's fixed header. Sizes in bytes; `size` is the whole block."""

    flags: int
    event_count: int
    size: int
    columns_size: int
    payloads_size: int
    keys_size: int
    writer_id: bytes
    first_event_number: int
    base_timestamp_ms: int


def encode_block(
    events: Sequence[bytes],
    *,
    writer_id: bytes,
    first_event_number: int,
    base_timestamp_ms: int,
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> bytes:
    """One block of 1 … n events; keys and timestamps, if given, have one item per event.

    Raises EventTooLarge and InvalidRequest.
    """
    if not events:
        raise InvalidRequest("a block needs at least one event")
    assert len(writer_id) == 16
    lengths = array("I", map(len, events))
    if max(lengths) > EVENT_SIZE_BYTES_MAX:
        raise EventTooLarge("an event is over the limit", size=max(lengths))
    columns = [lengths.tobytes()]
    flags = 0
    joined_keys = b""
    if keys is not None and any(key is not None for key in keys):
        assert len(keys) == len(events)
        flags |= FLAG_KEYS
        columns.append(_key_lengths(keys).tobytes())
        joined_keys = b"".join([key for key in keys if key is not None])
    if timestamps_ms is not None:
        assert len(timestamps_ms) == len(events)
        flags |= FLAG_TIMESTAMPS
        columns.append(array("q", timestamps_ms).tobytes())
    body = b"".join([*columns, *events, joined_keys])
    size = HEADER_SIZE_BYTES + len(body)
    if size > BLOCK_SIZE_BYTES_MAX:
        raise InvalidRequest("the block is over the limit", size=size, limit=BLOCK_SIZE_BYTES_MAX)
    columns_size = sum(map(len, columns))
    header = HEADER.pack(
        MAGIC, FORMAT, flags, CODEC_NONE, 0,
        len(events), size, columns_size, len(body) - columns_size - len(joined_keys),
        len(joined_keys), writer_id, first_event_number, base_timestamp_ms, 0, 0,
    )[:_CRC_AT]  # fmt: skip
    return b"".join((header, struct.pack("<I", crc32c(body, crc32c(header))), body))


def _key_lengths(keys: Sequence[bytes | None]) -> "array[int]":
    lengths = array("H", [NO_KEY if key is None else min(len(key), NO_KEY) for key in keys])
    longest = max((len(key) for key in keys if key is not None), default=0)
    if longest > KEY_SIZE_BYTES_MAX:
        raise InvalidRequest("a routing key is too long", size=longest, limit=KEY_SIZE_BYTES_MAX)
    return lengths


def parse_header(data: bytes | memoryview, at: int = 0) -> BlockHeader:
    """The header at `at`, its own fields checked but not the checksum.

    Raises CorruptBlock for bytes that cannot be a block, FormatTooNew for a newer format.
    """
    if len(data) - at < HEADER_SIZE_BYTES:
        raise CorruptBlock("a block's header is cut off", have=len(data) - at)
    (
        magic, fmt, flags, codec, reserved, event_count, size, columns_size, payloads_size,
        keys_size, writer_id, first_event_number, base_timestamp_ms, reserved_too, _,
    ) = HEADER.unpack_from(data, at)  # fmt: skip
    if magic != MAGIC:
        raise CorruptBlock("no block starts here", at=at)
    if fmt != FORMAT:
        raise FormatTooNew("a block has an unknown format", found=fmt, supported=FORMAT)
    header = BlockHeader(
        flags, event_count, size, columns_size, payloads_size, keys_size, writer_id,
        first_event_number, base_timestamp_ms,
    )  # fmt: skip
    if codec != CODEC_NONE or flags & ~_FLAGS_KNOWN or reserved or reserved_too:
        raise FormatTooNew("a block uses an unknown codec or flag", found=codec, supported=0)
    if not _sizes_agree(header):
        raise CorruptBlock("a block's sizes contradict each other", at=at)
    return header


def _sizes_agree(header: BlockHeader) -> bool:
    per_event = 4 + 2 * bool(header.flags & FLAG_KEYS) + 8 * bool(header.flags & FLAG_TIMESTAMPS)
    parts = header.columns_size + header.payloads_size + header.keys_size
    return (
        header.event_count > 0
        and header.columns_size == per_event * header.event_count
        and header.size == HEADER_SIZE_BYTES + parts
        and header.size <= BLOCK_SIZE_BYTES_MAX
    )


def verify_block(data: bytes | memoryview, at: int = 0) -> BlockHeader:
    """The header at `at` after checking the checksum of the whole block. Raises CorruptBlock."""
    header = parse_header(data, at)
    view = memoryview(data)[at : at + header.size]
    if len(view) != header.size:
        raise CorruptBlock("a block is cut off", at=at, size=header.size, have=len(view))
    (stored,) = struct.unpack_from("<I", view, _CRC_AT)
    if crc32c(view[HEADER_SIZE_BYTES:], crc32c(view[:_CRC_AT])) != stored:
        raise CorruptBlock("a block's checksum does not match", at=at, size=header.size)
    return header


class Block:
    """A verified block whose events are sliced lazily.

    Iterating yields the payloads; `keys` and `timestamps_ms` are parallel to them.
    """

    __slots__ = ("_base", "_offsets", "_view", "header")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.header = verify_block(data, at)
        self._view = memoryview(data)[at : at + self.header.size]
        self._base = HEADER_SIZE_BYTES + self.header.columns_size
        lengths = self._column("I", HEADER_SIZE_BYTES, 4)
        self._offsets = list(accumulate(lengths, initial=self._base))
        if self._offsets[-1] != self._base + self.header.payloads_size:
            raise CorruptBlock("a block's lengths do not add up", at=at)

    def _column(self, typecode: str, start: int, item_size: int) -> "array[int]":
        column = array(typecode)
        column.frombytes(self._view[start : start + item_size * self.header.event_count])
        return column

    def __len__(self) -> int:
        return self.header.event_count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._view[self._offsets[index] : self._offsets[index + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.events())

    def events(self, start: int = 0) -> list[bytes]:
        """The payloads from `start` on, as bytes objects."""
        data = bytes(self._view)
        bounds = self._offsets
        return [data[a:b] for a, b in zip(bounds[start:], bounds[start + 1 :], strict=False)]

    def keys(self) -> list[bytes | None]:
        """The routing keys, None where an event has none."""
        if not self.header.flags & FLAG_KEYS:
            return [None] * self.header.event_count
        at = HEADER_SIZE_BYTES + 4 * self.header.event_count
        lengths = self._column("H", at, 2)
        cursor = self._base + self.header.payloads_size
        keys: list[bytes | None] = []
        for length in lengths:
            if length == NO_KEY:
                keys.append(None)
                continue
            keys.append(bytes(self._view[cursor : cursor + length]))
            cursor += length
        if cursor != self.header.size:
            raise CorruptBlock("a block's key lengths do not add up")
        return keys

    def timestamps_ms(self) -> list[int]:
        """Event times, or the block's base timestamp for each event without a column."""
        if not self.header.flags & FLAG_TIMESTAMPS:
            return [self.header.base_timestamp_ms] * self.header.event_count
        at = HEADER_SIZE_BYTES + self.header.columns_size - 8 * self.header.event_count
        return list(self._column("q", at, 8))


def count_events(data: bytes | memoryview) -> tuple[int, int]:
    """(blocks, events) of a run of whole blocks, each verified. Raises CorruptBlock."""
    at = blocks = events = 0
    while at < len(data):
        header = verify_block(data, at)
        at += header.size
        blocks += 1
        events += header.event_count
    return blocks, events
