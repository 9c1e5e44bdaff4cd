"""The pure state of what is yet to be acknowledged on one segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, Batch, Numbering
from anabranch.client.writing.outbox import Outbox, rest_after
from anabranch.client.writing.pacing import BlockSizing, InFlight
from anabranch.common.errors import WriterExpired
from anabranch.common.wire.block import Block

WRITER_ID = bytes(16)


def an_outbox(
    in_flight_max: int = 8, in_flight_bytes: InFlight | None = None, zstd_level: int | None = None
) -> Outbox:
    return Outbox(
        WRITER_ID,
        in_flight_max,
        zstd_level,
        in_flight_bytes=in_flight_bytes or InFlight(1 << 20),
        sizing=BlockSizing(1 << 18, 1 << 20),
    )


def add(outbox: Outbox, *events: bytes, key: bytes | None = None) -> None:
    for event in events:
        batch = outbox.gathering
        batch.events.append(event)
        batch.cost += len(event) + EVENT_OVERHEAD_BYTES
        if key is not None:
            batch.pad_keys()
            batch.keys[-1] = key
            batch.cost += len(key)


def outbox_with(*events: bytes, in_flight_max: int = 8) -> Outbox:
    outbox = an_outbox(in_flight_max)
    add(outbox, *events)
    return outbox


def test_events_written_during_a_round_trip_travel_together() -> None:
    outbox = outbox_with(b"a")
    first = outbox.take_block(0)
    add(outbox, b"b", b"c")
    assert first is not None
    assert outbox.take_block(0) is None
    outbox.acknowledge(1)
    second = outbox.take_block(0)
    assert second is not None
    assert (second.first, second.count) == (2, 2)


def test_events_only_gather_from_a_sent_block_to_a_full_one_or_the_last_acknowledgement() -> None:
    outbox = outbox_with(b"a")
    assert not outbox.is_gathering, "the first block may leave"
    outbox.take_block(0)
    add(outbox, b"b")
    assert outbox.is_gathering
    outbox.close_batch()
    assert not outbox.is_gathering, "a full block may leave"
    outbox.take_block(0)
    add(outbox, b"c")
    outbox.acknowledge(1)
    assert outbox.is_gathering
    outbox.acknowledge(2)
    assert not outbox.is_gathering


def test_full_batches_are_pipelined_up_to_the_limit() -> None:
    outbox = an_outbox(2)
    for event in (b"a", b"b", b"c"):
        add(outbox, event)
        outbox.close_batch()
    assert outbox.take_block(0) is not None
    assert outbox.take_block(0) is not None
    assert outbox.take_block(0) is None
    assert outbox.unacknowledged == 3


def test_an_acknowledgement_covers_everything_before_it() -> None:
    outbox = an_outbox(8)
    for event in (b"a", b"b", b"c"):
        add(outbox, event)
        outbox.close_batch()
        outbox.take_block(0)
    assert outbox.acknowledge(2) == 2 * (1 + EVENT_OVERHEAD_BYTES)
    assert [block.first for block in outbox.in_flight] == [3]


def test_an_older_acknowledgement_changes_nothing() -> None:
    outbox = outbox_with(b"a", b"b")
    outbox.take_block(0)
    outbox.acknowledge(2)
    assert outbox.acknowledge(1) == 0
    assert outbox.acknowledged == 2


def test_a_straddling_block_is_rebuilt_behind_what_the_store_holds() -> None:
    outbox = an_outbox(8)
    add(outbox, b"one", b"two")
    add(outbox, b"three", key=b"k")
    outbox.take_block(7)
    released = outbox.resume(1)
    (rest,) = outbox.in_flight
    block = Block(rest.data)
    assert released == 3 + EVENT_OVERHEAD_BYTES
    assert (rest.first, rest.count, block.header.first_event_number) == (2, 2, 2)
    assert list(block) == [b"two", b"three"]
    assert block.keys() == [None, b"k"]
    assert outbox.resume(3) == rest.cost


def test_a_compressed_block_that_straddles_is_rebuilt_compressed() -> None:
    outbox = an_outbox(zstd_level=1)
    add(outbox, b"a" * 500, b"b" * 500, b"c" * 500)
    sent = outbox.take_block(7)
    assert sent is not None
    assert len(sent.data) < 500
    outbox.resume(1)
    (rest,) = outbox.in_flight
    assert len(rest.data) < 500
    assert list(Block(rest.data)) == [b"b" * 500, b"c" * 500]
    assert list(outbox.unacknowledged_events()) == [b"b" * 500, b"c" * 500]


def test_a_store_that_forgot_what_it_acknowledged_is_an_error() -> None:
    outbox = outbox_with(b"a", b"b")
    outbox.take_block(0)
    outbox.acknowledge(2)
    with pytest.raises(WriterExpired):
        outbox.resume(1)


def test_an_acknowledgement_of_what_was_never_sent_is_an_error() -> None:
    outbox = outbox_with(b"a")
    with pytest.raises(WriterExpired):
        outbox.acknowledge(1)


def test_missing_timestamps_become_the_time_of_sending() -> None:
    batch = Batch([b"a", b"b", b"c"], timestamps_ms=[None, 5])
    assert Block(batch.encode(Numbering(WRITER_ID, 1, 99))).timestamps_ms() == [99, 5, 99]


def test_unacknowledged_events_are_listed_in_order() -> None:
    outbox = outbox_with(b"a")
    outbox.take_block(0)
    add(outbox, b"b")
    outbox.close_batch()
    add(outbox, b"c")
    assert list(outbox.unacknowledged_events()) == [b"a", b"b", b"c"]


@given(
    events=st.lists(
        st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=4)), min_size=2
    ),
    data=st.data(),
)
def test_the_rest_of_a_block_is_the_block_without_its_beginning(
    events: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    outbox = an_outbox(8)
    for event, key in events:
        add(outbox, event, key=key)
    block = outbox.take_block(3)
    assert block is not None
    last = data.draw(st.integers(1, len(events) - 1))
    rest = rest_after(block, last)
    assert list(Block(rest.data)) == [event for event, _ in events[last:]]
    assert Block(rest.data).keys() == [key for _, key in events[last:]]
    assert (rest.first, rest.last) == (last + 1, len(events))
