"""The controller of SPU groups: it reserves, creates, drains and deletes, step by step."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from anabranch.common.contracts.objects import SPU, SPU_GROUP
from anabranch.common.contracts.queries import DrainChange, DrainStore
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.objects import (
    Spu,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    SpuType,
)
from anabranch.common.runtime.ids import system_rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects.dispatcher import Dispatcher
from anabranch.controller.cluster.topics.group_controller import GroupController
from anabranch.controller.cluster.topics.performing import Performer
from kit.virtual_time import VirtualClock, run_virtual


class Marks:
    """The drained stores."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.complete = True

    async def perform(self, change: DrainChange, known: Collection[str]) -> bool:
        assert change.node_id in known
        if isinstance(change, DrainStore):
            self.nodes.add(change.node_id)
        else:
            self.nodes.discard(change.node_id)
        return isinstance(change, DrainStore)


class World:
    def __init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.clock, self.marks, self.holding = clock, Marks(), set[str]()
        self.buckets = {kind.bucket: InMemoryObjectStore() for kind in (SPU, SPU_GROUP)}
        containment = Containment(clock, system_rng())
        self.spus = Dispatcher(SPU, self.buckets[SPU.bucket], clock, containment=containment)
        self.groups = Dispatcher(
            SPU_GROUP, self.buckets[SPU_GROUP.bucket], clock, containment=containment
        )
        self.controller = GroupController(
            self.groups.store,
            self.spus.store,
            self.marks,
            Performer([self.spus, self.groups]),
            holding=lambda name: name in self.holding,
            holding_known=lambda: True,
        )

    async def steps(self, count: int = 8) -> None:
        for _ in range(count):
            await self.clock.sleep(0.1)
            await self.controller.step(full=True)

    async def group(self) -> SpuGroup | None:
        found = await self.buckets[SPU_GROUP.bucket].get("main")
        return None if found is None else SPU_GROUP.from_stored(found)

    async def store(self, group: SpuGroup) -> None:
        bucket, found = self.buckets[SPU_GROUP.bucket], await self.group()
        value = SPU_GROUP.to_bytes(group)
        if found is None:
            await bucket.create("main", value)
        else:
            await bucket.update("main", value, found.revision)

    async def store_spus_of(self, name: str) -> None:
        for index in range(2):
            spec = SpuSpec(11 + index, SpuType.MANAGED)
            spu = Spu(f"{name}-{index}", spec, SpuStatus(), owner=name)
            await self.buckets[SPU.bucket].create(spu.key, SPU.to_bytes(spu))

    async def names(self) -> list[str]:
        return [one.key for one in await self.buckets[SPU.bucket].list()]


def group(replicas: int, *, deleting: bool = False) -> SpuGroup:
    return SpuGroup("main", SpuGroupSpec(replicas, min_id=11), SpuGroupStatus(), deleting=deleting)


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        world = World()
        async with asyncio.TaskGroup() as tasks:
            serving = [tasks.create_task(one.serve()) for one in (world.spus, world.groups)]
            await story(world)
            for task in serving:
                task.cancel()

    run_virtual(told())


def test_a_group_gets_its_spus_and_loses_the_highest_once_it_holds_nothing() -> None:
    async def story(world: World) -> None:
        await world.store(group(3))
        await world.steps()
        found = await world.group()
        assert found is not None
        assert found.status.resolution is SpuGroupResolution.RESERVED
        assert await world.names() == ["main-0", "main-1", "main-2"]
        world.holding = {"main-2"}
        await world.store(group(2))
        await world.steps()
        assert world.marks.nodes == {"main-2"}
        assert await world.names() == ["main-0", "main-1", "main-2"], "it still holds replicas"
        world.holding = set()
        await world.steps()
        assert await world.names() == ["main-0", "main-1"]

    play(story)


def test_a_deleted_group_goes_after_its_spus() -> None:
    async def story(world: World) -> None:
        await world.store(group(2))
        await world.steps()
        await world.store(group(2, deleting=True))
        await world.steps()
        assert await world.names() == []
        assert await world.group() is None

    play(story)


def test_the_spus_of_a_group_that_cannot_be_read_stay() -> None:
    async def story(world: World) -> None:
        await world.store(group(2))
        await world.steps()
        bucket, found = world.buckets[SPU_GROUP.bucket], await world.group()
        assert found is not None
        await bucket.update("main", b"{", found.revision)
        await world.steps()
        assert await world.names() == ["main-0", "main-1"]
        assert not any(spu.deleting for spu in world.spus.store)
        assert not world.marks.nodes

    play(story)


def test_a_controller_that_starts_beside_a_damaged_group_keeps_its_spus() -> None:
    async def story(world: World) -> None:
        await world.buckets[SPU_GROUP.bucket].create("main", b"{")
        await world.store_spus_of("main")
        await world.steps()
        assert await world.names() == ["main-0", "main-1"]
        assert not any(spu.deleting for spu in world.spus.store)
        assert not world.marks.nodes

    play(story)
