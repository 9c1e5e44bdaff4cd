"""Checks of a block beyond its checksum, so that readers can read every stored block.

A right checksum shows that a block is as its writer sent it, not that the writer encoded it
correctly. Every reader would refuse a block whose lengths do not add up, so the store refuses it at
the append. `check_contents` finds the faults that `Block` and Spark would refuse:

    plain       lengths and key lengths add up to the header's sizes, keys are UTF-8,
                a reference to a large event agrees with itself
    compressed  the frame's header and the block's header state the same size; the reader finds
                faults inside the frame, because a store never decompresses

The store has no NumPy, and a block holds up to millions of events, so nothing here runs Python code
per event. If all events have one size, as they often do, the check compares the lengths. Otherwise
it sums their bytes with `zlib.adler32`, the only function of the standard library that sums bytes
in C.
"""

import struct
from array import array
from itertools import accumulate
from zlib import adler32

from anabranch.common.errors import CorruptBlock, MalformedBlock
from anabranch.common.wire.block import (
    FLAG_KEYS,
    HEADER_SIZE_BYTES,
    LARGE_REFERENCE_SIZE_BYTES,
    NO_KEY,
    BlockHeader,
    LargeReference,
)
from anabranch.common.wire.codec import CODEC_NONE

_SUMMED_AS_NUMBERS_MAX = 64
"""Up to this number of items, a sum of integers is faster."""
_ADLER_BYTES_MAX = 256
"""This many bytes of 255 add up to less than 65,521, at which `adler32` wraps around."""
_NO_KEY_BYTES = NO_KEY.to_bytes(2, "little")
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_SIZE_BYTES_MAX = 14
"""The size of magic, descriptor, window and content size, without a dictionary."""


def check_contents(header: BlockHeader, block: bytes) -> None:
    """Check that readers can read the content of a verified block.

    Raises MalformedBlock. `block` is the whole stored block.
    """
    if header.codec != CODEC_NONE:
        _check_frame(header, block)
    elif not header.is_part:
        lengths_end = HEADER_SIZE_BYTES + 4 * header.event_count
        if sum_column(block[HEADER_SIZE_BYTES:lengths_end], 4) != header.payloads_size:
            raise MalformedBlock("a block's lengths do not add up", events=header.event_count)
        if header.flags & FLAG_KEYS:
            _check_keys(header, block, lengths_end)
        if header.is_large:
            _check_reference(header, block)


def sum_column(column: bytes, width: int) -> int:
    """The sum of a column of little-endian unsigned numbers of `width` bytes each, 2 or 4."""
    count = len(column) // width
    if column == column[:width] * count:
        return count * int.from_bytes(column[:width], "little")
    if count <= _SUMMED_AS_NUMBERS_MAX:
        return sum(memoryview(column).cast("I" if width == 4 else "H"))
    return sum(_sum_bytes(column[place::width]) << 8 * place for place in range(width))


def _sum_bytes(data: bytes) -> int:
    if data == bytes(len(data)):
        return 0
    starts = range(0, len(data), _ADLER_BYTES_MAX)
    sums = sum([adler32(data[at : at + _ADLER_BYTES_MAX]) & 0xFFFF for at in starts])
    return sums - len(starts)  # Each sum starts at 1.


def _check_keys(header: BlockHeader, block: bytes, at: int) -> None:
    column = block[at : at + 2 * header.event_count]
    size = sum_column(column, 2)
    if _NO_KEY_BYTES in column:  # The match may lie across two sizes.
        size -= NO_KEY * array("H", column).count(NO_KEY)
    if size != header.keys_size:
        raise MalformedBlock("a block's key lengths do not add up", events=header.event_count)
    keys = block[header.size - size :] if size else b""
    if not keys.isascii() and not _each_utf8(keys, array("H", column)):
        raise MalformedBlock("a block's routing keys are not UTF-8", events=header.event_count)


def _each_utf8(keys: bytes, sizes: "array[int]") -> bool:
    """Whether the joined keys are UTF-8, and each begins at a character."""
    try:
        keys.decode()
    except UnicodeDecodeError:
        return False
    starts = accumulate(filter(NO_KEY.__ne__, sizes), initial=0)
    firsts = bytes(map((keys + b"\0").__getitem__, starts))
    return len(firsts.translate(None, _CONTINUATION_BYTES)) == len(firsts)


def _check_reference(header: BlockHeader, block: bytes) -> None:
    at = HEADER_SIZE_BYTES + header.columns_size
    try:
        LargeReference.parse(block[at : at + LARGE_REFERENCE_SIZE_BYTES])
    except CorruptBlock as error:
        raise MalformedBlock(error.message, size=header.payloads_size) from error


def _check_frame(header: BlockHeader, block: bytes) -> None:
    head_end = HEADER_SIZE_BYTES + _ZSTD_HEADER_SIZE_BYTES_MAX
    stated = _stated_size(block[HEADER_SIZE_BYTES:head_end])
    if stated != header.body_size:
        raise MalformedBlock(
            "a compressed block's frame size contradicts its header",
            stated=stated, expected=header.body_size,
        )  # fmt: skip


def _stated_size(head: bytes) -> int | None:
    """The content size that a Zstandard frame states (RFC 8878, 3.1.1.1); None if it states
    none, needs a dictionary, or is not a frame."""
    if not head.startswith(_ZSTD_MAGIC):
        return None
    head = head.ljust(_ZSTD_HEADER_SIZE_BYTES_MAX, b"\0")  # A frame may be shorter.
    descriptor = head[4]
    single_segment, form = descriptor & 0x20, descriptor >> 6
    if descriptor & 0x0B or not (form or single_segment):
        return None
    at = 5 if single_segment else 6
    match form:
        case 0:
            return head[at]
        case 1:
            return int(struct.unpack_from("<H", head, at)[0]) + 256
        case 2:
            return int(struct.unpack_from("<I", head, at)[0])
        case _:
            return int(struct.unpack_from("<Q", head, at)[0])
