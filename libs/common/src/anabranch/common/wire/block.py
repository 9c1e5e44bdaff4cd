"""The block: the unit of append, acknowledgement, checksum and read.

Layout (little-endian)::

    header   68 bytes, `HEADER` below; CRC32C (last field) covers everything else
    columns  payload lengths u32[n]
             key lengths     u16[n]  when FLAG_KEYS;       0xFFFF = no routing key
             timestamps      i64[n]  when FLAG_TIMESTAMPS; event time, ms since the epoch
    payloads joined
    keys     joined (UTF-8)

With CODEC_ZSTD one Zstandard frame replaces everything after the header (`codec.py`). The header's
sizes of columns, payloads and keys are then the sizes before compression, and its block size is the
stored size, so readers count events and skip blocks without decompressing. A writer compresses a
block only if that makes it smaller. A compressed block holds at most `EVENT_SIZE_BYTES_MAX` of
payloads, so no event in it can exceed the limit.

An event over `EVENT_SIZE_BYTES_MAX` is *large*. A block with FLAG_PART has no events and no
columns; its payload is a piece of a large event, and readers skip it. A block with FLAG_LARGE has
one event, whose payload is a `LargeReference` to the parts, which lie before it in the same
segment. With FLAG_PARTS_BEFORE the parts end where the block begins, so that all may move together,
and the reference states no offset. A block with FLAG_TABLE holds entries of a key-value table
instead of events (`table.py`).

Columns make Python fast: encoding is two C-level joins, decoding is one cumulative sum with lazy
slices, and lengths and payloads convert to an Arrow binary column. The checksum covers the stored
bytes and travels from the writer to the reader unchanged. The store verifies it before it accepts a
block, and never decompresses.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from crc32c import crc32c
from msgspec import Struct, structs

from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.wire.codec import (
    CODEC_NONE,
    CODECS,
    decompress_zstd,
)

assert sys.byteorder == "little", "columns are read and written in native order"
assert array("I").itemsize == 4
assert array("H").itemsize == 2
assert array("q").itemsize == 8

MAGIC = b"ANBK"
FORMAT = 1

FLAG_KEYS = 1
FLAG_TIMESTAMPS = 2
FLAG_PART = 4
FLAG_LARGE = 8
FLAG_TABLE = 16
FLAG_PARTS_BEFORE = 32
_FLAGS_KNOWN = FLAG_KEYS | FLAG_TIMESTAMPS | FLAG_PART | FLAG_LARGE | FLAG_TABLE | FLAG_PARTS_BEFORE

NO_KEY = 0xFFFF
KEY_SIZE_BYTES_MAX = 8192
EVENT_SIZE_BYTES_MAX = 8 * 1024 * 1024
PART_SIZE_BYTES_MAX = 4 * 1024 * 1024
LARGE_EVENT_SIZE_BYTES_MAX = 1024 * 1024 * 1024
BLOCK_SIZE_BYTES_MAX = 16 * 1024 * 1024 - 65536
"""Leaves room for the headers of packet, log operation and frame (each ≤ 16 MiB)."""

# magic, format, flags, codec, reserved, event count, block size, columns size, payloads size,
# keys size, writer id, first event number, base timestamp, reserved, crc
HEADER = struct.Struct("<4sBBBBIIIII16sQqII")
HEADER_SIZE_BYTES = HEADER.size
CRC_AT = HEADER_SIZE_BYTES - 4
_FLAGS_AT = 5
_COUNT_AT = 8
LARGE_REFERENCE = struct.Struct("<QQQI")
LARGE_REFERENCE_SIZE_BYTES = LARGE_REFERENCE.size


class BlockHeader(Struct, frozen=True, gc=False):
    """A block's fixed header. Sizes in bytes; `size` is the whole block as it is stored."""

    flags: int
    codec: int
    event_count: int
    size: int
    columns_size: int
    payloads_size: int
    keys_size: int
    writer_id: bytes
    first_event_number: int
    base_timestamp_ms: int

    @property
    def body_size(self) -> int:
        """Columns, payloads and keys together, before compression."""
        return self.columns_size + self.payloads_size + self.keys_size

    @property
    def is_part(self) -> bool:
        """Whether the block holds a piece of a large event, and so no event."""
        return bool(self.flags & FLAG_PART)

    @property
    def is_large(self) -> bool:
        """Whether the only event of the block is a reference to parts."""
        return bool(self.flags & FLAG_LARGE)


@dataclass(frozen=True, slots=True)
class LargeReference:
    """The place of a large event's parts in its segment; they are adjacent blocks.

    `offset` and `length` describe these blocks, in bytes; `size` and `crc` (CRC32C) the event. The
    offset is stored as 0 if the parts end where the block of the reference begins.
    """

    offset: int
    length: int
    size: int
    crc: int

    def encode(self) -> bytes:
        """Encode the payload of a block with FLAG_LARGE."""
        return LARGE_REFERENCE.pack(self.offset, self.length, self.size, self.crc)

    @classmethod
    def parse(cls, payload: bytes | memoryview) -> "LargeReference":
        """Inverse of `encode`. Raises CorruptBlock."""
        if len(payload) != LARGE_REFERENCE_SIZE_BYTES:
            raise CorruptBlock("a reference to a large event has a wrong size", size=len(payload))
        found = cls(*LARGE_REFERENCE.unpack(payload))
        if not (0 < found.size <= LARGE_EVENT_SIZE_BYTES_MAX and found.length > 0):
            raise CorruptBlock("a reference to a large event contradicts itself", size=found.size)
        return found


