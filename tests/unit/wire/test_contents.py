"""What a store accepts is what readers can read."""

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import MalformedBlock
from anabranch.common.wire.block import (
    FLAG_LARGE,
    HEADER,
    HEADER_SIZE_BYTES,
    NO_KEY,
    Block,
    LargeReference,
    parse_header,
    verify_block,
)
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.common.wire.contents import check_contents, sum_column

WRITER = bytes(16)


def encoded(
    events: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    *,
    level: int | None = None,
    flags: int = 0,
) -> bytes:
    return encode_block(
        events, writer_id=WRITER, first_event_number=1, base_timestamp_ms=1, keys=keys,
        zstd_level=level, flags=flags,
    )  # fmt: skip


def forged(block: bytes, at: int, put: bytes) -> bytes:
    """The block with other bytes at a place of its body, and a checksum that is right."""
    data = bytearray(block)
    data[HEADER_SIZE_BYTES + at : HEADER_SIZE_BYTES + at + len(put)] = put
    return sealed(bytes(data))


def sealed(block: bytes) -> bytes:
    head, body = block[: HEADER_SIZE_BYTES - 4], block[HEADER_SIZE_BYTES:]
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


def check(block: bytes) -> None:
    check_contents(verify_block(block), block)


def read_all(block: bytes) -> None:
    """Everything that a reader asks of a block."""
    found = Block(block)
    found.open()
    found.events()
    found.timestamps_ms()
    texts = [None if key is None else key.decode() for key in found.keys()]  # noqa: SIM118
    assert len(texts) == len(found)
    if found.header.is_large:
        LargeReference.parse(found[0])


@given(st.lists(st.integers(0, 2**32 - 1), max_size=700))
def test_a_column_is_summed_up_exactly(values: list[int]) -> None:
    assert sum_column(struct.pack(f"<{len(values)}I", *values), 4) == sum(values)
    narrow = [value & 0xFFFF for value in values]
    assert sum_column(struct.pack(f"<{len(values)}H", *narrow), 2) == sum(narrow)


@pytest.mark.parametrize("value", [0, 100, 255, 65535, 2**32 - 1])
@pytest.mark.parametrize("count", [1, 64, 65, 256, 257, 100_000])
def test_the_largest_columns_are_summed_up_exactly(value: int, count: int) -> None:
    for odd in (value, value ^ 1):
        column = struct.pack("<I", value) * (count - 1) + struct.pack("<I", odd)
        assert sum_column(column, 4) == value * (count - 1) + odd


keys = st.none() | st.text(max_size=4).map(str.encode)
rows = st.lists(st.tuples(st.binary(max_size=300), keys), min_size=1, max_size=80)
writes = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([0, 1, 0x7F, 0x80, 0xC3, 0xFF])), max_size=3
)


@given(rows, writes, st.booleans())
def test_what_is_accepted_is_read_and_what_was_encoded_is_accepted(
    rows: list[tuple[bytes, bytes | None]], changes: list[tuple[int, int]], keyed: bool
) -> None:
    events, keys = [event for event, _ in rows], [key for _, key in rows]
    whole = encoded(events, keys if keyed else None)
    check(whole)
    block = whole
    for at, byte in changes:
        block = forged(block, at % (len(block) - HEADER_SIZE_BYTES), bytes([byte]))
    try:
        check(block)
    except MalformedBlock:
        return
    read_all(block)


def test_lengths_that_do_not_add_up_are_refused_by_name() -> None:
    for block in (encoded([b"x" * 10] * 3), encoded([b"y" * size for size in range(300)])):
        with pytest.raises(MalformedBlock, match="lengths do not add up"):
            check(forged(block, 0, b"\x0b\0\0\0"))


def test_lengths_whose_sum_only_looks_right_in_32_bits_are_refused() -> None:
    block = encoded([b"x" * 8] * 2)
    with pytest.raises(MalformedBlock):
        check(forged(block, 0, struct.pack("<II", 2**32 - 1, 17)))


def test_key_lengths_that_do_not_add_up_are_refused_by_name() -> None:
    for keys in ([b"aa", b"bb"], [b"aa", None]):
        block = encoded([b"x"] * 2, keys)
        with pytest.raises(MalformedBlock, match="key lengths"):
            check(forged(block, 8, b"\x01\0"))


def test_an_event_without_a_key_counts_nothing_for_the_size_of_the_keys() -> None:
    block = encoded([b"x"] * 9, [b"k" * 8000] * 8 + [b"k" * 1535])
    assert parse_header(block).keys_size == NO_KEY
    with pytest.raises(MalformedBlock, match="key lengths"):
        check(forged(block, 4 * 9, struct.pack("<9H", NO_KEY, *[0] * 8)))


def test_keys_that_are_no_text_are_refused_by_name() -> None:
    good = encoded([b"x"] * 3, ["é".encode(), b"", "ü".encode()])
    check(good)
    keys_at = parse_header(good).columns_size + 3
    with pytest.raises(MalformedBlock, match="UTF-8"):
        check(forged(good, keys_at, b"\xff"))
    # characters that are cut in two by the lengths
    with pytest.raises(MalformedBlock, match="UTF-8"):
        check(forged(good, 12, struct.pack("<3H", 1, 1, 2)))
    check(forged(good, 12, struct.pack("<3H", NO_KEY, 4, 0)))


def test_a_reference_that_contradicts_itself_is_refused_by_name() -> None:
    reference = LargeReference(0, 100, 90, 7)
    good = encoded([reference.encode()], flags=FLAG_LARGE)
    check(good)
    with pytest.raises(MalformedBlock, match="contradicts itself"):
        check(encoded([LargeReference(0, 0, 90, 7).encode()], flags=FLAG_LARGE))
    with pytest.raises(MalformedBlock, match="lengths"):
        check(forged(good, 0, b"\x1d\0\0\0"))


def test_parts_and_blocks_of_every_compressed_size_are_accepted() -> None:
    check(encode_part(b"piece", writer_id=WRITER, number=1, base_timestamp_ms=1))
    for size in (60, 200, 255, 256, 300, 65_791, 65_792, 70_000, 3_000_000):
        for level in (1, 19):
            block = encoded([b"a" * size], level=level)
            assert parse_header(block).codec
            check(block)


def test_a_compressed_block_that_states_another_size_is_refused_by_name() -> None:
    block = encoded([b"a" * 1000] * 3, level=1)
    fields = list(HEADER.unpack_from(block))
    fields[8] += 1
    forged_size = sealed(HEADER.pack(*fields) + block[HEADER_SIZE_BYTES:])
    for wrong in (forged_size, forged(block, 0, b"\0"), forged(block, 4, b"\x03")):
        with pytest.raises(MalformedBlock, match="size contradicts"):
            check(wrong)
