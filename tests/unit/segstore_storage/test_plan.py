"""Flush plans: which bytes go into which chunks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.tier2.chunk import SparseEntry
from anabranch.common.tier2.state import Catalog, ChunkRef, SegmentState, TieredExtent
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.state import AppendMark, SegmentCut, UntieredRun
from anabranch.segstore.domain.storage.plan import (
    ChunkLimits,
    PlannedChunk,
    events_before_runs,
    plan_flush,
)
from kit.thorough import one_in
from kit.tier2_model import ModelContainer
from kit.topic_parts import partition

LIMITS = ChunkLimits(chunk_max=100, own_chunk_min=40, sparse_interval=30)


def _container(appends: dict[str, list[int]]) -> ModelContainer:
    model = ModelContainer()
    for name, sizes in appends.items():
        model.create(name)
        for size in sizes:
            model.append(name, bytes(size))
    return model


def _plan(model: ModelContainer, before: Catalog | None = None) -> tuple[PlannedChunk, ...]:
    catalog = before or Catalog()
    return plan_flush(catalog, model.cut(catalog), LIMITS)


def _ranges(plan: tuple[PlannedChunk, ...]) -> list[list[tuple[str, int, int]]]:
    return [[(piece.segment_name, piece.start, piece.end) for piece in chunk] for chunk in plan]


def test_small_segments_share_a_chunk() -> None:
    plan = _plan(_container({"a": [10], "b": [20], "c": [], "d": [30]}))
    assert _ranges(plan) == [[("a", 0, 10), ("b", 0, 20), ("d", 0, 30)]]


def test_a_hot_segment_has_chunks_of_its_own_and_its_rest_is_shared() -> None:
    plan = _plan(_container({"hot": [30] * 7, "b": [5]}))
    assert _ranges(plan) == [[("hot", 0, 90)], [("hot", 90, 180)], [("hot", 180, 210), ("b", 0, 5)]]


def test_shared_chunks_are_filled_to_their_limit_only() -> None:
    plan = _plan(_container({"a": [39], "b": [39], "c": [39]}))
    assert _ranges(plan) == [[("a", 0, 39), ("b", 0, 39)], [("c", 0, 39)]]


def test_an_append_larger_than_a_chunk_is_one_piece() -> None:
    plan = _plan(_container({"a": [10, 150, 10]}))
    assert _ranges(plan) == [[("a", 10, 160)], [("a", 0, 10), ("a", 160, 170)]]


def test_entries_are_sparse_relative_to_the_piece_and_end_with_it() -> None:
    model = _container({"a": [20, 20, 20, 5]})
    (chunk,) = _plan(model)
    times = [mark.time_ms for mark in model.marks[1]]
    assert chunk[0].entries == (SparseEntry(40, 2, times[1]), SparseEntry(65, 4, times[3]))


def test_entries_of_a_later_piece_count_from_its_own_start() -> None:
    model = _container({"a": [60, 60]})
    pieces = [chunk[0] for chunk in _plan(model)]
    assert [[(e.offset, e.event_count) for e in piece.entries] for piece in pieces] == [
        [(60, 1)],
        [(60, 1)],
    ]


@settings(max_examples=60 // one_in(4))
@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.integers(1, 160), max_size=12), max_size=6
    )
)
def test_every_byte_is_planned_once_in_order_and_cut_at_append_marks(
    appends: dict[str, list[int]],
) -> None:
    model = _container(appends)
    plan = _plan(model)
    for chunk in plan:
        assert len(chunk) == 1 or sum(piece.size for piece in chunk) <= LIMITS.chunk_max
    for name, state in model.segments.items():
        pieces = [piece for chunk in plan for piece in chunk if piece.segment_name == name]
        pieces.sort(key=lambda piece: piece.start)
        starts = [piece.start for piece in pieces]
        ends = [piece.end for piece in pieces]
        assert [0, *ends] == [*starts, state.length]
        boundaries = {mark.offset for mark in model.marks[state.number]}
        assert boundaries.issuperset(ends)
        for piece in pieces:
            assert piece.entries[-1].offset == piece.size
            assert all(piece.start + entry.offset in boundaries for entry in piece.entries)


def _adopting(name: str, before: int) -> SegmentCut:
    """A cut with a run of 5 events, an adopted extent of 3, and a run of 2, after 4 others."""
    state = SegmentState(name, 1, Stamp(1, 1), 40, 130, 14, start_event_count=4)
    runs = (
        UntieredRun(40, (AppendMark(60, 2, 0), AppendMark(70, 3, 0))),
        UntieredRun(100, (AppendMark(130, 2, 0),)),
    )
    return SegmentCut(state, runs, (TieredExtent(70, ChunkRef("c", 0, 30, 0), before),))


def test_the_events_before_a_run_of_a_topic_are_counted_back_from_what_follows_it() -> None:
    assert events_before_runs(_adopting(partition(0), 9)) == [4, 12]
    assert events_before_runs(_adopting(partition(0), -1)) == [-1, 12]
    assert events_before_runs(_adopting("scope/stream/0.#epoch.0", 9)) == [-1, -1]