def parse_header(data: bytes | memoryview, at: int = 0) -> BlockHeader:
    """Parse the header at `at`; check its fields, but not the checksum.

    Raises CorruptBlock for bytes that cannot be a block, FormatTooNew for a newer format.
    """
    if len(data) - at < HEADER_SIZE_BYTES:
        raise CorruptBlock("a block's header is truncated", have=len(data) - at)
    (
        magic, fmt, flags, codec, reserved, event_count, size, columns_size, payloads_size,
        keys_size, writer_id, first_event_number, base_timestamp_ms, reserved_too, _,
    ) = HEADER.unpack_from(data, at)  # fmt: skip
    if magic != MAGIC:
        raise CorruptBlock("no block starts here", at=at)
    if fmt != FORMAT:
        raise FormatTooNew("a block has an unknown format", found=fmt, supported=FORMAT)
    header = BlockHeader(
        flags, codec, event_count, size, columns_size, payloads_size, keys_size, writer_id,
        first_event_number, base_timestamp_ms,
    )  # fmt: skip
    if codec not in CODECS or flags & ~_FLAGS_KNOWN or reserved or reserved_too:
        raise FormatTooNew(
            "a block uses an unknown codec or flag", found=codec, supported=CODECS[-1]
        )
    if not _sizes_agree(header):
        raise CorruptBlock("a block's sizes contradict each other", at=at)
    return header


def _sizes_agree(header: BlockHeader) -> bool:
    per_event = 4 + 2 * bool(header.flags & FLAG_KEYS) + 8 * bool(header.flags & FLAG_TIMESTAMPS)
    plain_size = HEADER_SIZE_BYTES + header.body_size
    if header.codec == CODEC_NONE:
        stored_right = header.size == plain_size
    else:
        stored_right = (
            HEADER_SIZE_BYTES < header.size < plain_size
            and header.payloads_size <= EVENT_SIZE_BYTES_MAX
        )
    return (
        stored_right
        and _kind_right(header)
        and header.columns_size == per_event * header.event_count
        and plain_size <= BLOCK_SIZE_BYTES_MAX
    )


def _kind_right(header: BlockHeader) -> bool:
    """Whether the sizes and the event count fit the flags."""
    if header.flags & FLAG_PART:
        return (
            header.flags == FLAG_PART
            and (header.event_count, header.keys_size) == (0, 0)
            and 0 < header.payloads_size <= PART_SIZE_BYTES_MAX
        )
    if header.flags & FLAG_TABLE and header.flags != FLAG_TABLE | FLAG_KEYS:
        return False
    if header.flags & FLAG_PARTS_BEFORE and not header.flags & FLAG_LARGE:
        return False
    if header.flags & FLAG_LARGE:
        return (header.event_count, header.payloads_size) == (1, LARGE_REFERENCE_SIZE_BYTES)
    return header.event_count > 0


def verify_block(data: bytes | memoryview, at: int = 0) -> BlockHeader:
    """Check the checksum of the block at `at`; return its header. Raises CorruptBlock."""
    header = parse_header(data, at)
    view = memoryview(data)[at : at + header.size]
    if len(view) != header.size:
        raise CorruptBlock("a block is truncated", at=at, size=header.size, have=len(view))
    (stored,) = struct.unpack_from("<I", view, CRC_AT)
    if crc32c(view[HEADER_SIZE_BYTES:], crc32c(view[:CRC_AT])) != stored:
        raise CorruptBlock("a block's checksum does not match", at=at, size=header.size)
    return header


def block_body(data: bytes | memoryview, header: BlockHeader, at: int = 0) -> bytes | memoryview:
    """Columns, payloads and keys of the verified block at `at`, `header.body_size` bytes.

    A view of `data` if the block is not compressed. Raises CorruptBlock, CodecMissing.
    """
    stored = memoryview(data)[at + HEADER_SIZE_BYTES : at + header.size]
    if header.codec == CODEC_NONE:
        return stored
    return decompress_zstd(stored, header.body_size)


