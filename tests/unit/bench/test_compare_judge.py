"""When a row is called worse: on pairs worked out by hand, and on any pairs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compare.__main__ import exit_status
from bench.compare.judge import RowKey, Verdict, judge, measured, pairs_needed

SEVEN = 7


def pairs(*changes_percent: float) -> list[tuple[float, float]]:
    return [(1_000.0, 1_000.0 * (1 + change / 100)) for change in changes_percent]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((-4, -4, -4, -4, -4, -4, -4), Verdict.WORSE),
        ((-4, -4, -4, -4, -4, -4, +9), Verdict.WORSE),
        ((-4, -4, -4, -4, -4, +1, +1), Verdict.SAME),
        ((-9, -9, -9, -3.1, -1, -1, +1), Verdict.WORSE),
        ((-9, -9, -9, -3, -1, -1, -1), Verdict.SAME),
        ((-2, -2, -2, -2, -2, -2, -50), Verdict.SAME),
        ((-4, -4, -4, -4, -4, -4, 0), Verdict.WORSE),
        ((-4, -4, -4, -4, -4, 0, 0), Verdict.SAME),
        ((0, 0, 0, 0, 0, 0, 0), Verdict.SAME),
        ((+4, +4, +4, +4, +4, +4, -9), Verdict.BETTER),
        ((+4, +4, +4, +4, +4, -1, -9), Verdict.SAME),
        ((+3, +3, +3, +3, +3, +3, +3), Verdict.SAME),
    ],
)
def test_a_row_is_worse_if_the_median_is_three_percent_lower_and_six_pairs_agree(
    changes: tuple[float, ...], verdict: Verdict
) -> None:
    found = judge(pairs(*changes), SEVEN)

    assert found.verdict is verdict
    assert found.lower == sum(change < 0 for change in changes)
    assert found.change_percent == pytest.approx(sorted(changes)[3])


def test_pairs_are_compared_with_each_other_and_not_with_those_of_another_time() -> None:
    slowing_down = [(1_000.0 / step, 1_010.0 / step) for step in range(1, 8)]

    assert judge(slowing_down, SEVEN).verdict is Verdict.SAME
    assert judge(slowing_down, SEVEN).change_percent == pytest.approx(1.0)


@pytest.mark.parametrize("measured_pairs", [0, 1, 6])
def test_fewer_pairs_than_asked_for_decide_nothing(measured_pairs: int) -> None:
    found = judge(pairs(*[-50.0] * measured_pairs), SEVEN)

    assert (found.verdict, found.pairs) == (Verdict.UNDECIDED, measured_pairs)


@pytest.mark.parametrize(("asked", "needed"), [(1, 1), (2, 2), (3, 3), (7, 6), (8, 7), (14, 12)])
def test_other_numbers_of_pairs_need_the_same_share(asked: int, needed: int) -> None:
    assert pairs_needed(asked) == needed


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=7, max_size=7))
def test_if_one_is_worse_than_the_other_the_other_is_not_worse_than_the_one(
    speeds: list[tuple[float, float]],
) -> None:
    there = judge(speeds, SEVEN)
    back = judge([(new, old) for old, new in speeds], SEVEN)

    assert not (there.verdict is back.verdict is Verdict.WORSE)
    if there.verdict is Verdict.WORSE:
        assert back.verdict is Verdict.BETTER


def test_a_rate_is_better_if_it_is_higher_and_an_open_loop_if_it_is_sooner() -> None:
    line = {"workload": "W6", "event_bytes": 1_024, "settings": "flush on", "verified": True}
    latencies = {"p50_ms": 2.0, "ack_p50_ms": 4.0}

    rate = measured({**line, "events_per_s": 50.0, "p50_ms": 2.0, "ack_p50_ms": None})
    tail = measured({**line, "events_per_s": 50.0, **latencies})
    writers = measured({**line, "events_per_s": 50.0, **latencies, "p50_ms": None})

    assert rate.key == RowKey("W6", 1_024, "flush on")
    assert (rate.figure, rate.speed) == ("events/s", 50.0)
    assert (tail.figure, tail.value, tail.speed) == ("p50 ms", 2.0, 0.5)
    assert (writers.figure, writers.value, writers.speed) == ("ack p50 ms", 4.0, 0.25)


@pytest.mark.parametrize(
    "outcome",
    [{"error": "ValueError: x"}, {"events_per_s": 0.0}, {"events_per_s": 9.0, "verified": False}],
)
def test_a_row_that_failed_or_lost_events_has_no_speed(outcome: dict[str, object]) -> None:
    line = {"workload": "W1", "event_bytes": 100, "settings": "flush on"}

    assert measured({**line, **outcome}).speed is None


@pytest.mark.parametrize(
    ("verdicts", "has_gaps", "status"),
    [
        ([Verdict.SAME, Verdict.BETTER, Verdict.NEW], False, 0),
        ([Verdict.SAME, Verdict.WORSE], False, 1),
        ([Verdict.SAME, Verdict.LOST], False, 1),
        ([Verdict.UNDECIDED, Verdict.WORSE], True, 1),
        ([Verdict.SAME, Verdict.UNDECIDED], False, 2),
        ([Verdict.SAME], True, 2),
        ([], True, 2),
    ],
)
def test_the_exit_status_is_zero_only_if_every_row_was_decided_and_none_is_worse(
    verdicts: list[Verdict], has_gaps: bool, status: int
) -> None:
    assert exit_status(verdicts, has_gaps=has_gaps) == status
