"""The rebalancing of topics: planned, begun a few moves at a time, told, and ended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from anabranch.common.contracts.container_queries import (
    MoveContainer,
    PlacementChange,
    SetContainerReplicas,
    UnpinContainer,
)
from anabranch.common.contracts.objects import TopicContainer, TopicContainers
from anabranch.common.errors import Conflict
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.model.objects import (
    Partition,
    PartitionSpec,
    PartitionStatus,
    Spu,
    SpuResolution,
    SpuSpec,
    SpuStatus,
)
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.topics.rebalancer import (
    MOVES_AT_ONCE_MAX,
    RebalanceInputs,
    Rebalancer,
)
from kit.virtual_time import VirtualClock, run_virtual

ONLINE = SpuStatus(SpuResolution.ONLINE)


class Table:
    def __init__(self, containers: TopicContainers) -> None:
        self.containers = containers

    async def write(self, before: TopicContainers, after: TopicContainers) -> bool:
        assert before == self.containers
        self.containers = after
        return True


class World:
    """Containers on the SPUs 1 and 2; changes of placements are performed at once."""

    def __init__(self, count: int = 6, *, replicated: bool = True) -> None:
        self.isr_min = 1 if replicated else 0
        self.spus: LocalStore[SpuSpec, SpuStatus] = LocalStore()
        self.partitions: LocalStore[PartitionSpec, PartitionStatus] = LocalStore()
        rows = [("spu-1", "spu-2") if replicated else ("spu-1",)] * count
        self.placements = {
            1024 + at: Placement(
                1024 + at, row, isr_min=self.isr_min, state=PlacementState.OPEN, log_id="log"
            )
            for at, row in enumerate(rows)
        }
        self.table = Table(
            TopicContainers(
                containers=tuple(
                    TopicContainer(container=1024 + at, nodes=row) for at, row in enumerate(rows)
                )
            )
        )
        self.spus.sync_all([spu(1), spu(2)])
        self.partitions.sync_all(
            [
                Partition(
                    f"orders-{at}", PartitionSpec(1, (1, 2), 1024 + at), PartitionStatus(), "orders"
                )
                for at in range(count)
            ]
        )
        self.cluster = InMemoryObjectStore()
        self.changes: list[PlacementChange] = []
        self.refusing = False
        self.at_once = True

    def rebalancer(self, clock: VirtualClock, join_settle_s: float | None = None) -> Rebalancer:
        inputs = RebalanceInputs(
            spus=self.spus,
            partitions=self.partitions,
            table=self.table,
            placements=lambda: self.placements,
            draining=frozenset,
            ready=lambda: True,
        )
        return Rebalancer(inputs, self.cluster, self.change, clock, join_settle_s=join_settle_s)

    async def change(self, change: PlacementChange) -> object:
        if self.refusing:
            raise Conflict("its copy is not in sync")
        self.changes.append(change)
        found = self.placements[change.container]
        match change:
            case SetContainerReplicas(replicas=replicas):
                found = replace(found, wanted=replicas)
            case MoveContainer(node_id=node):
                found = replace(found, target=node, pinned=True)
            case UnpinContainer():
                found = replace(found, pinned=False)
        self.placements[change.container] = found
        if self.at_once:
            self.complete()
        return None

    def complete(self) -> None:
        """The stores have performed every change that was begun."""
        for number, found in self.placements.items():
            owner = found.target or found.owner
            replicas = found.wanted or found.replicas
            others = tuple(one for one in replicas if one != owner)
            if owner not in replicas:
                owner, others = replicas[0], replicas[1:]
            if found.target and not self.isr_min:
                owner, others = found.target, ()
            self.placements[number] = replace(
                found, replicas=(owner, *others), wanted=(), target=""
            )


def spu(number: int) -> Spu:
    return Spu(f"spu-{number}", SpuSpec(number), ONLINE, revision=1)


def play(story: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(VirtualClock(asyncio.get_running_loop()))

    run_virtual(told())


async def steps(rebalancer: Rebalancer, count: int = 30) -> None:
    for _ in range(count):
        await rebalancer.step(full=True)


def leaders(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for placed in world.placements.values():
        found[placed.owner] = found.get(placed.owner, 0) + 1
    return found


def test_containers_are_spread_over_a_new_spu_and_the_table_follows() -> None:
    async def story(clock: VirtualClock) -> None:
        world = World()
        rebalancer = world.rebalancer(clock)
        world.spus.sync_all([spu(1), spu(2), spu(3)])
        plan = await rebalancer.perform(dry_run=True)
        assert plan.moves
        assert {move.state for move in plan.moves} == {"planned"}
        assert not await world.cluster.list(), "a dry run stores nothing"
        begun = await rebalancer.perform(dry_run=False)
        assert [move.container for move in begun.moves] == [move.container for move in plan.moves]
        await steps(rebalancer)
        assert leaders(world) == {"spu-1": 2, "spu-2": 2, "spu-3": 2}
        assert not any(placed.pinned for placed in world.placements.values())
        again = await rebalancer.perform(dry_run=False)
        assert {move.state for move in again.moves} == {"done"}
        for entry in world.table.containers.containers:
            assert set(entry.nodes) == set(world.placements[entry.container].replicas)

    play(story)


def test_only_a_few_moves_are_under_way_and_the_progress_is_told() -> None:
    async def story(clock: VirtualClock) -> None:
        world = World(30)
        world.spus.sync_all([spu(1), spu(2), spu(3)])
        rebalancer = world.rebalancer(clock)
        await rebalancer.perform(dry_run=False)
        world.at_once = False
        await steps(rebalancer, 3)
        assert len(world.changes) == MOVES_AT_ONCE_MAX
        told = (await rebalancer.perform(dry_run=False)).moves
        assert [move.state for move in told].count("moving") == MOVES_AT_ONCE_MAX
        world.complete()
        await steps(rebalancer, 1)
        assert len(world.changes) > MOVES_AT_ONCE_MAX

    play(story)


def test_containers_whose_logs_are_not_replicated_are_moved() -> None:
    async def story(clock: VirtualClock) -> None:
        world = World(4, replicated=False)
        rebalancer = world.rebalancer(clock)
        await rebalancer.perform(dry_run=False)
        await steps(rebalancer)
        assert leaders(world) == {"spu-1": 2, "spu-2": 2}
        kinds = {type(change) for change in world.changes}
        assert kinds == {MoveContainer, UnpinContainer}

    play(story)


def test_a_refused_move_is_tried_again_by_another_controller() -> None:
    async def story(clock: VirtualClock) -> None:
        world = World()
        world.spus.sync_all([spu(1), spu(2), spu(3)])
        first = world.rebalancer(clock)
        await first.perform(dry_run=False)
        world.refusing = True
        await steps(first, 3)
        assert not world.changes
        world.refusing = False
        await steps(world.rebalancer(clock))
        assert leaders(world) == {"spu-1": 2, "spu-2": 2, "spu-3": 2}

    play(story)


def test_an_spu_that_joins_begins_a_rebalancing_only_if_that_is_chosen() -> None:
    async def story(clock: VirtualClock) -> None:
        for settle_s, expected in ((None, False), (3.0, True)):
            world = World()
            rebalancer = world.rebalancer(clock, settle_s)
            await rebalancer.step(full=True)
            world.spus.sync_all([spu(1), spu(2), spu(3)])
            await rebalancer.step(full=True)
            assert not world.changes, "the SPUs have to be settled first"
            await clock.sleep(4.0)
            await steps(rebalancer)
            assert bool(world.changes) is expected

    play(story)
