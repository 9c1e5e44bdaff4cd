"""What a defect ends, and what it does not: steps, jobs, and one thing among many."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.common.errors import Parked, ProcessReplaced, StreamRewound, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import (
    JOB,
    PARK_AT_COUNT,
    STEP,
    Containment,
    aggregate_name,
)
from anabranch.common.workflow.runner import Runner, Workflow
from anabranch.controller.domain.stream.invariants import STREAM
from kit.countdown import COUNTDOWN, Countdown, Counted, Step
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

BAD, GOOD = "ana.evt.1.stream.demo.bad", "ana.evt.1.stream.demo.good"
HOUR_S = 3600.0


class World:
    """A runner of countdowns, in virtual time; `obstacles` are raised for BAD, one per try."""

    def __init__(self, obstacle: Exception | None = None) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.containment = Containment(self.clock, seeded(1))
        self.repository = Repository(InMemoryEventStore(), COUNTDOWN, SeededIds(1))
        self.obstacle = obstacle
        self.owned = {BAD, GOOD}
        self.tries = 0
        workflow = Workflow(
            self.repository, lambda state: Step.COUNT if state.left else None, {Step.COUNT: self}
        )
        self.runner = Runner(
            workflow, self.clock, seeded(1), self.owned.__contains__, containment=self.containment
        )

    async def __call__(self, loaded: Loaded[Countdown]) -> Counted:
        if loaded.subject == BAD and self.obstacle is not None:
            self.tries += 1
            raise self.obstacle
        return Counted()

    async def left(self, subject: str) -> int:
        return (await self.repository.load(subject)).state.left


def in_virtual_time(story: Callable[[World], Awaitable[None]], obstacle: Exception) -> None:
    async def live() -> None:
        world = World(obstacle)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(world.runner.serve())
            world.runner.wake(BAD)
            world.runner.wake(GOOD)
            await story(world)
            serving.cancel()

    run_virtual(live())


@pytest.mark.parametrize(
    "obstacle", [KeyError("x"), AssertionError("P9"), ExceptionGroup("g", [ValueError()])]
)
def test_a_step_with_a_defect_is_parked_after_ten_tries_and_others_go_on(
    obstacle: Exception,
) -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(0.1)
        assert await world.left(GOOD) == 0

        await world.clock.sleep(HOUR_S)
        world.runner.wake(BAD)
        await world.clock.sleep(HOUR_S)

        assert world.tries == PARK_AT_COUNT == 10
        (failure,) = world.runner.failures()
        assert (failure.subject, failure.attempts) == (BAD, 10)
        assert world.containment.is_parked(STEP, BAD)
        assert world.containment.parked_counts()[STEP,] == 1
        assert world.containment.summary().startswith("1 with defects, 1 of them parked")
        with pytest.raises(Parked) as refused:
            world.containment.require_not_parked(BAD)
        assert "`anabranch operation redrive stream:demo/bad`" in refused.value.remedy
        world.containment.require_not_parked(GOOD)

    in_virtual_time(story, obstacle)


def test_parked_work_goes_on_when_it_is_redriven() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(HOUR_S)
        world.obstacle = None

        world.containment.forgive(STEP, BAD)
        world.runner.wake(BAD)
        await world.clock.sleep(1)

        assert await world.left(BAD) == 0
        assert world.containment.all() == []
        assert world.runner.failures() == []

    in_virtual_time(story, KeyError("x"))


def test_who_takes_parked_work_over_tries_it_anew() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(HOUR_S)
        world.owned.discard(BAD)
        world.runner.let_go()
        assert world.containment.all() == []
        assert world.runner.progress() == []

        world.owned.add(BAD)
        world.runner.wake(BAD)
        await world.clock.sleep(HOUR_S)

        assert world.tries == 2 * PARK_AT_COUNT

    in_virtual_time(story, KeyError("x"))


def test_a_store_that_is_away_is_no_defect_and_parks_nothing() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(HOUR_S)
        assert world.containment.all() == []
        assert world.tries > PARK_AT_COUNT

    in_virtual_time(story, Unavailable("x"))


def test_an_invariant_that_a_decision_breaks_parks_its_aggregate_alone() -> None:
    async def live() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        containment = Containment(clock, seeded(1))
        streams: Repository[Any, Any] = Repository(InMemoryEventStore(), STREAM, SeededIds(1))

        async def impossible(_loaded: Loaded[Any]) -> Any:
            return object()

        workflow = Workflow(streams, lambda _: "impossible", {"impossible": impossible})
        runner = Runner(workflow, clock, seeded(1), containment=containment)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(runner.serve())
            runner.wake(BAD)
            await clock.sleep(HOUR_S)
            serving.cancel()
        assert containment.is_parked(STEP, BAD)

    run_virtual(live())


# --- jobs ---------------------------------------------------------------------------------------


class Job:
    """Fails so often, then serves until it is cancelled."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.begun = 0

    async def serve(self) -> None:
        self.begun += 1
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.Event().wait()


