"""The loop of the controllers: bursts are one step, failures pause, only the leader acts."""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.ids import system_rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.topics.reconciler import PAUSE_S, Reconciler
from kit.topic_world import Leads
from kit.virtual_time import VirtualClock, run_virtual


class World:
    """A controller whose step notes when it ran, and whether it looked at everything."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.lead = Leads()
        self.containment = Containment(self.clock, system_rng())
        self.ran: list[tuple[float, bool]] = []
        self.answers: list[float | Exception | None] = []
        self.reconciler = Reconciler(
            "test", self.step, self.lead, self.clock,
            reconcile_s=60.0, containment=self.containment,
        )  # fmt: skip

    async def step(self, full: bool) -> float | None:
        self.ran.append((self.clock.monotonic(), full))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        world = World()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(world.reconciler.serve())
            await story(world)
            serving.cancel()

    run_virtual(told())


def test_the_first_step_looks_at_everything_and_then_one_in_each_period() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(130.0)
        assert [full for _, full in world.ran] == [True, True, True]
        assert [round(at_s) for at_s, _ in world.ran] == [0, 60, 120]

    play(story)


def test_a_burst_of_changes_is_one_step() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(1.0)
        for _ in range(1000):
            world.reconciler.wake()
            await asyncio.sleep(0)
        await world.clock.sleep(1.0)
        assert [full for _, full in world.ran] == [True, False]

    play(story)


def test_a_change_during_a_step_is_one_more_step() -> None:
    async def story(world: World) -> None:
        await world.clock.sleep(1.0)
        world.reconciler.wake()
        await world.clock.sleep(0.05)
        world.reconciler.wake()
        await world.clock.sleep(1.0)
        assert len(world.ran) == 3

    play(story)


def test_a_step_that_asks_for_another_one_gets_it_in_time() -> None:
    async def story(world: World) -> None:
        world.answers = [0.0, 5.0, None]
        await world.clock.sleep(30.0)
        assert [round(at_s) for at_s, _ in world.ran] == [0, 0, 5]

    play(story)


def test_a_failed_step_is_repeated_after_growing_pauses_and_looks_at_everything() -> None:
    async def story(world: World) -> None:
        world.answers = [Unavailable("away"), ValueError("a defect"), None]
        await world.clock.sleep(10.0)
        assert [full for _, full in world.ran] == [True, True, True]
        times = [at_s for at_s, _ in world.ran]
        assert times[1] - times[0] >= PAUSE_S
        assert times[2] - times[1] >= 2 * PAUSE_S
        assert world.containment.counts

    play(story)


def test_a_controller_that_does_not_lead_does_nothing_until_it_does() -> None:
    async def story(world: World) -> None:
        world.lead.leading = False
        await world.clock.sleep(0.0)
        world.ran.clear()
        for _ in range(5):
            world.reconciler.wake()
            await world.clock.sleep(1.0)
        assert not world.ran
        world.lead.leading = True
        for listener in world.lead.listeners:
            listener()
        await world.clock.sleep(1.0)
        assert [full for _, full in world.ran] == [True], "it looks at everything first"

    play(story)
