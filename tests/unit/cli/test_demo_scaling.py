"""The pace of the scaling demo, and its epoch map."""

from anabranch.cli.demo.by_load.epoch_map import Cell, Sample, cells, sample_of
from anabranch.cli.demo.by_load.event_time import least_to_come
from anabranch.cli.demo.by_load.pace import PHASES, TARGET_RATE, Phase, crossing_s, rows_due
from anabranch.cli.demo.flights import Flight
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.scaling import RateOver, SegmentExplained
from anabranch.common.contracts.stream_queries import ScalingEvent


def segment(number: int, start: float, end: float) -> SegmentInStream:
    return SegmentInStream(segment_id=number, name=f"a/b/{number}", key_start=start, key_end=end)


def epoch(number: int, at_ms: int, *segments: SegmentInStream) -> ScalingEvent:
    return ScalingEvent(
        stream_epoch=number, reference_epoch=number, created_ms=at_ms,
        segment_count=len(segments), splits=0, merges=0, segments=segments,
    )  # fmt: skip


def test_the_pace_adds_up_the_phases_that_have_passed() -> None:
    phases = (Phase(2.0, 10.0), Phase(1.0, 100.0), Phase(float("inf"), 1.0))
    assert [rows_due(phases, at) for at in (-1.0, 0.0, 1.5, 2.0, 2.5, 3.0, 13.0)] == [
        0, 0, 15, 20, 70, 120, 130,
    ]  # fmt: skip


def test_the_load_crosses_the_target_where_the_first_faster_phase_begins() -> None:
    phases = (Phase(2.0, 10.0), Phase(3.0, 20.0), Phase(1.0, 100.0))
    assert crossing_s(phases, 50.0) == 5.0
    assert crossing_s(phases, 100.0) is None
    assert crossing_s(PHASES, TARGET_RATE) == PHASES[0].seconds


def test_a_map_divides_each_epoch_where_it_was_sampled_and_covers_all_time_and_keys() -> None:
    whole = epoch(0, 1000, segment(0, 0.0, 1.0))
    halves = epoch(1, 4000, segment(1, 0.0, 0.5), segment(2, 0.5, 1.0))
    samples = [
        Sample(2000, {0: 5.0}), Sample(3000, {0: 7.0}), Sample(5000, {1: 4.0, 2: None}),
    ]  # fmt: skip
    found = cells([whole, halves], samples, 6000)
    assert found == [
        Cell(0, 1000, 2000, 0.0, 1.0, 5.0),
        Cell(0, 2000, 3000, 0.0, 1.0, 7.0),
        Cell(0, 3000, 4000, 0.0, 1.0, 7.0),
        Cell(1, 4000, 5000, 0.0, 0.5, 4.0),
        Cell(2, 4000, 5000, 0.5, 1.0, None),
        Cell(1, 5000, 6000, 0.0, 0.5, 4.0),
        Cell(2, 5000, 6000, 0.5, 1.0, None),
    ]
    area = sum((one.to_ms - one.from_ms) * (one.key_end - one.key_start) for one in found)
    assert area == 5000.0


def test_a_sample_from_before_an_epoch_says_nothing_about_its_segments() -> None:
    first = epoch(0, 1000, segment(0, 0.0, 1.0))
    again = epoch(1, 3000, segment(0, 0.0, 1.0))
    found = cells([first, again], [Sample(2000, {0: 5.0})], 4000)
    assert found[-1] == Cell(0, 3000, 4000, 0.0, 1.0, None)


def test_a_sample_takes_the_shortest_filled_window_and_leaves_the_unknown_unknown() -> None:
    known, unknown = (
        SegmentExplained(
            segment_id=number, name=f"a/b/{number}", key_start=number / 2,
            key_end=(number + 1) / 2, verdict="steady", why="", rates=rates,
        )
        for number, rates in enumerate((
            (RateOver(window_s=2.0, rate=5.0, counts=True),
             RateOver(window_s=60.0, rate=1.0, counts=True)),
            (),
        ))
    )  # fmt: skip
    assert sample_of(7, [known, unknown]) == Sample(7, {0: 5.0, 1: None})


def test_the_writer_may_note_the_lowest_time_that_is_still_to_come() -> None:
    rows = [Flight(b"", None, time_ms, "") for time_ms in (5, 3, 8, 7, 9)]
    assert list(least_to_come(rows)) == [3, 3, 7, 7, 9, 9]
    assert list(least_to_come([])) == [0]
