"""The pace of the scaling demo, its epoch map, its checks and its plots."""

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.cli.demo.by_load.epoch_map import Cell, Sample, cells, sample_of
from anabranch.cli.demo.by_load.event_time import Moment, least_to_come
from anabranch.cli.demo.by_load.findings import checks_of, measures_of, record_of
from anabranch.cli.demo.by_load.outcome import Course, Outcome, Plan
from anabranch.cli.demo.by_load.pace import (
    PHASES,
    TARGET_RATE,
    Phase,
    crossing_s,
    finish_s,
    rows_due,
)
from anabranch.cli.demo.by_load.plots import plot_epoch_map, plot_event_time
from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.report.page import Page, Result, are_right
from anabranch.cli.demo.source import Row
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


def test_the_last_row_is_due_when_the_phases_have_reached_it() -> None:
    phases = (Phase(2.0, 10.0), Phase(1.0, 100.0), Phase(float("inf"), 1.0))
    assert [finish_s(phases, rows) for rows in (0, 15, 20, 70, 120, 130)] == [
        0, 1.5, 2.0, 2.5, 3.0, 13.0,
    ]  # fmt: skip
    assert finish_s(phases[:1], 21) == float("inf")


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
    rows = [Row(b"", None, time_ms, "") for time_ms in (5, 3, 8, 7, 9)]
    assert list(least_to_come(rows)) == [3, 3, 7, 7, 9, 9]
    assert list(least_to_come([])) == [0]


# --- checks and plots ---------------------------------------------------------------------------


def scaled(*, cause: str = "auto-split: busy", last: int = 1, late: int = 0) -> Outcome:
    """The outcome of a demo whose stream had 1, 2 and then `last` segments."""
    written = Written()
    for row in range(2):
        written.add(b'{"row":%d}' % row)
    tally = Tally(written)
    tally.add([b'{"row":0}', b'{"row":1}'], [None, None])
    one, two = (segment(0, 0.0, 1.0),), (segment(1, 0.0, 0.5), segment(2, 0.5, 1.0))
    epochs = (
        epoch(0, 1000, *one).model_copy(update={"cause": "create"}),
        epoch(1, 4000, *two).model_copy(update={"cause": cause}),
        epoch(2, 8000, *(one if last == 1 else two)).model_copy(update={"cause": "auto-merge: x"}),
    )
    course = Course(
        samples=[Sample(2000, {0: 500.0}), Sample(6000, {1: 3000.0, 2: None}), Sample(9000, {})],
        written=[(1000, 0), (5000, 10_000), (9000, 11_000)],
        moments=[Moment(3000, 86_400_000, None, None, 0),
                 Moment(5000, 2 * 86_400_000, 86_400_000, None, late),
                 Moment(9000, 3 * 86_400_000, 2 * 86_400_000, 3 * 86_400_000, late)],
    )  # fmt: skip
    return Outcome(
        Plan(Path("table"), Path("data"), Path("out")), "now", course, written, epochs,
        first_split_s=1.5, tally=tally, seconds=9.0,
    )  # fmt: skip


def failed_checks(outcome: Outcome) -> list[str]:
    return [check.name for check in checks_of(outcome) if check.result is Result.FAILED]


def test_a_stream_that_followed_its_load_by_itself_passes() -> None:
    outcome = scaled()
    assert are_right(checks_of(outcome))
    epochs = [each.text for each in measures_of(outcome) if each.name.startswith("epoch")]
    assert epochs == ["1 segment", "2 segments", "1 segment"]
    record = record_of(outcome, Page("", "", "", checks_of(outcome), ()))
    assert (record["segments_max"], record["segments_last"], record["late"]) == (2, 1, 0)


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (scaled(cause="manual"), "the stream scaled by itself"),
        (scaled(last=2), "the stream followed its load"),
        (scaled(late=1), "no event was earlier than the reader's time window"),
    ],
)
def test_each_kind_of_wrong_scaling_is_found(outcome: Outcome, failed: str) -> None:
    assert failed_checks(outcome) == [failed]


def test_a_demo_that_ended_before_it_scaled_has_reached_no_check() -> None:
    begun = replace(scaled(), epochs=(), tally=None, written=None, first_split_s=None)
    assert {check.result for check in checks_of(begun)} == {Result.NOT_REACHED}
    assert measures_of(begun) == ()


def test_both_plots_are_drawn_also_without_a_watermark(tmp_path: Path) -> None:
    outcome = scaled()
    course, epochs = outcome.course, outcome.epochs
    found = cells(epochs, course.samples, 9000)
    drawn = [
        plot_epoch_map(found, epochs, course.written, target=2000, out=tmp_path),
        plot_event_time(course.moments, begun_ms=1000, out=tmp_path),
        plot_event_time(course.moments[:1], begun_ms=1000, out=tmp_path),
    ]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
