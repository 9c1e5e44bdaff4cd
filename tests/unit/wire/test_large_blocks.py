"""Blocks of large events: parts, which hold no event, and the reference to them."""

import pytest

from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.wire import block
from anabranch.common.wire.block import (
    FLAG_LARGE,
    HEADER,
    Block,
    LargeReference,
    count_events,
    is_part,
    parse_header,
    verify_block,
)
from anabranch.common.wire.block_encoding import encode_block, encode_part
from kit.golden import assert_golden

WRITER = bytes(range(16))
REFERENCE = LargeReference(offset=4096, length=9_000_138, size=9_000_002, crc=0x01020304)


def a_part(piece: bytes = b"a piece", number: int = 2, zstd_level: int | None = None) -> bytes:
    return encode_part(
        piece, writer_id=WRITER, number=number, base_timestamp_ms=5, zstd_level=zstd_level
    )


def a_large_event(payload: bytes) -> bytes:
    return encode_block(
        [payload], writer_id=WRITER, first_event_number=7, base_timestamp_ms=5, keys=[b"k"],
        flags=FLAG_LARGE,
    )  # fmt: skip


def changed(data: bytes, **fields: int) -> bytes:
    """The block with header fields changed: flags, event_count, size, columns_size, payloads_size,
    keys_size."""
    names = ("magic", "format", "flags", "codec", "reserved", "event_count", "size",
             "columns_size", "payloads_size", "keys_size")  # fmt: skip
    values = list(HEADER.unpack_from(data))
    for name, value in fields.items():
        values[names.index(name)] = value
    return HEADER.pack(*values) + data[HEADER.size :]


def test_the_format_is_frozen() -> None:
    assert_golden("block_part", a_part())
    assert_golden("block_large", a_large_event(REFERENCE.encode()))


@pytest.mark.parametrize("zstd_level", [None, 3])
def test_a_part_holds_a_piece_and_no_event(zstd_level: int | None) -> None:
    data = a_part(b"x" * 1000, zstd_level=zstd_level)
    found = Block(data)
    assert found.header.is_part
    assert bytes(found.part()) == b"x" * 1000
    assert (len(found), found.events(), found.keys(), found.timestamps_ms()) == (0, [], [], [])
    assert found.header.first_event_number == 2
    assert count_events(data + a_large_event(REFERENCE.encode())) == (2, 1)


def test_a_reference_is_the_event_of_its_block() -> None:
    found = Block(a_large_event(REFERENCE.encode()))
    assert found.header.is_large
    assert found.keys() == [b"k"]
    assert LargeReference.parse(found[0]) == REFERENCE


def test_a_part_is_told_from_what_only_looks_like_one() -> None:
    assert is_part(a_part())
    assert is_part(memoryview(a_part()))
    assert not is_part(a_large_event(REFERENCE.encode()))
    assert not is_part(b"\xff" * 100)
    assert not is_part(b"short")


@pytest.mark.parametrize(
    "wrong",
    [
        changed(a_part(), event_count=1),
        changed(a_part(), flags=block.FLAG_PART | FLAG_LARGE),
        changed(a_part(), flags=block.FLAG_PART | block.FLAG_TIMESTAMPS),
        changed(a_part(), keys_size=1, payloads_size=6),
        changed(a_part(), payloads_size=0, size=HEADER.size),
        changed(a_part(), flags=0),
        a_large_event(REFERENCE.encode() + b"x"),
    ],
)
def test_blocks_that_are_neither_are_refused(wrong: bytes) -> None:
    with pytest.raises(CorruptBlock):
        parse_header(wrong)


@pytest.mark.parametrize(
    "payload",
    [
        b"short",
        LargeReference(0, 1, 0, 0).encode(),
        LargeReference(0, 0, 1, 0).encode(),
        LargeReference(0, 1, block.LARGE_EVENT_SIZE_BYTES_MAX + 1, 0).encode(),
    ],
)
def test_a_reference_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(CorruptBlock):
        LargeReference.parse(payload)


def test_every_flipped_bit_of_a_part_is_found() -> None:
    data = a_part()
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises((CorruptBlock, FormatTooNew)):
            verify_block(bytes(damaged))
