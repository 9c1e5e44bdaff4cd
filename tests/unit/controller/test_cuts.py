"""Cuts mean what a model says that looks at every key's chain of segments by itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import CutRefused, InvalidCut
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History, SealedSegment
from kit.stream_model import (
    Cut,
    StreamModel,
    any_offsets,
    as_cut,
    read_positions,
    streams,
    touched_positions,
)
from kit.thorough import one_in

CELLS = 8
A, B = segment_id(0, 0), segment_id(0, 1)
C = segment_id(1, 2)
D, E = segment_id(2, 3), segment_id(2, 4)


def merged_then_split() -> History:
    """A and B, merged into C, split into D and E."""
    stream = StreamModel()
    stream.epoch([], [range(4), range(4, 8)], lambda: 10)
    stream.epoch([A, B], [range(8)], lambda: 10)
    stream.epoch([C], [range(4), range(4, 8)], lambda: 10)
    return History(stream.records)


def cut(**offsets: int) -> StreamCut:
    by_name = {"a": A, "b": B, "c": C, "d": D, "e": E}
    return tuple(sorted(SegmentOffset(by_name[name], at) for name, at in offsets.items()))


# --- one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "valid",
    [
        cut(a=0, b=10),
        cut(c=0),
        cut(c=-1),
        cut(d=3, e=4),
        cut(b=5, c=-1),
        cut(b=10, c=-1),
        cut(a=0, b=5, c=-1),
        cut(c=5, d=-1, e=-1),
        cut(a=1, c=-1, e=-1),
        cut(d=-1, e=99),
    ],
)
def test_what_a_reader_may_stand_at_is_a_cut(valid: StreamCut) -> None:
    cuts.check(merged_then_split(), valid)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ((), "a cut must cover all keys"),
        (cut(a=0), "a cut must cover all keys"),
        (cut(b=0), "a cut must cover all keys"),
        (cut(a=0, b=11), "an offset is not within its segment"),
        (cut(a=0, b=-2), "an offset is not within its segment"),
        ((SegmentOffset(SegmentId(77), 0),), "the stream does not have this segment"),
        ((*cut(a=0, b=0), SegmentOffset(A, 0)), "a cut names a segment twice"),
        (cut(a=0, b=0, c=0), "two of a cut's segments have keys in common"),
        (cut(b=5, c=0), "two of a cut's segments have keys in common"),
        (cut(b=-1, c=5), "although it marks an earlier one as future"),
        (cut(b=5, d=3), "before a segment for some of its keys and behind it for others"),
        (cut(b=5, d=-1), "before a segment for some of its keys and behind it for others"),
    ],
)
def test_what_is_no_cut_is_refused_with_the_reason(wrong: StreamCut, reason: str) -> None:
    with pytest.raises(InvalidCut, match=reason):
        cuts.check(merged_then_split(), wrong)


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        (cut(a=1, b=1), cut(a=1, b=1), "equal"),
        (cut(a=1, b=1), cut(a=1, b=2), "before"),
        (cut(a=1, b=3), cut(a=1, b=2), "after"),
        (cut(a=1, b=3), cut(a=2, b=2), "overlaps"),
        (cut(b=10, c=-1), cut(a=0, b=10), "after"),
        (cut(a=10, b=10), cut(c=0), "before"),
        (cut(c=-1), cut(c=0), "equal"),
        (cut(b=5, c=-1), cut(a=10, b=6), "overlaps"),
    ],
)
def test_cuts_are_compared_for_every_key(first: StreamCut, second: StreamCut, order: str) -> None:
    assert cuts.compare(merged_then_split(), first, second) == order


def test_a_truncation_beside_a_future_segment_leaves_that_alone() -> None:
    history = merged_then_split()

    assert cuts.truncated(history, cut(a=0, b=0), cut(b=5, c=-1)) == (A,)
    assert cuts.from_head(history, cut(b=5, c=-1)) == (B, C, D, E)
    with pytest.raises(CutRefused, match="before the head"):
        cuts.truncated(history, cut(b=5, c=-1), cut(a=0, b=5))


def test_what_lies_between_leaves_out_what_has_no_bytes() -> None:
    history = merged_then_split()

    assert cuts.between(history, cut(a=10, b=4), cut(c=0)) == (cuts.Run(B, 4, None),)
    assert cuts.between(history, cut(c=2), cut(d=0, e=3)) == (
        cuts.Run(C, 2, None),
        cuts.Run(E, 0, 3),
    )
    assert cuts.between(history, cut(c=2)) == (
        cuts.Run(C, 2, None),
        cuts.Run(D, 0, None),
        cuts.Run(E, 0, None),
    )
    with pytest.raises(InvalidCut, match="behind the second"):
        cuts.between(history, cut(c=2), cut(c=1))


def test_a_sealed_streams_last_segments_have_their_sizes() -> None:
    stream = StreamModel()
    stream.epoch([], [range(8)], lambda: 5)
    (only,) = stream.present
    last = History(stream.records)
    cuts.check(last, (SegmentOffset(only, 99),))
    sealed = last.ended([SealedSegment(only, 5)])

    with pytest.raises(InvalidCut, match="offset"):
        cuts.check(sealed, (SegmentOffset(only, 6),))
    assert cuts.between(sealed, (SegmentOffset(only, 5),)) == ()


# --- against the model --------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=300 // one_in(4))
def test_what_passes_for_a_cut_is_one(data: st.DataObject) -> None:
    stream = data.draw(streams())
    cut = data.draw(
        st.one_of(any_offsets(stream), touched_positions(stream), read_positions(stream))
    )

    try:
        cuts.check(History(stream.records), as_cut(cut))
    except InvalidCut:
        assert not stream.is_valid(cut)
    else:
        assert stream.is_valid(cut)


@given(st.data())
@settings(max_examples=100 // one_in(4))
def test_wherever_a_reader_stands_is_a_cut(data: st.DataObject) -> None:
    stream = data.draw(streams())
    position = data.draw(read_positions(stream))

    assert stream.is_valid(position)
    cuts.check(History(stream.records), as_cut(position))


@given(st.data())
@settings(max_examples=200 // one_in(4))
def test_the_order_of_two_cuts_is_that_of_all_keys(data: st.DataObject) -> None:
    stream, first, second = two_positions(data)
    pairs = [(stream.place(first, cell), stream.place(second, cell)) for cell in range(CELLS)]
    is_before, is_after = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
    order = {(False, False): "equal", (True, False): "before", (False, True): "after"}

    found = cuts.compare(History(stream.records), as_cut(first), as_cut(second))

    assert found == order.get((is_before, is_after), "overlaps")


@given(st.data())
@settings(max_examples=200 // one_in(4))
def test_between_two_cuts_lie_exactly_the_bytes_that_only_the_later_has_behind_it(
    data: st.DataObject,
) -> None:
    stream, first, second = two_positions(data)
    history = History(stream.records)
    if any(stream.place(first, cell) > stream.place(second, cell) for cell in range(CELLS)):
        with pytest.raises(InvalidCut):
            cuts.between(history, as_cut(first), as_cut(second))
        return

    runs = cuts.between(history, as_cut(first), as_cut(second))

    lies_between = stream.bytes_before(second) - stream.bytes_before(first)
    assert told(stream, runs) == lies_between
    assert list(runs) == sorted(runs)
    size = cuts.size_between(history, as_cut(first), as_cut(second))
    assert size == len(lies_between)


@given(st.data())
@settings(max_examples=100 // one_in(4))
def test_from_a_cut_to_the_present_lies_all_that_was_not_read(data: st.DataObject) -> None:
    stream, position, _ = two_positions(data)

    runs = cuts.between(History(stream.records), as_cut(position))

    assert told(stream, runs) == stream.all_bytes() - stream.bytes_before(position)


@given(st.data())
@settings(max_examples=200 // one_in(4))
def test_a_truncation_deletes_what_is_read_and_was_not_deleted(data: st.DataObject) -> None:
    stream, head, position = two_positions(data)
    history = History(stream.records)
    read = {s for s, cells in stream.cells.items() if stream.is_read(position, s, cells.start)}
    gone = {s for s, cells in stream.cells.items() if stream.is_read(head, s, cells.start)}

    assert set(cuts.from_head(history, as_cut(head))) == stream.cells.keys() - gone
    if any(stream.place(head, cell) > stream.place(position, cell) for cell in range(CELLS)):
        with pytest.raises(CutRefused):
            cuts.truncated(history, as_cut(head), as_cut(position))
    else:
        deleted = cuts.truncated(history, as_cut(head), as_cut(position))
        assert set(deleted) == read - gone


@given(st.data())
@settings(max_examples=200 // one_in(4))
def test_of_two_cuts_the_earlier_and_the_later_for_every_key_are_cuts(data: st.DataObject) -> None:
    stream, first, second = two_positions(data)
    history = History(stream.records)
    pairs = [(stream.place(first, cell), stream.place(second, cell)) for cell in range(CELLS)]

    earlier = cuts.earlier_of(history, as_cut(first), as_cut(second))
    later = cuts.later_of(history, as_cut(first), as_cut(second))

    for found, wanted in ((earlier, map(min, pairs)), (later, map(max, pairs))):
        cut = {place.segment_id: place.offset for place in found}
        assert stream.is_valid(cut)
        assert [stream.place(cut, cell) for cell in range(CELLS)] == list(wanted)


@given(st.data())
@settings(max_examples=15)
def test_all_of_it_holds_after_many_scales(data: st.DataObject) -> None:
    stream = data.draw(streams(epochs_max=40))
    history = History(stream.records)
    first, second = data.draw(read_positions(stream)), data.draw(read_positions(stream))
    pairs = [(stream.place(first, cell), stream.place(second, cell)) for cell in range(CELLS)]
    if any(a > b for a, b in pairs):
        first, second = {segment.segment_id: 0 for segment in stream.records[0].created}, first

    runs = cuts.between(history, as_cut(first), as_cut(second))

    assert told(stream, runs) == stream.bytes_before(second) - stream.bytes_before(first)
    deleted = cuts.truncated(history, as_cut(first), as_cut(second))
    assert set(deleted) == {
        s
        for s, cells in stream.cells.items()
        if stream.is_read(second, s, cells.start) and not stream.is_read(first, s, cells.start)
    }


def two_positions(data: st.DataObject) -> tuple[StreamModel, Cut, Cut]:
    stream = data.draw(streams())
    return stream, data.draw(read_positions(stream)), data.draw(read_positions(stream))


def told(stream: StreamModel, runs: tuple[cuts.Run, ...]) -> set[tuple[SegmentId, int]]:
    found = set()
    for run in runs:
        end = stream.sizes[run.segment_id] if run.end_offset is None else run.end_offset
        found |= {(run.segment_id, offset) for offset in range(run.start_offset, end)}
    return found
