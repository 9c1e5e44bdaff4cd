"""Which containers have a keeper, whatever their placements went through."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.errors import AnabranchError, Unavailable, WrongHost
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import SystemClock
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node.assignments import Assignments
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.store import OpenContainer, Store
from kit.container_driver import ManualTime
from kit.live_store import NODE
from kit.rng import seeded
from kit.store_parts import a_store

MINE, ELSEWHERE = Placement(0, (NODE,)), Placement(0, ("other",))


class SlowKeeper:
    """Takes a moment to end when it is cancelled; `at_work` counts those that have not ended."""

    gave_up_epoch = 0
    releasing = False
    started = 0
    at_work = 0

    def note_target(self, target: str, *, in_sync: bool = False) -> None:
        return

    def note_epoch(self, container_epoch: int) -> None:
        return

    async def run(self) -> None:
        kind = type(self)
        kind.started += 1
        kind.at_work += 1
        assert kind.at_work == 1
        try:
            await self.work()
        finally:
            await asyncio.sleep(0)
            kind.at_work -= 1

    async def work(self) -> None:
        await asyncio.Event().wait()


def a_store_of_one() -> Store:
    return a_store(1, new_catch_up(Cache(0), SystemClock(), ManualTime().call_later))


def assignments_of(
    keeper: type[SlowKeeper],
    store: Store | None = None,
    objects: InMemoryObjectStore | None = None,
) -> Assignments:
    objects = objects or InMemoryObjectStore()
    return Assignments(
        objects=objects,
        placements=Placements(objects, NODE),
        store=store or a_store_of_one(),
        clock=SystemClock(),
        back_off_s=drawn_from(seeded(0)),
        new_keeper=lambda _: cast("ContainerKeeper", keeper()),
    )


async def a_few_turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_a_container_that_comes_back_while_its_keeper_ends_gets_another_one() -> None:
    class Keeper(SlowKeeper):
        pass

    assignments = assignments_of(Keeper)
    async with asyncio.TaskGroup() as group:
        assignments.consider(MINE, group)
        await asyncio.sleep(0)
        # when it is moved away and back before the keeper has ended
        assignments.consider(ELSEWHERE, group)
        assignments.consider(MINE, group)
        await a_few_turns()
        # then a second one is at work
        assert (Keeper.started, Keeper.at_work) == (2, 1)
        assignments.consider(ELSEWHERE, group)
    assert Keeper.at_work == 0


async def test_a_container_that_was_given_up_here_is_opened_when_it_comes_back() -> None:
    class Keeper(SlowKeeper):
        async def work(self) -> None:
            self.gave_up_epoch = 3

    given_up = Placement(0, (NODE,), container_epoch=3)
    assignments = assignments_of(Keeper)
    async with asyncio.TaskGroup() as group:
        assignments.consider(given_up, group)
        await a_few_turns()
        assignments.consider(given_up, group)
        await a_few_turns()
        assert Keeper.started == 1, "a late update of the watch changes nothing"
        assignments.consider(ELSEWHERE, group)
        assignments.consider(given_up, group)
        await a_few_turns()
        assert Keeper.started == 2


async def test_a_container_that_was_placed_elsewhere_ends_before_its_keeper_does() -> None:
    class Keeper(SlowKeeper):
        pass

    ends: list[AnabranchError] = []
    store = a_store_of_one()
    container = SimpleNamespace(container=0, fail=ends.append)
    store.opened(cast("OpenContainer", SimpleNamespace(container=container)))
    assignments = assignments_of(Keeper, store)
    async with asyncio.TaskGroup() as group:
        assignments.consider(MINE, group)
        await asyncio.sleep(0)
        assignments.consider(ELSEWHERE, group)
        assert [type(error) for error in ends] == [WrongHost]
        assert Keeper.at_work == 1


async def test_a_keeper_that_has_released_its_container_finishes_its_work() -> None:
    done = asyncio.Event()

    class Keeper(SlowKeeper):
        releasing = True

        async def work(self) -> None:
            await done.wait()

    assignments = assignments_of(Keeper)
    async with asyncio.TaskGroup() as group:
        assignments.consider(MINE, group)
        await asyncio.sleep(0)
        # the other store takes the container, and then its epoch
        assignments.consider(ELSEWHERE, group)
        assignments.consider(ELSEWHERE, group)
        await a_few_turns()
        assert Keeper.at_work == 1
        assignments.consider(MINE, group)
        await a_few_turns()
        assert Keeper.started == 1, "the next one waits"
        done.set()
        await a_few_turns()
        assert Keeper.started == 2


async def test_a_damaged_placement_keeps_no_other_container_from_being_opened() -> None:
    class Keeper(SlowKeeper):
        pass

    # given a damaged placement before a sound one
    objects = InMemoryObjectStore()
    await objects.create(placement_key(0), b"{")
    await objects.create(placement_key(1), placement_to_bytes(Placement(1, (NODE,))))
    assignments = assignments_of(Keeper, objects=objects)
    # when they are followed
    async with asyncio.TaskGroup() as group:
        task = group.create_task(assignments.run())
        await a_few_turns()
        # then the sound one is opened
        assert Keeper.at_work == 1
        task.cancel()


class InterruptedObjects(InMemoryObjectStore):
    """The first watch is lost after its list; the next one begins when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.again = asyncio.Event()
        self._watches = 0

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        self._watches += 1
        if self._watches > 1:
            await self.again.wait()
        async for found in super().watch():
            yield found
            if found is None and self._watches == 1:
                raise Unavailable("the watch was lost")


@pytest.mark.parametrize("lost", ["deletion", "change"])
async def test_a_change_that_falls_between_two_watches_is_found_in_the_next_list(lost: str) -> None:
    class Keeper(SlowKeeper):
        pass

    objects = InterruptedObjects()
    revision = await objects.create(placement_key(0), placement_to_bytes(MINE))
    assignments = assignments_of(Keeper, objects=objects)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(assignments.run())
        await a_few_turns()
        assert Keeper.at_work == 1
        # when the watch is lost, and the placement goes meanwhile
        if lost == "deletion":
            await objects.delete(placement_key(0), revision)
        else:
            await objects.update(placement_key(0), placement_to_bytes(ELSEWHERE), revision)
        await a_few_turns()
        assert Keeper.at_work == 1, "the store cannot know it yet"
        objects.again.set()
        # then the container ends with the next list
        async with asyncio.timeout(5):
            while Keeper.at_work:  # noqa: ASYNC110
                await asyncio.sleep(0)
        task.cancel()


async def test_a_container_whose_placement_is_deleted_ends() -> None:
    class Keeper(SlowKeeper):
        pass

    objects = InMemoryObjectStore()
    revision = await objects.create(placement_key(0), placement_to_bytes(MINE))
    assignments = assignments_of(Keeper, objects=objects)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(assignments.run())
        await a_few_turns()
        assert Keeper.at_work == 1
        await objects.delete(placement_key(0), revision)
        await a_few_turns()
        assert Keeper.at_work == 0
        task.cancel()
