"""When a workload's clock starts, and that a slow machine measures something at least."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bench.case import QUICK, Case, case_of
from bench.workloads.w4_many_awaiting import TASKS, ManyAwaiting
from bench.workloads.w14_control import CALLERS, act_by_callers
from kit.bench_fake import FakeStopwatch, FakeStream, FakeSystem

CASE = case_of(32)


class SlowToOpen(FakeSystem):
    """Making a stream takes longer than the time for which a round measures."""

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[FakeStream]:
        async with super().stream(case) as stream:
            self._clock.advance(10.0)
            yield stream


async def test_the_clock_of_many_tasks_starts_when_their_stream_is_there() -> None:
    clock = FakeStopwatch()
    effort = replace(QUICK, awaited_s=0.2)

    found = await ManyAwaiting(frozenset()).measure(
        SlowToOpen(clock), CASE, effort, clock, warm_up=False
    )

    assert found.verified
    assert found.events >= 0.2 / 0.001
    assert found.seconds == pytest.approx(0.2, rel=0.5)


@pytest.mark.parametrize("seconds", [0.0, 0.03])
async def test_every_task_writes_one_event_however_slow_the_machine_is(seconds: float) -> None:
    clock = FakeStopwatch(step_s=1.0)
    effort = replace(QUICK, awaited_s=seconds)

    found = await ManyAwaiting(frozenset()).measure(
        FakeSystem(clock), CASE, effort, clock, warm_up=False
    )

    assert found.events == TASKS


async def test_every_caller_of_a_controller_acts_once_however_slow_the_machine_is() -> None:
    acted: list[None] = []

    async def act() -> None:
        acted.append(None)

    late_ms = await act_by_callers(act, FakeStopwatch(step_s=1.0), 0.03)

    assert len(late_ms) == len(acted) == CALLERS
