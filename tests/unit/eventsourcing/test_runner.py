"""The runner: performs what a state asks for, pauses after failures, never spins."""

import asyncio

from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.runner import Runner, Workflow, run_to_rest
from kit.countdown import COUNTDOWN, Countdown, Counted, Step
from kit.loud import loud

SUBJECT = "ana.evt.1.scope.countdown"


class FakeClock:
    """Sleeping ends when the test says so."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []
        self.wake = asyncio.Event()

    def now_ms(self) -> int:
        return 1_000 + len(self.sleeps)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await self.wake.wait()


class Work:
    """The step, its failures to come, and how often it ran."""

    def __init__(self, *failures: AnabranchError) -> None:
        self.failures = list(failures)
        self.runs = 0
        self.done = asyncio.Event()
        self.repository = Repository(InMemoryEventStore(), COUNTDOWN, SeededIds(1))

    async def count(self, loaded: Loaded[Countdown]) -> Counted:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)
        if loaded.state.left == 1:
            self.done.set()
        return Counted()

    def workflow(self) -> Workflow[Countdown, Counted, Step]:
        return Workflow(
            self.repository,
            lambda state: Step.COUNT if state.left > 0 else None,
            {Step.COUNT: self.count},
        )


async def test_steps_run_until_nothing_is_left() -> None:
    work = Work()

    rested = await run_to_rest(work.workflow(), SUBJECT)

    assert (rested.state.left, work.runs) == (0, 3)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_failed_step_pauses_is_visible_and_then_goes_on() -> None:
    work, clock = Work(Unavailable("first"), Unavailable("second")), FakeClock()
    runner = Runner(work.workflow(), clock, system_rng(), containment=loud(clock))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(runner.serve())
        runner.wake(SUBJECT)
        await settle()
        (failure,) = runner.failures()
        assert failure.error is not None
        assert (failure.step, failure.attempts, failure.error.message) == ("count", 1, "first")

        runner.wake(SUBJECT)
        await settle()
        assert work.runs == 1  # waking does not cut the pause short

        clock.wake.set()
        await work.done.wait()
        await settle()
        serving.cancel()

    assert runner.failures() == []
    assert len(clock.sleeps) == 2
    assert work.runs == 5


async def test_one_aggregate_is_worked_on_by_one_task() -> None:
    work = Work()
    runner = Runner(work.workflow(), FakeClock(), system_rng(), containment=loud())
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(runner.serve())
        for _ in range(10):
            runner.wake(SUBJECT)
        await work.done.wait()
        await settle()
        serving.cancel()

    assert work.runs == 3


async def test_many_things_are_done_few_at_a_time() -> None:
    running, most, done = 0, 0, []

    async def action(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(item)

    await for_each(range(1000), 32, action)

    assert sorted(done) == list(range(1000))
    assert most == 32


async def test_after_a_failure_nothing_new_is_begun() -> None:
    begun: list[int] = []

    async def action(item: int) -> None:
        begun.append(item)
        await asyncio.sleep(0)
        raise Unavailable("down")

    failure: AnabranchError | None = None
    try:
        await for_each(range(1000), 4, action)
    except Unavailable as error:
        failure = error

    assert failure is not None
    assert len(begun) == 4
