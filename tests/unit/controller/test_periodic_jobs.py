"""The loop of periodic jobs: when rounds come, what their failures cost, and what is measured."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.backoff import Backoff
from anabranch.controller.periodic.job import Job, repeat
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

PERIOD_S = 10.0


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test())

    run.__name__ = test.__name__
    return run


@dataclass
class World:
    """A job whose rounds take `takes_s`, and raise `error` while there is one."""

    takes_s: float = 0.0
    error: Exception | None = None
    began_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.start_s = self.clock.monotonic()
        self.job = Job(
            name="a job",
            period_s=PERIOD_S,
            jitter=0.0,
            round=self.round,
            failing="nothing is done",
            close=self.close,
        )

    async def round(self) -> None:
        self.began_s.append(round(self.clock.monotonic() - self.start_s, 3))
        await self.clock.sleep(self.takes_s)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        self.closed += 1

    def measure(self, _job: str, late_s: float, took_s: float) -> None:
        self.late_s.append(round(late_s, 3))
        self.took_s.append(round(took_s, 3))

    async def repeat_for(
        self, seconds: float, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(
                repeat(
                    self.job,
                    self.clock,
                    seeded(1),
                    measure=self.measure,
                    report=self.reports.append,
                )
            )
            if meanwhile is not None:
                await meanwhile()
            await self.clock.sleep(seconds)
            serving.cancel()


@virtual
async def test_the_first_round_comes_at_once_and_the_others_after_the_period() -> None:
    world = World()
    await world.repeat_for(35)
    assert world.began_s == [0, 10, 20, 30]
    assert world.late_s == [0, 0, 0, 0]
    assert world.closed == 1


@virtual
async def test_a_round_that_takes_long_makes_the_next_one_late() -> None:
    world = World(takes_s=4)
    await world.repeat_for(30)
    assert world.began_s == [0, 14, 28]
    assert world.late_s == [0, 4], "the third round has not ended"
    assert world.took_s == [4, 4]


@virtual
async def test_jitter_makes_pauses_longer_by_at_most_its_part() -> None:
    world = World()
    world.job = replace(world.job, jitter=0.5)
    await world.repeat_for(200)
    pauses = [after - before for before, after in itertools.pairwise(world.began_s)]
    assert all(PERIOD_S <= pause < 1.5 * PERIOD_S for pause in pauses)
    assert len(set(pauses)) > 5
    assert world.late_s == [0] * len(world.late_s)


@virtual
async def test_failures_in_a_row_are_told_once_and_the_period_goes_on() -> None:
    world = World(error=Unavailable("the store is away"))
    structlog.reset_defaults()

    async def mend() -> None:
        await world.clock.sleep(25)
        world.error = None

    with capture_logs() as logs:
        await world.repeat_for(20, mend)

    assert world.began_s == [0, 10, 20, 30, 40]
    assert world.reports[0] == "nothing is done: the store is away"
    assert set(world.reports[1:]) == {""}
    assert [(log["log_level"], log["job"]) for log in logs] == [
        ("warning", "a job"),
        ("info", "a job"),
    ]


@virtual
async def test_a_failing_job_with_pauses_of_its_own_is_not_woken_before_they_end() -> None:
    world = World(error=OSError("the disk is gone"))
    woken = asyncio.Event()
    world.job = replace(world.job, woken=woken, retry=Backoff(first_s=100, longest_s=100))

    async def wake() -> None:
        await world.clock.sleep(1)
        woken.set()

    await world.repeat_for(30, wake)
    assert world.began_s == [0]


@virtual
async def test_a_job_that_is_woken_does_not_wait_for_its_period() -> None:
    world = World()
    woken = asyncio.Event()
    world.job = replace(world.job, woken=woken)

    async def wake() -> None:
        await world.clock.sleep(3)
        woken.set()

    await world.repeat_for(12, wake)
    assert world.began_s == [0, 3, 13]
    assert world.late_s == [0, 0, 0]


@virtual
async def test_a_defect_ends_the_loop_for_its_keeper_and_lets_go_of_everything() -> None:
    world = World(error=KeyError("a defect"))
    with pytest.raises(KeyError):
        await repeat(
            world.job,
            world.clock,
            seeded(1),
            measure=lambda _job, _late_s, _took_s: None,
            report=world.reports.append,
        )
    assert world.closed == 1
