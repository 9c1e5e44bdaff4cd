"""The binary form of log operations."""

import pytest
from crc32c import crc32c

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.operations import (
    APPEND_OVERHEAD_SIZE_BYTES,
    AppendOperation,
    CreateOperation,
    DeleteOperation,
    Operation,
    SealOperation,
    decode_operations,
    encode_operation,
)
from kit.golden import assert_golden

NAME = "scope/stream/0.#epoch.0"
PAYLOAD = b"the payload"
OPERATIONS: list[Operation] = [
    CreateOperation(NAME, Stamp(1, 2), 1000),
    AppendOperation(7, 0, bytes(range(16)), 1, 3, 1001, crc32c(PAYLOAD), PAYLOAD),
    SealOperation(NAME, Stamp(1, 3), 1002),
    DeleteOperation(NAME, Stamp(2, 1), 1003),
]


def frame() -> bytes:
    parts: list[bytes | memoryview] = []
    for sequence, operation in enumerate(OPERATIONS, 7):
        parts += encode_operation(sequence, operation)
    return b"".join(parts)


def test_the_form_is_frozen() -> None:
    assert_golden("log_operations", frame())


def test_what_is_decoded_is_what_was_encoded() -> None:
    found = list(decode_operations(frame(), 7))
    assert [item.sequence for item in found] == [7, 8, 9, 10]
    assert [item.operation for item in found] == OPERATIONS


def test_a_payload_is_neither_copied_nor_moved() -> None:
    buffers = encode_operation(8, OPERATIONS[1])
    assert buffers[1] is PAYLOAD
    append = list(decode_operations(frame(), 7))[1]
    at = append.at + APPEND_OVERHEAD_SIZE_BYTES
    assert frame()[at : at + len(PAYLOAD)] == PAYLOAD


@pytest.mark.parametrize("size", range(1, len(frame())))
def test_a_cut_frame_is_never_mistaken_for_a_whole_one(size: int) -> None:
    try:
        found = list(decode_operations(frame()[:size], 7))
    except CorruptJournal:
        return
    assert [item.operation for item in found] == OPERATIONS[: len(found)]
    assert len(found) < len(OPERATIONS)


def test_a_changed_payload_a_wrong_sequence_and_an_unknown_kind_are_corruption() -> None:
    changed = bytearray(frame())
    changed[changed.index(PAYLOAD)] ^= 1
    for data, first in ((bytes(changed), 7), (frame(), 8), (b"\x09" + frame()[1:], 7)):
        with pytest.raises(CorruptJournal):
            list(decode_operations(data, first))


def test_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(frame())
    data[1] = 2
    with pytest.raises(FormatTooNew):
        list(decode_operations(bytes(data), 7))