class Block:
    """A verified block whose events are sliced lazily.

    Iterating yields the payloads; `keys` and `timestamps_ms` are parallel to them. A part has none;
    the event of a block with FLAG_LARGE is the reference.

    `open`, or the first access to the events, decompresses a compressed block, so that waiting
    blocks take no more memory than their stored size.
    """

    __slots__ = ("_body", "_data", "_offsets", "header")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.header = verify_block(data, at)
        self._data = memoryview(data)[at : at + self.header.size]
        self._body: bytes | memoryview = b""
        self._offsets: list[int] = []
        if self.header.codec == CODEC_NONE:
            self.open()

    def open(self) -> None:
        """Make the events accessible; repeatable. Raises CorruptBlock, CodecMissing."""
        if self._body:
            return
        header = self.header
        body = block_body(self._data, header)
        if not header.is_part:
            lengths = memoryview(body)[: 4 * header.event_count].cast("I")
            if sum(lengths) != header.payloads_size:
                raise CorruptBlock("a block's lengths do not add up")
        self._body = body

    @property
    def body(self) -> bytes | memoryview:
        """Columns, payloads and keys, as `block_body`. Raises CorruptBlock, CodecMissing."""
        self.open()
        return self._body

    def _bounds(self) -> list[int]:
        """The start of each event in the body, and the end of the last one."""
        self.open()
        if not self._offsets:
            lengths = self._column("I", 0, 4)
            self._offsets = list(accumulate(lengths, initial=self.header.columns_size))
        return self._offsets

    def _column(self, typecode: str, start: int, item_size: int) -> "array[int]":
        column = array(typecode)
        column.frombytes(self._body[start : start + item_size * self.header.event_count])
        return column

    def __len__(self) -> int:
        return self.header.event_count

    def __getitem__(self, index: int) -> bytes:
        bounds = self._bounds()
        return bytes(self._body[bounds[index] : bounds[index + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.events())

    def events(self, start: int = 0) -> list[bytes]:
        """The payloads from `start` on, as bytes objects."""
        bounds = self._bounds()
        data = bytes(self._body)
        return [data[a:b] for a, b in zip(bounds[start:], bounds[start + 1 :], strict=False)]

    def part(self) -> bytes | memoryview:
        """The piece of a large event in a part. Raises CorruptBlock, CodecMissing."""
        assert self.header.is_part
        self.open()
        return self._body

    def reference(self, offset: int) -> LargeReference:
        """The place of the parts, if the block, which has FLAG_LARGE, lies at `offset` of its
        segment. Raises CorruptBlock."""
        assert self.header.is_large
        found = LargeReference.parse(self[0])
        if not self.header.flags & FLAG_PARTS_BEFORE:
            return found
        if found.offset or found.length > offset:
            raise CorruptBlock("the parts of a large event cannot lie before it", at=offset)
        return replace(found, offset=offset - found.length)

    def put_event(self, event: bytes) -> None:
        """Replace the reference in a block with FLAG_LARGE by the event itself.

        The header's `size` stays that of the stored block.
        """
        header, body = self.header, self._body
        assert header.is_large
        keys_at = header.columns_size + header.payloads_size
        length = struct.pack("<I", len(event))
        self._body = b"".join((length, body[4 : header.columns_size], event, body[keys_at:]))
        self._offsets = [header.columns_size, header.columns_size + len(event)]
        flags = header.flags & ~(FLAG_LARGE | FLAG_PARTS_BEFORE)
        self.header = structs.replace(header, flags=flags, payloads_size=len(event))

    def keys(self) -> list[bytes | None]:
        """The routing keys; None for an event without a key. Raises CorruptBlock."""
        if not self.header.flags & FLAG_KEYS:
            return [None] * self.header.event_count
        self.open()
        lengths = self._column("H", 4 * self.header.event_count, 2)
        cursor = self.header.columns_size + self.header.payloads_size
        keys: list[bytes | None] = []
        for length in lengths:
            if length == NO_KEY:
                keys.append(None)
                continue
            keys.append(bytes(self._body[cursor : cursor + length]))
            cursor += length
        if cursor != self.header.body_size:
            raise CorruptBlock("a block's key lengths do not add up")
        return keys

    def timestamps_ms(self) -> list[int]:
        """The event times; without that column, the block's base timestamp for each event."""
        if not self.header.flags & FLAG_TIMESTAMPS:
            return [self.header.base_timestamp_ms] * self.header.event_count
        self.open()
        return list(self._column("q", self.header.columns_size - 8 * self.header.event_count, 8))


def is_part(payload: bytes | memoryview) -> bool:
    """Whether a verified append holds a piece of a large event, and so no event."""
    return (
        len(payload) > HEADER_SIZE_BYTES
        and bool(payload[_FLAGS_AT] & FLAG_PART)
        and payload[:4] == MAGIC
    )


def events_in(payload: bytes | memoryview, count: int) -> int:
    """How many events a reader finds in a verified append of `count` numbered ones: none in a piece
    of a large event, and all entries of a table block, which has one number."""
    flags = payload[_FLAGS_AT] if len(payload) > HEADER_SIZE_BYTES else 0
    if not flags & (FLAG_PART | FLAG_TABLE) or payload[:4] != MAGIC:
        return count
    if flags & FLAG_PART:
        return 0
    return int.from_bytes(payload[_COUNT_AT : _COUNT_AT + 4], "little")


def count_events(data: bytes | memoryview) -> tuple[int, int]:
    """Verify a run of whole blocks; return (blocks, events). Raises CorruptBlock."""
    at = blocks = events = 0
    while at < len(data):
        header = verify_block(data, at)
        at += header.size
        blocks += 1
        events += header.event_count
    return blocks, events
