"""The binary form of log operations."""

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.attributes import AttributeChange
from anabranch.segstore.domain.container.operations import (
    APPEND_OVERHEAD_SIZE_BYTES,
    AppendOperation,
    AttributesOperation,
    CreateOperation,
    DeleteOperation,
    MergedSource,
    MergeOperation,
    Operation,
    SealOperation,
    TruncateOperation,
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
CHANGES = (
    AttributeChange(bytes(range(16)), None, -(2**63)),
    AttributeChange(b"b" * 16, 2**63 - 1, None),
)
SOURCES = (MergedSource("scope/stream/1.#epoch.0", 3, 40), MergedSource(NAME + "x", 4, 0))
OF_TRANSACTIONS = (
    MergedSource(f"{NAME}#transaction.{'0a' * 16}", 3, 40),
    MergedSource(f"{NAME}#transaction.{'0b' * 16}.{'0c' * 16}", 4, 0),
)
OF_FORMAT_3: list[Operation] = [MergeOperation(NAME, Stamp(1, 7), 1008, 7, 11, OF_TRANSACTIONS)]
OF_FORMAT_2: list[Operation] = [
    TruncateOperation(NAME, Stamp(1, 4), 1004, 4096),
    MergeOperation(NAME, Stamp(1, 5), 1005, 7, 11, SOURCES),
    AttributesOperation(NAME, Stamp(1, 6), 1006, b"c" * 16, 1, CHANGES),
    AppendOperation(7, 51, bytes(range(16)), 4, 3, 1007, crc32c(PAYLOAD), PAYLOAD, CHANGES),
]


def frame(operations: list[Operation] = OPERATIONS) -> bytes:
    parts: list[bytes | memoryview] = []
    for sequence, operation in enumerate(operations, 7):
        parts += encode_operation(sequence, operation)
    return b"".join(parts)


def test_the_form_is_frozen() -> None:
    assert_golden("log_operations", frame())
    assert_golden("log_operations_format_2", frame(OF_FORMAT_2))
    assert_golden("log_operations_format_3", frame(OF_FORMAT_3))


def test_what_is_decoded_is_what_was_encoded() -> None:
    for operations in (OPERATIONS, OF_FORMAT_2, OF_FORMAT_3):
        found = list(decode_operations(frame(operations), 7))
        assert [item.sequence for item in found] == [7, 8, 9, 10][: len(operations)]
        assert [item.operation for item in found] == operations


def test_an_older_release_meets_a_newer_format_and_no_damage() -> None:
    assert {frame([operation])[1] for operation in OPERATIONS} == {1}
    assert {frame([operation])[1] for operation in OF_FORMAT_2} == {2}
    assert {frame([operation])[1] for operation in OF_FORMAT_3} == {3}


def test_a_payload_is_neither_copied_nor_moved() -> None:
    buffers = encode_operation(8, OPERATIONS[1])
    assert buffers[1] is PAYLOAD
    append = list(decode_operations(frame(), 7))[1]
    at = append.at + APPEND_OVERHEAD_SIZE_BYTES
    assert frame()[at : at + len(PAYLOAD)] == PAYLOAD


@pytest.mark.parametrize("operations", [OPERATIONS, OF_FORMAT_2])
def test_a_cut_frame_is_never_mistaken_for_a_whole_one(operations: list[Operation]) -> None:
    for size in range(1, len(frame(operations))):
        try:
            found = list(decode_operations(frame(operations)[:size], 7))
        except CorruptJournal:
            continue
        assert [item.operation for item in found] == operations[: len(found)]
        assert len(found) < len(operations)


@given(st.integers(0, len(frame(OF_FORMAT_2)) - 1), st.integers(0, 255), st.binary(max_size=40))
def test_any_bytes_are_operations_or_damage_by_name(at: int, value: int, tail: bytes) -> None:
    data = bytearray(frame(OF_FORMAT_2))
    data[at] = value
    for changed in (bytes(data), bytes(data[:at]) + tail, tail):
        with suppress(CorruptJournal, FormatTooNew):
            list(decode_operations(changed, 7))


def test_a_changed_payload_a_wrong_sequence_and_an_unknown_kind_are_corruption() -> None:
    changed = bytearray(frame())
    changed[changed.index(PAYLOAD)] ^= 1
    for data, first in ((bytes(changed), 7), (frame(), 8), (b"\x09" + frame()[1:], 7)):
        with pytest.raises(CorruptJournal):
            list(decode_operations(data, first))


def test_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(frame())
    data[1] = 4
    with pytest.raises(FormatTooNew):
        list(decode_operations(bytes(data), 7))
