"""The stored form of a domain-event message: frozen, and damage is noticed."""

from pathlib import Path

import pytest

from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.message import (
    HEADER_CRC,
    KIND_DAMAGED,
    check_chain,
    decode_message,
    decode_or_mark_damaged,
    encode_headers,
)
from anabranch.common.eventsourcing.ports import EventMessage, NewMessage

GOLDEN = Path(__file__).parent / "golden" / "message.txt"
SUBJECT = "ana.evt.11.stream.scope.a=b"
MESSAGE = NewMessage(
    revision=3,
    append_id="00112233445566778899aabbccddeeff",
    kind="events",
    schema_number=1,
    snapshot_sequence=17,
    body=b'[{"kind":"stream_created","schema_number":1}]',
)


def test_the_format_is_the_golden_one() -> None:
    headers = encode_headers(SUBJECT, MESSAGE)
    lines = [SUBJECT, *(f"{name}: {value}" for name, value in headers.items())]

    assert "\n".join([*lines, "", MESSAGE.body.decode(), ""]) == GOLDEN.read_text()


def test_the_golden_message_is_still_understood() -> None:
    head, body, _ = GOLDEN.read_text().replace("\n\n", "\0").replace("}]\n", "}]\0").split("\0")
    subject, *lines = head.splitlines()
    headers = dict(line.split(": ") for line in lines)

    decoded = decode_message(subject, 42, headers, body.encode())

    assert (decoded.revision, decoded.append_id) == (MESSAGE.revision, MESSAGE.append_id)
    assert (decoded.sequence, decoded.snapshot_sequence) == (42, 17)
    assert decoded.body == MESSAGE.body


@pytest.mark.parametrize("index", range(len(MESSAGE.body)))
def test_a_changed_byte_of_the_body_is_noticed(index: int) -> None:
    headers = encode_headers(SUBJECT, MESSAGE)
    body = bytearray(MESSAGE.body)
    body[index] ^= 1

    with pytest.raises(CorruptEvent):
        decode_message(SUBJECT, 1, headers, bytes(body))


@pytest.mark.parametrize(
    "header", ["Ana-Revision", "Ana-Kind", "Ana-Schema", "Ana-Snapshot", "Ana-Crc"]
)
@pytest.mark.parametrize("value", ["9", "", "events "])
def test_a_changed_header_is_noticed(header: str, value: str) -> None:
    headers = {**encode_headers(SUBJECT, MESSAGE), header: value}

    with pytest.raises(CorruptEvent):
        decode_message(SUBJECT, 1, headers, MESSAGE.body)


def test_a_message_on_another_subject_is_noticed() -> None:
    with pytest.raises(CorruptEvent):
        decode_message(SUBJECT + "x", 1, encode_headers(SUBJECT, MESSAGE), MESSAGE.body)


def test_a_missing_header_is_noticed() -> None:
    headers = encode_headers(SUBJECT, MESSAGE)
    del headers[HEADER_CRC]

    with pytest.raises(CorruptEvent):
        decode_message(SUBJECT, 1, headers, MESSAGE.body)


def test_a_follower_gets_damage_as_a_mark_on_the_subject() -> None:
    marked = decode_or_mark_damaged(SUBJECT, 5, encode_headers(SUBJECT, MESSAGE), b"other")

    assert (marked.subject, marked.sequence, marked.kind) == (SUBJECT, 5, KIND_DAMAGED)


def test_a_load_of_later_messages_may_begin_anywhere() -> None:
    later = [EventMessage(SUBJECT, 9, 4, "a", "events", 1, 0, b"")]

    check_chain(later, from_start=False)
    with pytest.raises(CorruptEvent):
        check_chain(later, from_start=True)
