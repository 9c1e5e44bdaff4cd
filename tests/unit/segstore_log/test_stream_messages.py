"""The messages of a log in a stream: frozen bytes, and damage that is never read."""

from collections.abc import Sequence

import pytest

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.log.stream.messages import (
    HEADER_SIZE_BYTES,
    PIECES_MAX,
    FrameFields,
    Kind,
    Link,
    Opening,
    decode_message,
    decode_opening,
    encode_opening,
    encode_parts,
    log_seed,
)
from kit.golden import assert_golden

SEED = log_seed("log-1")
FIELDS = FrameFields(container=3, container_epoch=7, first_sequence=1000, count=4)
OPENING = Opening(Link(6, 41, 0xCAFEBABE, 999), 1_700_000_000_000_000_000, bytes(range(16)))


def parts(payload: bytes, size_max: int = 100) -> list[bytes]:
    return encoded([payload[:5], memoryview(payload)[5:]], size_max)


def test_the_bytes_of_messages_never_change() -> None:
    assert_golden("log_stream_opening", encode_opening(3, 7, OPENING, SEED)[0])
    assert_golden("log_stream_frame", parts(b"operations")[0])


def test_an_opening_is_read_as_it_was_written() -> None:
    data, crc = encode_opening(3, 7, OPENING, SEED)
    message, payload = decode_message(data, SEED, 1)
    assert (message.kind, message.container, message.container_epoch) == (Kind.OPENING, 3, 7)
    assert (message.number, message.crc) == (0, crc)
    assert decode_opening(payload) == OPENING


def test_a_large_frame_is_divided_into_a_chain_of_parts() -> None:
    body = bytes(range(250))
    found = [decode_message(data, SEED, 1) for data in parts(body)]
    assert b"".join(payload for _, payload in found) == body
    messages = [message for message, _ in found]
    assert [message.number for message in messages] == [12, 13, 14]
    assert [message.part_index for message in messages] == [0, 1, 2]
    assert {message.part_count for message in messages} == {3}
    assert [message.previous_crc for message in messages] == [
        0xBEEF, messages[0].crc, messages[1].crc,
    ]  # fmt: skip
    assert {(m.first_sequence, m.last_sequence, m.confirmed) for m in messages} == {(1000, 1003, 9)}


def test_an_empty_frame_is_one_message() -> None:
    (data,) = parts(b"")
    message, payload = decode_message(data, SEED, 1)
    assert (message.part_count, bytes(payload)) == (1, b"")


@pytest.mark.parametrize("at", range(HEADER_SIZE_BYTES + 10))
def test_a_flipped_bit_is_found(at: int) -> None:
    data = bytearray(parts(b"operations")[0])
    data[at] ^= 4
    with pytest.raises((CorruptJournal, FormatTooNew)):
        decode_message(bytes(data), SEED, 1)


def test_a_message_of_another_log_is_not_read() -> None:
    with pytest.raises(CorruptJournal):
        decode_message(parts(b"operations")[0], log_seed("log-2"), 1)


@pytest.mark.parametrize("size", [0, 3, HEADER_SIZE_BYTES - 1, HEADER_SIZE_BYTES + 3])
def test_a_message_that_was_cut_short_is_not_read(size: int) -> None:
    with pytest.raises(CorruptJournal):
        decode_message(parts(b"operations")[0][:size], SEED, 1)


def test_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(parts(b"operations")[0])
    data[4] = 2
    with pytest.raises(FormatTooNew):
        decode_message(bytes(data), SEED, 1)


def encoded(payload: Sequence[Buffer], size_max: int) -> list[bytes]:
    link = Link(7, 11, 0xBEEF)
    messages = encode_parts(
        FIELDS, payload, part_size_max=size_max, link=link, confirmed=9, seed=SEED
    )
    return [data for data, _ in messages]


@pytest.mark.parametrize("count", [1, PIECES_MAX, PIECES_MAX + 1])
@pytest.mark.parametrize("size_max", [50, 1000])
def test_a_frame_is_the_same_whether_its_payload_comes_in_one_piece_or_in_many(
    count: int, size_max: int
) -> None:
    pieces = [b"%03d" % number for number in range(count)]
    assert encoded(pieces, size_max) == encoded([b"".join(pieces)], size_max)
    found = [decode_message(data, SEED, 1)[1] for data in encoded(pieces, size_max)]
    assert b"".join(found) == b"".join(pieces)


def test_a_frame_without_payload_is_one_message() -> None:
    for count in (0, 1, PIECES_MAX + 1):
        assert len(encoded([b""] * count, 50)) == 1
