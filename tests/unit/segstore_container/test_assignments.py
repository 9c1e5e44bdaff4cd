"""Which containers have a keeper, whatever their placements went through."""

import asyncio
from typing import cast

from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import SystemClock
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node.assignments import Assignments
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.placements import Placements
from kit.container_driver import ManualTime
from kit.live_store import NODE
from kit.rng import seeded
from kit.store_parts import a_store


class SlowKeeper:
    """Takes a moment to end when it is cancelled; `at_work` counts those that have not ended."""

    gave_up_epoch = 0
    started = 0
    at_work = 0

    def note_target(self, target: str) -> None:
        return

    async def run(self) -> None:
        kind = type(self)
        kind.started += 1
        kind.at_work += 1
        assert kind.at_work == 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            kind.at_work -= 1


async def test_a_container_that_comes_back_while_its_keeper_ends_gets_another_one() -> None:
    class Keeper(SlowKeeper):
        pass

    objects = InMemoryObjectStore()
    assignments = Assignments(
        objects=objects,
        placements=Placements(objects, NODE),
        store=a_store(1, new_catch_up(Cache(0), SystemClock(), ManualTime().call_later)),
        clock=SystemClock(),
        back_off_s=drawn_from(seeded(0)),
        new_keeper=lambda _: cast("ContainerKeeper", Keeper()),
    )
    mine, elsewhere = Placement(0, (NODE,)), Placement(0, ("other",))
    async with asyncio.TaskGroup() as group:
        assignments.consider(mine, group)
        await asyncio.sleep(0)
        # when it is moved away and back before the keeper has ended
        assignments.consider(elsewhere, group)
        assignments.consider(mine, group)
        for _ in range(6):
            await asyncio.sleep(0)
        # then a second one is at work
        assert (Keeper.started, Keeper.at_work) == (2, 1)
        assignments.consider(elsewhere, group)
    assert Keeper.at_work == 0
