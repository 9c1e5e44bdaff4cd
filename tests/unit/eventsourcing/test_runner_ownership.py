"""The runner works on what is its own, rests where a step waits, and tells how far it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.progress import StepProgress
from anabranch.common.workflow.runner import REST_S_MAX, Runner, Workflow, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from kit.countdown import COUNTDOWN, Countdown, Counted, CountingStore, Step
from kit.loud import loud
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

MINE = "ana.evt.1.scope.mine"
OTHER = "ana.evt.2.scope.other"


class World:
    """A runner whose steps do what the test says, in virtual time."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.repository = Repository(self.store, COUNTDOWN, SeededIds(1))
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.owned = {1}
        self.begun: list[tuple[str, int]] = []
        self.obstacles: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        workflow = Workflow(
            self.repository, lambda state: Step.COUNT if state.left else None, {Step.COUNT: self}
        )
        self.runner = Runner(
            workflow, self.clock, seeded(1), self.owns, containment=loud(self.clock)
        )

    def owns(self, subject: str) -> bool:
        return shard_of_subject(subject) in self.owned

    async def __call__(self, loaded: Loaded[Countdown]) -> Counted:
        self.begun.append((loaded.subject, loaded.state.left))
        await self.gate.wait()
        if self.obstacles:
            raise self.obstacles.pop(0)
        return Counted()

    async def left(self, subject: str) -> int:
        return (await self.repository.load(subject)).state.left

    def told(self) -> StepProgress:
        (found,) = self.runner.progress()
        return found


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(made.runner.serve())
        await asyncio.sleep(0)
        yield made
        serving.cancel()


def test_what_is_not_owned_is_not_worked_on() -> None:
    async def main() -> None:
        async with world() as here:
            here.runner.wake(MINE)
            here.runner.wake(OTHER)
            await asyncio.sleep(60)
            assert here.store.loads == 1
            assert (await here.left(MINE), await here.left(OTHER)) == (0, 3)
            assert here.runner.active_count == 0

            here.owned = {1, 2}
            here.runner.wake(OTHER)
            await asyncio.sleep(60)
            assert await here.left(OTHER) == 0

    run_virtual(main())


def test_a_step_under_way_ends_after_the_loss_and_no_other_one_begins() -> None:
    async def main() -> None:
        async with world() as here:
            here.gate.clear()
            here.runner.wake(MINE)
            await asyncio.sleep(1)
            here.owned = set()
            here.runner.let_go()
            assert here.runner.progress() == []
            here.gate.set()
            await asyncio.sleep(60)
            assert here.begun == [(MINE, 3)]
            assert await here.left(MINE) == 2
            assert here.runner.active_count == 0

    run_virtual(main())


def test_what_is_queued_fails_or_waits_is_forgotten_with_its_bucket() -> None:
    async def main() -> None:
        async with world() as here:
            waiting, failing = f"{MINE}-waiting", f"{MINE}-failing"
            here.obstacles = [StillWaiting("not yet"), Unavailable("down")]
            here.runner.wake(waiting)
            here.runner.wake(failing)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            here.runner.wake(MINE)
            assert here.runner.active_count == 3
            here.owned = set()
            here.runner.let_go()
            assert here.runner.active_count == 1  # the pause after the failure goes on
            await asyncio.sleep(60)
            assert here.begun == [(waiting, 3), (failing, 3)]
            assert here.runner.active_count == 0
            assert here.runner._board.all() == []

    run_virtual(main())


def test_a_bucket_that_comes_back_while_a_failure_pauses_goes_on() -> None:
    async def main() -> None:
        async with world() as here:
            here.obstacles = [Unavailable("down")]
            here.runner.wake(MINE)
            await asyncio.sleep(0.001)
            here.owned = set()
            here.runner.let_go()
            here.owned = {1}
            here.runner.wake(MINE)
            await asyncio.sleep(60)
            assert await here.left(MINE) == 0

    run_virtual(main())


def test_a_step_that_waits_is_no_failure_and_runs_again_within_a_second() -> None:
    async def main() -> None:
        async with world() as here:
            here.obstacles = [StillWaiting("the other stream lives")] * 3
            began_ms = here.clock.now_ms()
            here.runner.wake(MINE)
            await asyncio.sleep(0.001)
            assert here.runner.failures() == []
            assert here.runner.failing_count == 0
            assert here.told() == StepProgress(
                MINE, "count", began_ms, attempts=1, reason="the other stream lives"
            )
            await asyncio.sleep(REST_S_MAX)
            assert here.told().attempts == 2
            await asyncio.sleep(2 * REST_S_MAX)
            assert await here.left(MINE) == 0
            assert here.runner.progress() == []

    run_virtual(main())


def test_a_wake_up_ends_the_rest_and_leaves_no_second_timer() -> None:
    async def main() -> None:
        async with world() as here:
            here.obstacles = [StillWaiting("not yet")] * 1000
            here.runner.wake(MINE)
            await asyncio.sleep(0.001)
            for times in range(2, 100):
                here.runner.wake(MINE)
                await asyncio.sleep(0.001)
                assert len(here.begun) == times
            begun = len(here.begun)
            await asyncio.sleep(10 * REST_S_MAX)
            assert len(here.begun) - begun <= 20  # one timer, of half a second at least

    run_virtual(main())


def test_a_wake_up_while_the_step_finds_that_it_must_wait_is_not_lost() -> None:
    async def main() -> None:
        async with world() as here:
            here.obstacles = [StillWaiting("not yet")]
            here.gate.clear()
            here.runner.wake(MINE)
            await asyncio.sleep(0.001)
            here.runner.wake(MINE)
            here.gate.set()
            await asyncio.sleep(0.001)
            assert await here.left(MINE) == 0

    run_virtual(main())


def test_progress_tells_what_runs_what_fails_and_how_often() -> None:
    async def main() -> None:
        async with world() as here:
            here.gate.clear()
            here.runner.wake(MINE)
            await asyncio.sleep(5)
            began_ms = here.clock.now_ms() - 5000
            assert here.told() == StepProgress(MINE, "count", began_ms)
            here.obstacles = [Unavailable("down")] * 2
            here.gate.set()
            await asyncio.sleep(0.11)
            found = here.told()
            assert (found.attempts, found.since_ms, str(found.error)) == (2, began_ms, "down")
            await asyncio.sleep(60)
            assert here.runner.progress() == []

    run_virtual(main())


async def test_steps_in_a_row_load_the_aggregate_once() -> None:
    here = World()

    await run_to_rest(here.runner._workflow, MINE)

    assert (here.store.loads, here.begun) == (1, [(MINE, 3), (MINE, 2), (MINE, 1)])


async def test_a_lost_race_loads_it_again() -> None:
    here = World()
    rival = Repository(here.store, COUNTDOWN, SeededIds(2))

    async def overtake(loaded: Loaded[Countdown]) -> Counted:
        if not here.begun:
            await rival.transact(MINE, lambda _: [Counted()])
            here.store.loads = 1
        return await here(loaded)

    workflow = Workflow(here.repository, here.runner._workflow.next_step, {Step.COUNT: overtake})
    rested = await run_to_rest(workflow, MINE)

    assert rested.state.left == 0
    assert (here.store.loads, here.begun) == (2, [(MINE, 3), (MINE, 2), (MINE, 1)])
