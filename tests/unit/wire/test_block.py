"""The block codec: what goes in comes out, and damage never does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import CorruptBlock, EventTooLarge, FormatTooNew, InvalidRequest
from anabranch.common.wire import block
from anabranch.common.wire.block import Block, count_events, verify_block
from anabranch.common.wire.block_encoding import encode_block
from kit.golden import assert_golden, read_golden

WRITER = bytes(range(16))


def make_block(events: list[bytes], **columns: object) -> bytes:
    return encode_block(
        events,
        writer_id=WRITER,
        first_event_number=7,
        base_timestamp_ms=1_700_000_000_000,
        **columns,  # type: ignore[arg-type]
    )


KEYED = make_block(
    [b"first", b"", b"third event"],
    keys=[b"a", None, b""],
    timestamps_ms=[1, -2, 1_700_000_000_123],
)


def test_the_format_is_frozen() -> None:
    assert_golden("block_keys_timestamps", KEYED)
    assert_golden("block_plain", make_block([b"x", b"yy"]))


def test_a_frozen_block_decodes_to_what_was_written() -> None:
    decoded = Block(read_golden("block_keys_timestamps"))
    assert decoded.events() == [b"first", b"", b"third event"]
    assert decoded.keys() == [b"a", None, b""]
    assert decoded.timestamps_ms() == [1, -2, 1_700_000_000_123]
    assert decoded.header.writer_id == WRITER
    assert decoded.header.first_event_number == 7


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.none() | st.binary(max_size=10),
            st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_events_keys_and_times_survive_a_round_trip(
    rows: list[tuple[bytes, bytes | None, int]],
) -> None:
    events, keys, times = (list(column) for column in zip(*rows, strict=True))
    decoded = Block(make_block(events, keys=keys, timestamps_ms=times))
    assert list(decoded) == events
    assert [decoded[index] for index in range(len(decoded))] == events
    assert decoded.keys() == keys
    assert decoded.timestamps_ms() == times
    assert decoded.events(len(events) - 1) == events[-1:]


def test_every_flipped_bit_is_detected() -> None:
    for position in range(len(KEYED) * 8):
        damaged = bytearray(KEYED)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises((CorruptBlock, FormatTooNew)):
            verify_block(bytes(damaged))


def test_every_truncation_is_detected() -> None:
    for size in range(len(KEYED)):
        with pytest.raises(CorruptBlock):
            verify_block(KEYED[:size])


def test_a_newer_format_is_refused_by_name() -> None:
    newer = bytearray(KEYED)
    newer[4] = block.FORMAT + 1
    with pytest.raises(FormatTooNew):
        verify_block(bytes(newer))


def test_missing_columns_have_stated_defaults() -> None:
    plain = Block(make_block([b"x", b"yy"]))
    assert plain.keys() == [None, None]
    assert plain.timestamps_ms() == [1_700_000_000_000] * 2


def test_blocks_one_after_another_are_counted() -> None:
    run = KEYED + make_block([b"x", b"yy"])
    assert count_events(run) == (2, 5)
    with pytest.raises(CorruptBlock):
        count_events(run[:-1])


def test_a_block_may_start_anywhere_in_a_buffer() -> None:
    assert list(Block(memoryview(b"??" + KEYED + b"??"), at=2)) == list(Block(KEYED))


def test_an_oversize_event_is_refused() -> None:
    with pytest.raises(EventTooLarge):
        make_block([bytes(block.EVENT_SIZE_BYTES_MAX + 1)])


def test_an_oversize_block_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        make_block([bytes(block.EVENT_SIZE_BYTES_MAX)] * 2)


def test_an_oversize_key_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        make_block([b"x"], keys=[bytes(block.KEY_SIZE_BYTES_MAX + 1)])


def test_an_empty_block_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        make_block([])
