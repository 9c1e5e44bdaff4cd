"""The chunk codec: what is written is read, and nothing else passes."""

import pytest

from anabranch.common.errors import CorruptChunk, FormatTooNew
from anabranch.common.tier2 import chunk
from anabranch.common.tier2.chunk import CRC_BLOCK_BYTES, ChunkFooter, Piece, SparseEntry
from anabranch.common.tier2.state import ChunkRef
from kit.golden import assert_golden, read_golden

NAME = "c3/0000000007-0000000012"


def _object(data_a: bytes, data_b: bytes) -> tuple[bytes, ChunkFooter]:
    footer = ChunkFooter(
        name=NAME,
        data_length=len(data_a) + len(data_b),
        pieces=(
            Piece(
                "s/a/0.#epoch.0", 1, 100, 0, len(data_a), chunk.crc_of([data_a]),
                (SparseEntry(3, 1, 1_700_000_000_000), SparseEntry(len(data_a), 2, 1_700_000_005)),
            ),
            Piece(
                "s/a/1.#epoch.0", 2, 0, len(data_a), len(data_b), chunk.crc_of([data_b]),
                (SparseEntry(len(data_b), 4, 1_700_000_000_009),),
            ),
        ),
        block_crcs=chunk.block_crcs_of([data_a, data_b]),
    )  # fmt: skip
    return data_a + data_b + chunk.encode_footer(footer), footer


def test_a_footer_is_read_back_from_the_end_of_its_object() -> None:
    data, footer = _object(b"abcdef", b"0123456789")
    tail = data[-chunk.footer_size(data[-chunk.TRAILER_SIZE_BYTES :], NAME, len(data)) :]
    assert chunk.decode_footer(tail, NAME, len(data)) == footer


def test_the_format_of_a_chunk_is_frozen() -> None:
    data, footer = _object(b"abcdef", b"0123456789")
    assert_golden("chunk_format_1", data)
    frozen = read_golden("chunk_format_1")
    assert chunk.decode_footer(frozen, NAME, len(frozen)) == footer


def test_block_checksums_do_not_depend_on_how_the_bytes_are_parted() -> None:
    data = bytes(range(256)) * 1024
    whole = chunk.block_crcs_of([data])
    parted = chunk.block_crcs_of([data[:1], b"", data[1:70_000], memoryview(data)[70_000:]])
    assert whole == parted
    assert len(whole) == len(data) // CRC_BLOCK_BYTES
    assert whole[1] == chunk.crc_of([data[CRC_BLOCK_BYTES : 2 * CRC_BLOCK_BYTES]])


def test_every_flipped_bit_of_a_footer_is_detected() -> None:
    data, _ = _object(b"abcdef", b"0123456789")
    for position in range(16, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptChunk):
                chunk.decode_footer(bytes(damaged), NAME, len(damaged))


def test_every_flipped_bit_of_the_data_is_detected_by_its_block() -> None:
    data, footer = _object(b"abcdef", b"0123456789")
    for position in range(16):
        for bit in range(8):
            damaged = bytearray(data[:16])
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptChunk):
                chunk.check_blocks(footer, 0, bytes(damaged))
    chunk.check_blocks(footer, 0, data[:16])


def test_every_truncation_of_an_object_is_detected() -> None:
    data, _ = _object(b"abcdef", b"0123456789")
    for size in range(len(data)):
        with pytest.raises(CorruptChunk):
            chunk.decode_footer(data[:size], NAME, size)


def test_bytes_missing_before_the_footer_are_detected() -> None:
    data, _ = _object(b"abcdef", b"0123456789")
    with pytest.raises(CorruptChunk, match="size contradicts"):
        chunk.decode_footer(data[1:], NAME, len(data) - 1)


def test_an_object_under_anothers_name_is_refused() -> None:
    data, _ = _object(b"abcdef", b"0123456789")
    with pytest.raises(CorruptChunk, match="another"):
        chunk.decode_footer(data, "c3/0000000007-0000000013", len(data))


def test_a_newer_format_is_named_as_such_if_its_checksum_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk, "FORMAT", 2)
    data, _ = _object(b"abcdef", b"0123456789")
    monkeypatch.setattr(chunk, "FORMAT", 1)
    with pytest.raises(FormatTooNew):
        chunk.decode_footer(data, NAME, len(data))


def test_a_reference_must_be_a_piece_of_the_chunk_exactly() -> None:
    _, footer = _object(b"abcdef", b"0123456789")
    crc = chunk.crc_of([b"abcdef"])
    chunk.referred_piece(footer, ChunkRef(NAME, 0, 6, crc))
    for wrong in (ChunkRef(NAME, 0, 5, crc), ChunkRef(NAME, 0, 6, crc ^ 1)):
        with pytest.raises(CorruptChunk, match="no such piece"):
            chunk.referred_piece(footer, wrong)


def test_a_range_is_widened_to_whole_blocks_within_the_data() -> None:
    footer = ChunkFooter(NAME, 3 * CRC_BLOCK_BYTES - 1, (), ())
    assert chunk.block_span(footer, 5, 1) == (0, CRC_BLOCK_BYTES)
    assert chunk.block_span(footer, CRC_BLOCK_BYTES - 1, 2) == (0, 2 * CRC_BLOCK_BYTES)
    assert chunk.block_span(footer, 2 * CRC_BLOCK_BYTES, 7) == (
        2 * CRC_BLOCK_BYTES,
        3 * CRC_BLOCK_BYTES - 1,
    )
