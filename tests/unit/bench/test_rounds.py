"""Rounds as a judge needs them: a failure stays where it happened, stolen time repeats a round."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from anabranch.common.errors import Unavailable
from bench.case import QUICK, Case, Effort, Sample, case_of
from bench.clock import Stopwatch
from bench.machine import processor_times, stolen_percent
from bench.report import cells, is_verified, markdown
from bench.rounds import (
    REPEATS_MAX,
    Attempt,
    Conditions,
    Results,
    Row,
    counted,
    error_text,
    run_case,
    run_workload,
)
from bench.systems.port import Label, System
from bench.workloads.port import Workload
from kit.bench_fake import FakeStopwatch, FakeSystem

CASE = case_of(32)
EFFORT: Effort = replace(QUICK, rounds=3)
RESULT = {
    "machine": {
        "cpu_count": 2, "cpu_model": "x", "memory_gib": 4, "file_system": "ext4", "kernel": "6",
        "python": "3.11", "servers": {}, "clients": {}, "load_1m_before": 0, "steal_percent": 0,
    },
    "probe": {
        "sync_4k_p50_ms": 0.1, "sync_4k_p99_ms": 0.2,
        "after": {"sync_4k_p50_ms": 0.1, "sync_4k_p99_ms": 0.2},
    },
    "effort": "quick", "seconds": 1, "at": "today", "steal_percent_max": 5.0,
}  # fmt: skip


class Scripted:
    """A workload whose measurements come from a script: the warm-up first, then the rounds."""

    name = "W0"
    event_bytes: tuple[int, ...] = (32, 64)

    def __init__(self, *script: Sample | BaseException) -> None:
        self._script = iter(script)
        self.measured = 0

    def suits(self, label: Label) -> bool:
        return True

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        self.measured += 1
        found = next(self._script, None) or sample()
        if isinstance(found, BaseException):
            raise found
        return found


class ScriptedSteal:
    """Tells stolen time from a script, 0 after its end."""

    def __init__(self, *percents: float) -> None:
        self._percents: Iterator[float] = chain(percents, repeat(0.0))

    def percent(self) -> float:
        return next(self._percents)


def sample(rate: int = 1_000, *, verified: bool = True) -> Sample:
    return Sample(rate, 1.0, 0.5, verified)


async def results_of(
    workload: Workload,
    *systems: System,
    steal: ScriptedSteal | None = None,
    measure_seconds_max: float = 60.0,
) -> Results:
    results, clock, meter = Results(), FakeStopwatch(), steal or ScriptedSteal()
    conditions = Conditions(
        EFFORT,
        clock,
        lambda _: None,
        steal_meter=lambda: meter,
        steal_percent_max=5.0,
        measure_seconds_max=measure_seconds_max,
    )
    chosen = systems or (FakeSystem(clock),)
    await run_case(workload, CASE, chosen, conditions=conditions, results=results)
    return results


async def row_with(workload: Workload, steal: ScriptedSteal) -> Row:
    [row] = (await results_of(workload, steal=steal)).rows
    return row


@pytest.mark.parametrize("failing_at", [0, 1, 3])
async def test_a_system_that_fails_takes_no_further_part_and_the_others_keep_their_rows(
    failing_at: int,
) -> None:
    clock = FakeStopwatch()

    class FailsOnce(Scripted):
        async def measure(
            self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
        ) -> Sample:
            if system.label.system == "weak":
                self.measured += 1
                if self.measured > failing_at:
                    raise Unavailable("the store is gone", remedy="start it")
            return sample()

    workload = FailsOnce()
    weak, strong = FakeSystem(clock, system="weak"), FakeSystem(clock, system="strong")

    results = await results_of(workload, weak, strong)

    assert [row["system"] for row in results.rows] == ["strong"]
    assert results.rows[0]["rounds"] == EFFORT.rounds
    assert workload.measured == failing_at + 1
    [failure] = results.failures
    assert (failure["workload"], failure["event_bytes"], failure["system"]) == ("W0", 32, "weak")
    assert "the store is gone" in str(failure["error"])


@pytest.mark.parametrize("defect", [AssertionError("nothing was measured"), ZeroDivisionError()])
async def test_a_defect_of_a_workload_is_a_failure_of_its_case_alone(defect: Exception) -> None:
    results = await results_of(Scripted(sample(), defect))

    assert results.rows == []
    assert [type(defect).__name__ in str(each["error"]) for each in results.failures] == [True]


@pytest.mark.parametrize("verified", [True, False])
async def test_a_system_that_lost_events_before_it_failed_is_not_taken_for_a_mere_failure(
    verified: bool,
) -> None:
    workload = Scripted(sample(), sample(verified=verified), ValueError("then it failed"))

    results = await results_of(workload)

    text = markdown({**RESULT, "rows": [], "failures": results.failures})
    assert is_verified(results.failures) is verified
    assert ("AND EVENTS WERE LOST OR CHANGED" in text) is not verified


async def test_a_round_without_events_is_a_failure_too() -> None:
    results = await results_of(Scripted(sample(), sample(0)))

    assert (len(results.rows), len(results.failures)) == (0, 1)


async def test_a_system_that_hangs_fails_at_the_deadline() -> None:
    class Hangs(Scripted):
        async def measure(
            self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
        ) -> Sample:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    results = await results_of(Hangs(), measure_seconds_max=0.0)

    assert [each["error"] for each in results.failures] == ["TimeoutError"]


async def test_a_cancelled_run_ends() -> None:
    with pytest.raises(asyncio.CancelledError):
        await results_of(Scripted(sample(), asyncio.CancelledError()))


@pytest.mark.parametrize("at", ["start", "end"])
async def test_servers_that_fail_take_one_size_of_event_with_them_at_most(
    at: str, tmp_path: Path
) -> None:
    class Fragile(FakeSystem):
        runs = 0

        @asynccontextmanager
        async def run(self, directory: Path) -> AsyncIterator[None]:
            self.runs += 1
            if self.runs == 1 and at == "start":
                raise Unavailable("a server does not start")
            yield
            if self.runs == 1:
                raise Unavailable("a server does not stop")

    results, clock = Results(), FakeStopwatch()
    conditions = Conditions(EFFORT, clock, lambda _: None, steal_meter=ScriptedSteal)

    await run_workload(
        Scripted(), [Fragile(clock)], conditions=conditions, results=results, fresh_in=tmp_path
    )

    measured = [row["event_bytes"] for row in results.rows]
    assert measured == ([64] if at == "start" else [32, 64])
    assert [(each["event_bytes"], each["system"]) for each in results.failures] == [(32, "all")]


def test_a_failure_of_several_tasks_names_each_error_in_one_line() -> None:
    group = ExceptionGroup("tasks", [ValueError("two\nlines"), ExceptionGroup("x", [KeyError()])])

    assert error_text(group) == "ValueError: two lines; KeyError"


def test_an_error_with_a_remedy_tells_it() -> None:
    assert error_text(Unavailable("gone", remedy="start it")).endswith(" / try: start it")


async def test_a_round_with_too_much_stolen_time_is_repeated_and_the_repeat_counts() -> None:
    workload = Scripted(sample(), sample(500), sample(900), sample(900), sample(900))

    row = await row_with(workload, ScriptedSteal(5.1, 1.0, 2.0))

    assert row["range"]["events_per_s"] == [900.0, 900.0]  # type: ignore[index]
    assert (row["rounds"], row["repeats"], row["steal_percent"]) == (3, 1, 2.0)


async def test_stolen_time_at_the_limit_repeats_nothing() -> None:
    row = await row_with(Scripted(), ScriptedSteal(5.0, 5.0, 5.0))

    assert (row["repeats"], row["steal_percent"]) == (0, 5.0)


async def test_repeats_are_bounded_for_each_row_and_the_attempt_with_the_least_counts() -> None:
    workload = Scripted(sample(), sample(1), sample(900), sample(2), sample(3), sample(4))
    steal = ScriptedSteal(50.0, 10.0, 20.0, 30.0, 40.0, 60.0)

    row = await row_with(workload, steal)

    assert workload.measured == 1 + EFFORT.rounds + REPEATS_MAX
    assert row["range"]["events_per_s"] == [4.0, 1_000.0]  # type: ignore[index]
    assert (row["repeats"], row["steal_percent"]) == (REPEATS_MAX, 60.0)


def test_an_attempt_that_lost_events_spoils_the_round_even_if_another_counts() -> None:
    lost, sound = Attempt(sample(verified=False), 9.0), Attempt(sample(5), 1.0)

    assert counted([lost, sound]) == Attempt(sample(5, verified=False), 1.0)


def test_stolen_time_is_its_share_of_all_time_without_that_of_guests() -> None:
    before = processor_times("cpu  100 0 50 800 10 0 5 35 77 0\ncpu0 1 2 3\n")
    after = processor_times("cpu  140 0 60 890 20 0 5 85 99 0\ncpu0 1 2 3\n")

    assert before == (100, 0, 50, 800, 10, 0, 5, 35)
    assert stolen_percent(before, after) == 25.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cpu 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 8"),
        ("cpu 1 2 3 4 5 6 7 8", "cpu 9 2 3 4 5 6 7 1"),
        ("cpu 1 2 3 4", "cpu 9 9 9 9"),
    ],
    ids=["no time has passed", "the counter went back", "the kernel counts none"],
)
def test_no_stolen_time_is_made_up(before: str, after: str) -> None:
    assert stolen_percent(processor_times(before), processor_times(after)) == 0.0


async def test_the_table_has_stolen_time_beside_each_row_and_failures_below() -> None:
    row = await row_with(Scripted(), ScriptedSteal(9.0, 1.5))
    [failure] = (await results_of(Scripted(ValueError("odd")))).failures

    text = markdown({**RESULT, "rows": [row], "failures": [failure]})

    assert "1.5 (1 again)" in cells(row)
    assert "- FAILED: W0 32 B of fake in memory: ValueError: odd" in text
    assert "rounds repeated because the host stole more than 5 % of their time: 1" in text


async def test_a_result_from_before_stolen_time_was_kept_is_still_shown() -> None:
    row = await row_with(Scripted(), ScriptedSteal())
    old = {name: value for name, value in row.items() if name not in ("steal_percent", "repeats")}

    assert "| – |" in markdown({**RESULT, "rows": [old]})
