"""File header and frame: frozen bytes, and nothing damaged is accepted."""

import pytest

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    NO_FILE,
    FileEnd,
    FileHeader,
    FrameContent,
    encode_file_header,
    encode_frame_header,
    epoch_of,
    file_id_of,
    frame_seed,
    number_of,
    parse_file_header,
    parse_frame,
)
from kit.golden import assert_golden

JOURNAL_ID = "00112233445566778899aabbccddeeff"
FILE_ID = file_id_of(3, 7)
HEADER = FileHeader(JOURNAL_ID, FILE_ID, 65536, FileEnd(file_id_of(3, 6), 4711, 0xDEADBEEF))
SEED = frame_seed(FILE_ID)


def frame_bytes(payload: bytes = b"operations", seed: int = SEED) -> bytes:
    content = FrameContent(2, 5, 1000, 3, [payload[:4], payload[4:]], len(payload))
    head, _ = encode_frame_header(content, 128, 0xCAFEBABE, seed)
    return head + payload


def test_a_file_id_holds_epoch_and_number() -> None:
    assert (epoch_of(FILE_ID), number_of(FILE_ID)) == (3, 7)
    assert file_id_of(4, 1) > file_id_of(3, 2**32 - 1)


def test_the_file_header_is_frozen() -> None:
    assert_golden("journal_file_header", encode_file_header(HEADER))


def test_the_frame_is_frozen() -> None:
    assert_golden("journal_frame", frame_bytes())


def test_a_file_header_survives_the_round_trip() -> None:
    data = encode_file_header(HEADER)
    assert len(data) == FILE_HEADER_SIZE_BYTES
    assert parse_file_header(data, "x") == HEADER


def test_every_flipped_bit_of_a_file_header_is_detected() -> None:
    data = encode_file_header(HEADER)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptJournal):
            parse_file_header(flipped, "x")


def test_a_file_of_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(encode_file_header(HEADER))
    data[4] = 2
    data[-1] ^= 1  # its checksum is over other fields
    with pytest.raises(FormatTooNew) as refusal:
        parse_file_header(data, "x")
    assert refusal.value.fields == {"found": 2, "supported": 1}


def test_a_cut_file_header_is_damage() -> None:
    with pytest.raises(CorruptJournal):
        parse_file_header(encode_file_header(HEADER)[:-1], "x")


def test_a_header_that_names_a_later_file_as_previous_is_damage() -> None:
    header = FileHeader(JOURNAL_ID, FILE_ID, 0, FileEnd(FILE_ID, 512, 0))
    with pytest.raises(CorruptJournal):
        parse_file_header(encode_file_header(header), "x")


def test_a_frame_survives_the_round_trip_anywhere_in_a_file() -> None:
    data = b"\0" * 100 + frame_bytes()
    frame = parse_frame(data, 100, len(data), SEED)
    assert frame is not None
    assert (frame.container, frame.container_epoch) == (2, 5)
    assert (frame.first_sequence, frame.last_sequence, frame.count) == (1000, 1002, 3)
    assert (frame.payload_size, frame.distance, frame.previous_crc) == (10, 128, 0xCAFEBABE)
    assert frame.end == len(data)


def test_every_flipped_bit_of_a_frame_is_detected() -> None:
    data = frame_bytes()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert parse_frame(flipped, 0, len(data), SEED) is None


def test_every_cut_of_a_frame_is_detected() -> None:
    data = frame_bytes()
    for size in range(len(data)):
        assert parse_frame(data[:size], 0, size, SEED) is None


def test_a_frame_of_another_file_or_epoch_is_not_a_frame_here() -> None:
    data = frame_bytes()
    assert parse_frame(data, 0, len(data), frame_seed(file_id_of(3, 8))) is None
    assert parse_frame(data, 0, len(data), frame_seed(file_id_of(4, 7))) is None


def test_zeros_are_no_frame() -> None:
    assert parse_frame(bytes(4096), 0, 4096, SEED) is None


def test_the_first_file_names_no_predecessor() -> None:
    header = FileHeader(JOURNAL_ID, file_id_of(1, 1), 512, NO_FILE)
    assert parse_file_header(encode_file_header(header), "x") == header
