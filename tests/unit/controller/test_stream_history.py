"""A history answers about any epoch as if it looked through all of them, and grows unchanged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.names import SegmentId, segment_id
from anabranch.controller.domain.stream.history import History, SegmentLife, overlaps
from kit.stream_model import CELLS, StreamModel, streams
from kit.thorough import one_in


def lives_in(history: History, stream_epoch: int) -> list[SegmentLife]:
    found = [life for life in history.lives.values() if life.is_in(stream_epoch)]
    return sorted(found, key=lambda life: life.keys.start)


@given(streams(epochs_max=12))
@settings(max_examples=100 // one_in(4))
def test_every_answer_is_that_of_looking_through_all_lives(stream: StreamModel) -> None:
    history = History(stream.records)

    for record in stream.records:
        segments = history.segments_of(record.stream_epoch)
        assert [s.segment_id for s in segments] == [
            life.segment_id for life in lives_in(history, record.stream_epoch)
        ]
    for segment, life in history.lives.items():
        after = [] if life.sealed_epoch is None else lives_in(history, life.sealed_epoch)
        before = lives_in(history, life.created_epoch - 1) if life.created_epoch else []
        successors = [s for s in after if overlaps(s.keys, life.keys)]
        assert list(history.successors(segment)) == successors
        assert list(history.predecessors(segment)) == [
            s for s in before if overlaps(s.keys, life.keys)
        ]


@given(streams(epochs_max=12), st.data())
@settings(max_examples=50 // one_in(4))
def test_growing_epoch_by_epoch_makes_the_same_history_and_changes_no_earlier_one(
    stream: StreamModel, data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(stream.records)))
    short = History(stream.records[:at])
    before = dict(short.lives)

    long = short
    for record in stream.records[at:]:
        long = long.extended(record)

    assert long.lives == History(stream.records).lives
    assert [long.segments_of(n) for n in range(len(stream.records))] == [
        History(stream.records).segments_of(n) for n in range(len(stream.records))
    ]
    assert short.lives == before
    assert short.current.stream_epoch == at - 1
    assert [s.segment_id for s in short.segments_of(at - 1)] == [
        life.segment_id for life in lives_in(short, at - 1)
    ]


def test_far_back_epochs_are_found_from_the_nearest_landmark() -> None:
    stream = StreamModel()
    stream.epoch([], [range(cell, cell + 1) for cell in range(CELLS)], lambda: 1)
    for epoch in range(300):
        cells = stream.cells[stream.present[epoch % CELLS]]
        stream.epoch([stream.present[epoch % CELLS]], [cells], lambda: 1)
    history = History(stream.records)

    for epoch in range(301):
        assert [s.segment_id for s in history.segments_of(epoch)] == [
            life.segment_id for life in lives_in(history, epoch)
        ]


def test_the_last_epochs_segments_have_no_successors_and_the_first_ones_no_predecessors() -> None:
    stream = StreamModel()
    stream.epoch([], [range(CELLS)], lambda: 7)
    stream.epoch([SegmentId(0)], [range(3), range(3, CELLS)], lambda: 7)
    history = History(stream.records)
    left, right = segment_id(1, 1), segment_id(1, 2)

    assert history.predecessors(SegmentId(0)) == ()
    assert history.successors(left) == ()
    assert [life.segment_id for life in history.successors(SegmentId(0))] == [left, right]
    assert [life.segment_id for life in history.predecessors(right)] == [0]
    assert history.lives[SegmentId(0)].size == 7
