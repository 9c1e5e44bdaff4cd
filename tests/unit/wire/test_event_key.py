"""The key of one event in an append, as a store samples it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.wire import event_key as module
from anabranch.common.wire.block import FLAG_LARGE, HEADER_SIZE_BYTES, Block, LargeReference
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.common.wire.event_key import EventKey, event_key

WRITER = b"w" * 16
EVENTS = st.lists(
    st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=300)), min_size=1, max_size=20
)


def block(events: list[tuple[bytes, bytes | None]], *, stamped: bool = False) -> bytes:
    return encode_block(
        [event for event, _ in events],
        writer_id=WRITER,
        first_event_number=1,
        base_timestamp_ms=0,
        keys=[key for _, key in events],
        timestamps_ms=[0] * len(events) if stamped else None,
    )


@given(st.lists(EVENTS, min_size=1, max_size=3), st.booleans())
def test_every_event_of_every_block_is_found(
    blocks: list[list[tuple[bytes, bytes | None]]], stamped: bool
) -> None:
    payload = b"".join(block(events, stamped=stamped) for events in blocks)
    found = [event_key(payload, index) for index in range(sum(map(len, blocks)))]
    assert found == [EventKey(key, len(event)) for events in blocks for event, key in events]
    assert event_key(memoryview(payload), 0) == found[0]
    assert event_key(payload, len(found)) is None


def test_the_events_behind_very_many_blocks_are_not_looked_for() -> None:
    one = block([(b"event", b"key")])
    payload = one * (module.BLOCKS_MAX + 1)
    assert event_key(payload, module.BLOCKS_MAX - 1) == EventKey(b"key", 5)
    assert event_key(payload, module.BLOCKS_MAX) is None


def test_the_keys_in_the_middle_of_a_very_long_block_are_not_looked_for() -> None:
    count = 2 * module.LENGTHS_MAX + 10
    payload = block([(b"", b"%d" % number) for number in range(count)])
    first, last = module.LENGTHS_MAX, count - module.LENGTHS_MAX
    assert event_key(payload, first) == EventKey(b"%d" % first, 0)
    assert event_key(payload, last) == EventKey(b"%d" % last, 0)
    assert {event_key(payload, index) for index in range(first + 1, last)} == {None}


def test_parts_are_passed_over_and_the_reference_has_the_size_of_the_event() -> None:
    part = encode_part(b"piece", writer_id=WRITER, number=1, base_timestamp_ms=0)
    reference = encode_block(
        [LargeReference(0, len(part), 123_456, 7).encode()],
        writer_id=WRITER, first_event_number=2, base_timestamp_ms=0, keys=[b"key"],
        flags=FLAG_LARGE,
    )  # fmt: skip
    assert event_key(part + reference, 0) == EventKey(b"key", 123_456)
    assert event_key(part, 0) is None


def test_a_compressed_block_tells_nothing() -> None:
    pytest.importorskip("zstandard")
    payload = encode_block(
        [b"event" * 100] * 10, writer_id=WRITER, first_event_number=1, base_timestamp_ms=0,
        keys=[b"key"] * 10, zstd_level=1,
    )  # fmt: skip
    assert Block(payload).header.codec
    assert event_key(payload, 3) is None


def test_key_lengths_that_do_not_add_up_tell_nothing() -> None:
    """A byte stream may hold what looks like such a block; a store refuses the block itself."""
    payload = bytearray(block([(b"a", b"one"), (b"b", b"two"), (b"c", b"three")]))
    lengths_at = HEADER_SIZE_BYTES + 3 * 4
    struct.pack_into("<HHH", payload, lengths_at, 8000, 3, 9000)
    assert [event_key(bytes(payload), index) for index in range(3)] == [None, None, None]


@given(st.binary(max_size=200), st.integers(0, 5))
def test_bytes_that_are_no_blocks_tell_nothing(payload: bytes, index: int) -> None:
    assert event_key(payload, index) is None


@given(EVENTS, st.data())
def test_damaged_blocks_raise_nothing(
    events: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    payload = bytearray(block(events))
    for at in data.draw(st.lists(st.integers(4, len(payload) - 1), max_size=4)):
        payload[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for index in range(len(events) + 1):
        found = event_key(bytes(payload[:cut]), index)
        assert found is None or found.size >= 0
