"""The progress of a demo: its arithmetic, and its lines where there is no terminal."""

import asyncio
import io

import pytest
from rich.console import Console

from anabranch.cli.demo.step_pace import (
    SPACING_S,
    WINDOW_S,
    Pace,
    amount_text,
    clock_text,
    rate_text,
    seconds_text,
)
from anabranch.cli.demo.steps import Steps
from anabranch.common.errors import Unavailable
from kit.virtual_time import VirtualClock, run_virtual


def advanced(pace: Pace, until_s: int, per_s: int, begun_s: int = 0) -> Pace:
    """The pace after a constant rate up to a time."""
    before = pace.done
    for tenth in range(1, 10 * (until_s - begun_s) + 1):
        pace.advance(begun_s + tenth / 10, before + tenth * per_s // 10)
    return pace


def test_a_constant_rate_gives_the_remaining_time() -> None:
    pace = advanced(Pace(0.0, total=1000), until_s=4, per_s=100)
    assert pace.rate == pytest.approx(100)
    assert pace.left_s == pytest.approx(6.0)
    assert pace.mean_rate(4.0) == pytest.approx(100)


def test_the_rate_follows_a_step_that_becomes_slower() -> None:
    pace = advanced(Pace(0.0, total=2000), until_s=10, per_s=100)
    advanced(pace, until_s=20, per_s=10, begun_s=10)
    assert pace.rate == pytest.approx(10, rel=0.1)
    assert pace.left_s == pytest.approx(90, rel=0.1)
    assert pace.mean_rate(20.0) == pytest.approx(55)


def test_nothing_is_said_about_a_rate_after_a_moment_or_a_rest_that_is_not_known() -> None:
    pace = Pace(0.0, total=10)
    pace.advance(0.1, 5)
    assert (pace.rate, pace.left_s, pace.mean_rate(0.1)) == (None, None, None)
    assert advanced(Pace(0.0), until_s=2, per_s=10).left_s is None
    stuck = Pace(0.0, total=10)
    stuck.advance(3.0, 0)
    assert (stuck.rate, stuck.left_s) == (0.0, None)


def test_a_pace_keeps_few_counts_however_often_it_advances() -> None:
    pace = Pace(0.0)
    for step in range(100_000):
        pace.advance(step / 1000, step)
    assert len(pace._counts) <= WINDOW_S / SPACING_S + 2


def test_progress_has_short_words() -> None:
    assert [seconds_text(at) for at in (0.4, 59.4, 60, 125)] == [
        "0 s", "59 s", "1 min 0 s", "2 min 5 s",
    ]  # fmt: skip
    assert [clock_text(at) for at in (7.4, 59.6, 125)] == ["0:07", "1:00", "2:05"]
    assert (amount_text(1234, 5000), amount_text(1234, None), amount_text(0, None)) == (
        "1,234/5,000", "1,234", "",
    )  # fmt: skip
    assert [rate_text(rate) for rate in (None, 0.2, 12345.6)] == ["", "", "12,346/s"]


async def demo(console: Console, *, fails: bool) -> str:
    """Some steps in virtual time; returns the name of the last one."""
    clock = VirtualClock(asyncio.get_running_loop())
    steps = Steps(console, clock)
    try:
        async with steps.shown():
            steps.begin("starting")
            await clock.sleep(7.5)
            steps.begin("writing", 1000)
            for second in range(1, 9):
                await clock.sleep(1.0)
                steps.advance(second * 100)
            steps.remark("a reader died")
            if fails:
                raise Unavailable("it is gone")
            await clock.sleep(1.5)
            steps.advance(1000)
    except ExceptionGroup:
        assert fails
    return steps.name


@pytest.mark.parametrize("fails", [False, True])
def test_a_pipe_gets_a_line_at_each_begin_and_end_and_every_few_seconds_between(
    fails: bool,
) -> None:
    lines = io.StringIO()

    console = Console(file=lines, force_terminal=False)
    assert run_virtual(demo(console, fails=fails)) == "writing"
    end = "not finished after 8.0 s, 100 events/s" if fails else "done after 9.5 s, 105 events/s"
    assert lines.getvalue().splitlines() == [
        "starting",
        "starting: 5 s so far",
        "starting: done after 7.5 s",
        "writing: 1,000 events",
        "writing: 500 of 1,000 events, 100 events/s, 5 s so far, 5 s left",
        "a reader died",
        f"writing: {end}",
    ]
