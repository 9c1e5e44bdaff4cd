"""The binary form of log operations."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.attributes import AttributeChange
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    APPEND_OVERHEAD_SIZE_BYTES,
    HEADER_SIZE_BYTES,
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
from kit.golden import assert_golden, read_golden

NAME = "scope/stream/0.#epoch.0"
PAYLOAD = b"the payload"
OPERATIONS: list[Operation] = [
    CreateOperation(NAME, Stamp(1, 2), 1000),
    AppendOperation(7, 0, bytes(range(16)), 1, 3, 1001, crc32c(PAYLOAD), PAYLOAD, 3),
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
OF_FORMAT_3: list[Operation] = [
    MergeOperation(NAME, Stamp(1, 7), 1008, 7, 11, OF_TRANSACTIONS, commits=True)
]
KINDS = {
    NAME: SegmentKind.STREAM,
    f"{NAME}#transaction.{'0a' * 16}.{'0c' * 16}": SegmentKind.TRANSACTION,
    f"{NAME}#transient.{'0b' * 16}": SegmentKind.TRANSIENT,
}
OF_FORMAT_4: list[Operation] = [
    CreateOperation(name, Stamp(1, 2), 1000, kind) for name, kind in KINDS.items()
]
OF_FORMAT_5: list[Operation] = [
    TruncateOperation(NAME, Stamp(1, 4), 1004, 4096, 2**40),
    TruncateOperation(NAME, Stamp(1, 5), 1005, 8192, 0),
]
OF_FORMAT_2: list[Operation] = [
    TruncateOperation(NAME, Stamp(1, 4), 1004, 4096),
    MergeOperation(NAME, Stamp(1, 5), 1005, 7, 11, SOURCES),
    AttributesOperation(NAME, Stamp(1, 6), 1006, b"c" * 16, 1, CHANGES),
    AppendOperation(7, 51, bytes(range(16)), 4, 3, 1007, crc32c(PAYLOAD), PAYLOAD, 3, CHANGES),
]


def frame(operations: list[Operation] = OPERATIONS, first: int = 7) -> bytes:
    parts: list[bytes | memoryview] = []
    for sequence, operation in enumerate(operations, first):
        parts += encode_operation(sequence, operation)
    return b"".join(parts)


def test_the_form_is_frozen() -> None:
    assert read_golden("log_operations").endswith(frame(OPERATIONS[1:], 8))
    assert_golden("log_operations_format_2", frame(OF_FORMAT_2))
    assert_golden("log_operations_format_3", frame(OF_FORMAT_3))
    assert_golden("log_operations_format_4", frame(OF_FORMAT_4))
    assert_golden("log_operations_format_5", frame(OF_FORMAT_5))


def test_a_create_without_a_kind_has_the_one_that_its_name_says() -> None:
    for golden, operations in {
        "log_operations": OPERATIONS,
        "log_operations_before_kinds": OF_FORMAT_4,
    }.items():
        found = decode_operations(read_golden(golden), 7)
        assert [item.operation for item in found] == operations


def test_a_log_without_kinds_is_replayed() -> None:
    state = SegmentMap(6)
    for found in decode_operations(read_golden("log_operations_before_kinds"), 7):
        state.apply(found.sequence, found.operation)
    states = [known for known in state.segments.values() if isinstance(known, SegmentState)]
    assert {known.name: known.kind for known in states} == KINDS
    assert state.transients == {
        name for name, kind in KINDS.items() if kind is SegmentKind.TRANSIENT
    }


def test_the_kind_that_is_stored_counts_and_not_the_name() -> None:
    stored = CreateOperation(NAME, Stamp(1, 2), 1000, SegmentKind.TRANSIENT)
    (found,) = decode_operations(frame([stored]), 7)
    assert found.operation == stored


@pytest.mark.parametrize("damage", [lambda data: data + b"\0", lambda data: data[:-1] + b"\x09"])
def test_a_create_with_no_kind_or_two_is_corruption(damage: Callable[[bytes], bytes]) -> None:
    data = bytearray(damage(frame(OF_FORMAT_4[:1])))
    data[4:8] = struct.pack("<I", len(data) - HEADER_SIZE_BYTES)
    with pytest.raises(CorruptJournal):
        list(decode_operations(bytes(data), 7))


def test_what_is_decoded_is_what_was_encoded() -> None:
    for operations in (OPERATIONS, OF_FORMAT_2, OF_FORMAT_3, OF_FORMAT_4, OF_FORMAT_5):
        found = list(decode_operations(frame(operations), 7))
        assert [item.sequence for item in found] == [7, 8, 9, 10][: len(operations)]
        assert [item.operation for item in found] == operations


def test_an_older_release_meets_a_newer_format_and_no_damage() -> None:
    assert {frame([operation])[1] for operation in OPERATIONS[1:]} == {1}
    assert {frame([operation])[1] for operation in OF_FORMAT_2} == {2}
    assert {frame([operation])[1] for operation in OF_FORMAT_3} == {3}
    assert {frame([operation])[1] for operation in OF_FORMAT_4} == {4}
    assert {frame([operation])[1] for operation in OF_FORMAT_5} == {5}


def test_a_payload_is_neither_copied_nor_moved() -> None:
    buffers = encode_operation(8, OPERATIONS[1])
    assert buffers[1] is PAYLOAD
    append = list(decode_operations(frame(), 7))[1]
    at = append.at + APPEND_OVERHEAD_SIZE_BYTES
    assert frame()[at : at + len(PAYLOAD)] == PAYLOAD


@pytest.mark.parametrize("operations", [OPERATIONS, OF_FORMAT_2, OF_FORMAT_4, OF_FORMAT_5])
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
    data[1] = 6
    with pytest.raises(FormatTooNew):
        list(decode_operations(bytes(data), 7))
