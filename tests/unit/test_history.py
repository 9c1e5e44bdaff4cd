"""The checker of the simulation must itself be able to fail."""

import pytest

from anabranch.common.wire.block_encoding import encode_block
from kit.history import History, HistoryViolation, Place, make_event

SEGMENT = "s/x/0.#epoch.0"
WRITER = b"w" * 16


def block(first: int, count: int, writer_id: bytes = WRITER) -> bytes:
    return encode_block(
        [make_event(writer_id, number) for number in range(first, first + count)],
        writer_id=writer_id,
        first_event_number=first,
        base_timestamp_ms=0,
    )


@pytest.fixture
def history() -> History:
    """Four events sent, two acknowledged."""
    history = History()
    history.attempt(SEGMENT, WRITER, 1, [make_event(WRITER, number) for number in (1, 2, 3, 4)])
    history.acknowledge(SEGMENT, WRITER, 2)
    return history


def test_everything_acknowledged_and_some_more_is_fine(history: History) -> None:
    history.check_segment(SEGMENT, block(1, 2))
    history.check_segment(SEGMENT, block(1, 2) + block(3, 2))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="lost"),
        pytest.param(block(1, 1), id="partly lost"),
        pytest.param(block(1, 2) + block(1, 2), id="repeated"),
        pytest.param(block(3, 2) + block(1, 2), id="reordered"),
        pytest.param(block(1, 5), id="invented"),
        pytest.param(block(1, 2) + block(1, 1, b"v" * 16), id="unknown writer"),
    ],
)
def test_a_broken_promise_is_noticed(history: History, content: bytes) -> None:
    with pytest.raises(HistoryViolation):
        history.check_segment(SEGMENT, content)


def test_bytes_that_were_seen_may_not_vanish(history: History) -> None:
    history.check_segment(SEGMENT, block(1, 2) + block(3, 2))
    with pytest.raises(HistoryViolation):
        history.check_segment(SEGMENT, block(1, 2))


def test_a_sealed_segment_may_not_grow(history: History) -> None:
    history.sealed_at[SEGMENT] = len(block(1, 2))
    with pytest.raises(HistoryViolation):
        history.check_segment(SEGMENT, block(1, 2) + block(3, 2))


def test_an_acknowledgement_of_nothing_is_noticed(history: History) -> None:
    with pytest.raises(HistoryViolation):
        history.acknowledge(SEGMENT, WRITER, 5)


def test_an_empty_source_merged_in_front_of_another_takes_none_of_its_bytes() -> None:
    history, other = History(), b"o" * 16
    full, empty = "s/x/1.#epoch.0", "s/x/2.#epoch.0"
    for segment, writer in ((SEGMENT, WRITER), (full, other)):
        history.attempt(segment, writer, 1, [make_event(writer, 1)])
        history.acknowledge(segment, writer, 1)
    before, merged = block(1, 1), block(1, 1, other)
    history.merging = {(full, SEGMENT), (empty, SEGMENT)}
    history.merge(full, Place(SEGMENT, len(before), len(merged)))
    history.merge(empty, Place(SEGMENT, len(before), 0))
    history.check_segment(SEGMENT, before + merged)