def kept(job: Job, seconds: float) -> Containment:
    """Keep the job for so long, in virtual time. Raises what it raises."""

    async def live() -> Containment:
        clock = VirtualClock(asyncio.get_running_loop())
        containment = Containment(clock, seeded(1))
        try:
            async with asyncio.timeout(seconds):
                await containment.keep("job", job.serve, StreamRewound, ProcessReplaced)
        except TimeoutError:
            return containment
        return containment

    return run_virtual(live())


def test_a_job_goes_on_whatever_it_raises() -> None:
    job = Job(KeyError("x"), Unavailable("y"), ExceptionGroup("z", [ValueError()]))

    containment = kept(job, 60)

    assert (job.begun, job.failures) == (4, [])
    assert containment.counts[JOB,] == 3
    assert not containment.is_parked(JOB, "job")


def test_a_job_that_fails_for_ever_pauses_longer_and_longer() -> None:
    job = Job(*[KeyError("x")] * 1000)

    kept(job, 600)

    assert 25 < job.begun < 60


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: ExceptionGroup("g", [one])])
def test_what_is_to_end_the_process_ends_it(wrap: Callable[[Exception], Exception]) -> None:
    raised = wrap(StreamRewound("a shard was lost"))
    with pytest.raises(type(raised)):
        kept(Job(raised), 60)


def test_a_job_that_ends_by_itself_is_not_begun_again() -> None:
    class Once(Job):
        async def serve(self) -> None:
            self.begun += 1

    job = Once()
    kept(job, 60)
    assert job.begun == 1


# --- one thing among many -----------------------------------------------------------------------


def test_one_thing_of_a_job_is_tried_less_and_less_and_then_parked() -> None:
    tries: list[float] = []

    async def live() -> Containment:
        clock = VirtualClock(asyncio.get_running_loop())
        containment = Containment(clock, seeded(1))

        async def fail() -> None:
            tries.append(clock.monotonic())
            raise KeyError("x")

        for _ in range(1200):
            await containment.attempt("expiry", GOOD, fail)
            await clock.sleep(0.1)
        return containment

    containment = run_virtual(live())

    assert len(tries) == PARK_AT_COUNT
    assert tries[-1] - tries[-2] > 10
    assert containment.is_parked("expiry", GOOD)


async def test_success_forgives_and_cancellation_and_named_errors_pass() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    containment = Containment(clock, seeded(1))
    with containment.contained("job", "x"):
        raise KeyError("x")
    with pytest.raises(Unavailable), containment.contained("job", "x"):
        raise Unavailable("x")
    with pytest.raises(asyncio.CancelledError), containment.contained("job", "x"):
        raise asyncio.CancelledError
    assert [one.count for one in containment.all()] == [1]

    with containment.contained("job", "x"):
        pass

    assert containment.all() == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.common.workflow.containment.KEPT_COUNT_MAX", 3)

    async def live() -> list[str]:
        containment = Containment(VirtualClock(asyncio.get_running_loop()), seeded(1))
        for number in range(9):
            containment.note(STEP, str(number), KeyError("x"))
        return sorted(one.subject for one in containment.all())

    assert run_virtual(live()) == ["6", "7", "8"]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("ana.evt.3.scope.de=mo", "scope:de.mo"),
        ("ana.evt.3.stream.demo.one", "stream:demo/one"),
        ("ana.evt.3.rg.demo.readers", "rg:demo/readers"),
        ("expiry of transactions", "expiry of transactions"),
    ],
)
def test_an_aggregate_has_a_name_that_an_operator_can_type(subject: str, name: str) -> None:
    assert aggregate_name(subject) == name
