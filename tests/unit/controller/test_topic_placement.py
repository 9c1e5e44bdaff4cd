"""Containers of topics: placed as assigned, never balanced, and otherwise as any other."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from anabranch.common.contracts.cluster import CONSTANTS_KEY
from anabranch.common.contracts.container_queries import ExplainContainer, SetContainerReplicas
from anabranch.common.contracts.objects import TOPIC_CONTAINERS_KEY, TopicContainers
from anabranch.common.contracts.queries import DrainStore
from anabranch.common.errors import InvalidRequest
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import JETSTREAM, REPLICATED, LogCopy, Placement, PlacementState
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.topic_containers import TopicContainerTable
from anabranch.controller.domain.cluster.objects.topic_containers import ContainerAllocation
from anabranch.controller.domain.cluster.placement import assign
from anabranch.controller.domain.cluster.placement_actions import (
    Create,
    Elect,
    FailOver,
    Move,
    Reassign,
    Replication,
    Retarget,
    SetReplicas,
    StoreView,
)
from kit.cluster_world import ClusterWorld, RunningController, desk_of, in_a_world

FIRST = 1024
LIVE, DEAD = StoreView(True), StoreView(False)
COPYING, GONE = StoreView(True, log_home=REPLICATED), StoreView(False, log_home=REPLICATED)


def served(container: int, *replicas: str, **changes: object) -> Placement:
    found = Placement(container, replicas, 3, f"log-{container}", PlacementState.OPEN)
    return replace(found, **changes)  # type: ignore[arg-type]


def copied(container: int, *replicas: str) -> Placement:
    isr = tuple(LogCopy(name, name) for name in replicas)
    return served(container, *replicas, log_home=REPLICATED, isr=isr, isr_min=2)


# --- decisions --------------------------------------------------------------------------------


def test_it_is_created_with_exactly_the_assigned_stores() -> None:
    stores = {"a": COPYING, "b": COPYING, "c": COPYING}
    wanted = {FIRST: ("c", "a", "b"), FIRST + 1: ("b",)}
    three = Replication(3)
    assert assign((), {}, stores, replication=three, wanted=wanted) == [
        Create(FIRST, "c", ("a", "b"), 2),
        Create(FIRST + 1, "b", (), 1),
    ]


def test_it_is_created_on_stores_that_are_down_or_were_never_seen() -> None:
    stores = {"a": GONE}
    wanted = {FIRST: ("a", "z"), FIRST + 1: ("z", "a"), FIRST + 2: ("z",)}
    assert assign((), {}, stores, wanted=wanted) == [
        Create(FIRST, "a", ("z",), 2),
        Create(FIRST + 1, "z", ("a",), 2),
        Create(FIRST + 2, "z"),
    ]


def test_without_replicated_logs_it_is_on_the_first_store_alone() -> None:
    stores = {"a": LIVE, "j": StoreView(True, log_home=JETSTREAM)}
    wanted = {FIRST: ("a", "j"), FIRST + 1: ("j", "a")}
    assert assign((), {}, stores, wanted=wanted) == [Create(FIRST, "a"), Create(FIRST + 1, "j")]


def test_it_waits_for_its_store_while_no_store_has_served_it() -> None:
    unopened = {FIRST: Placement(FIRST, ("a",))}
    assert assign((), unopened, {"a": DEAD, "b": LIVE}, wanted={FIRST: ("a",)}) == []


def test_it_goes_to_another_of_its_replicas_while_no_store_has_served_it() -> None:
    unopened = {FIRST: Placement(FIRST, ("a", "b"), isr_min=2)}
    stores = {"a": GONE, "b": COPYING, "c": COPYING}
    plan = assign((), unopened, stores, wanted={FIRST: ("a", "b")})
    assert plan == [Retarget(FIRST, "b", ("a",), 2)]


def test_a_single_store_of_replicated_logs_gets_its_list_when_it_comes() -> None:
    plan = assign(
        (),
        {FIRST: Placement(FIRST, ("a",))},
        {"a": COPYING, "b": COPYING, "c": COPYING},
        replication=Replication(3),
        wanted={FIRST: ("a",)},
    )
    assert plan == [SetReplicas(FIRST, ("a",), 1, done=True)]


def test_it_is_never_moved_to_balance_and_counts_in_no_load() -> None:
    topics = {n: served(n, "a") for n in range(FIRST, FIRST + 9)}
    stores = {"a": LIVE, "b": LIVE}
    wanted = dict.fromkeys(topics, ("a",))
    assert assign((), topics, stores, wanted=wanted) == []
    even = {0: served(0, "a"), 1: served(1, "b")}
    assert assign(range(2), topics | even, stores, wanted=wanted) == []
    assert assign(range(3), topics | even, stores, wanted=wanted) == [Create(2, "a")]
    pinned = {n: served(n, "a", pinned=True) for n in range(4)}
    assert assign(range(4), topics | pinned, stores, wanted=wanted) == [], "nor in another's place"


def test_a_new_one_holds_up_no_balance() -> None:
    uneven = {n: served(n, "a") for n in range(4)}
    opening = {FIRST: Placement(FIRST, ("b",))}
    plan = assign(range(4), uneven | opening, {"a": LIVE, "b": LIVE}, wanted={FIRST: ("b",)})
    assert plan == [Move(0, "b")]


def test_it_leaves_a_drained_store() -> None:
    drained = {"a": replace(LIVE, draining=True), "b": LIVE}
    plan = assign((), {FIRST: served(FIRST, "a")}, drained, wanted={FIRST: ("a",)})
    assert plan == [Move(FIRST, "b")]


def test_the_copies_of_a_drained_store_are_replaced_one_container_at_a_time() -> None:
    stores = dict.fromkeys(("a", "b", "c"), COPYING)
    stores["b"] = replace(COPYING, draining=True)
    found = {0: copied(0, "a", "b"), FIRST: copied(FIRST, "a", "b")}
    wanted = {FIRST: ("a", "b")}
    assert assign(range(1), found, stores, wanted=wanted) == [Reassign(0, ("a", "c"))]
    found[0] = copied(0, "a", "c")
    assert assign(range(1), found, stores, wanted=wanted) == [Reassign(FIRST, ("a", "c"))]


def test_a_leader_is_elected_when_its_store_is_gone_although_the_table_is_lost() -> None:
    stores = {"a": replace(GONE, over=True), "b": COPYING}
    assert assign((), {FIRST: copied(FIRST, "a", "b")}, stores) == [Elect(FIRST)]


def test_a_shared_log_fails_over() -> None:
    home = {"log_home": JETSTREAM}
    stores = {"a": StoreView(False, over=True, **home), "b": StoreView(True, **home)}  # type: ignore[arg-type]
    found = {FIRST: served(FIRST, "a", log_home=JETSTREAM)}
    assert assign((), found, stores, wanted={FIRST: ("a",)}) == [FailOver(FIRST, "b")]


# --- the table --------------------------------------------------------------------------------


def extended(table: TopicContainers, *lists: tuple[str, ...]) -> TopicContainers:
    """The table with containers for these lists."""
    allocation = ContainerAllocation(table, {})
    assert allocation.containers_of(lists) is not None
    return TopicContainers(containers=allocation.entries, cursor=table.cursor)


async def test_the_table_is_written_only_in_place_of_the_one_it_was_computed_from() -> None:
    objects = InMemoryObjectStore()
    mine, other = (TopicContainerTable(objects, SystemClock()) for _ in range(2))
    before = mine.containers
    after = extended(before, ("a", "b"))
    assert await mine.write(before, after)
    assert await mine.write(before, after), "again"
    assert mine.wanted == {FIRST: ("a", "b")}
    assert not await other.write(before, extended(before, ("c",)))
    assert other.containers == after, "it has learned why"
    later = extended(after, ("c",))
    assert await other.write(after, later)
    assert other.wanted == {FIRST: ("a", "b"), FIRST + 1: ("c",)}
    assert not await mine.write(after, extended(after, ("d",)))


async def test_a_damaged_table_leaves_the_last_one_in_force() -> None:
    objects = InMemoryObjectStore()
    table = TopicContainerTable(objects, SystemClock())
    assert await table.write(TopicContainers(), extended(TopicContainers(), ("a",)))
    stored = await objects.get(TOPIC_CONTAINERS_KEY)
    assert stored is not None
    await objects.update(TOPIC_CONTAINERS_KEY, b"{", stored.revision)
    await objects.create(CONSTANTS_KEY, b"{}")
    seen = 0

    def changed() -> None:
        nonlocal seen
        seen += 1

    table.on_change(changed)
    async for found in objects.watch():
        if found is None:
            break
        if found.key == TOPIC_CONTAINERS_KEY:
            table._see(found)
    assert table.wanted == {FIRST: ("a",)}
    assert not seen


# --- a cluster --------------------------------------------------------------------------------


def with_topics(
    test: Callable[[ClusterWorld, RunningController], Awaitable[None]],
    log: str,
    lists: list[tuple[str, ...]],
) -> None:
    """Run the test in a cluster of three stores with a topic container for each list."""

    async def begin(world: ClusterWorld) -> None:
        world.replication = Replication(3 if log == REPLICATED else 1)
        controller = world.start_controller("c")
        for name in ("s0", "s1", "s2"):
            world.start_store(name, log)
        await world.run(20)
        table = controller.topics
        assert await table.write(table.containers, extended(table.containers, *lists))
        await world.run(3)
        await test(world, controller)

    in_a_world(begin)


async def topic_placements(world: ClusterWorld) -> list[Placement]:
    return [found for found in await world.placements() if found.container >= FIRST]


def test_topic_containers_open_are_listed_and_explained() -> None:
    async def test(world: ClusterWorld, controller: RunningController) -> None:
        first, second = await topic_placements(world)
        assert first.replicas == ("s2", "s0")
        assert (second.replicas, second.isr_min) == (("s1",), 1)
        assert {first.state, second.state} == {PlacementState.OPEN}
        listed = [one.container for one in controller.placements.list_containers()]
        assert listed == [0, 1, 2, 3, FIRST, FIRST + 1]
        desk = desk_of(controller)
        explained = desk.explain(ExplainContainer(container=FIRST))
        assert explained.reasons[0] == "s2 serves the container."
        assert explained.container.container == FIRST
        for unknown in (4, FIRST + 2, -1):
            with pytest.raises(InvalidRequest):
                desk.explain(ExplainContainer(container=unknown))
        assert sum(desk.overview().containers.values()) == 6

    with_topics(test, REPLICATED, [("s2", "s0"), ("s1",)])


def test_the_leader_of_a_topic_container_is_elected_when_its_store_is_killed() -> None:
    async def test(world: ClusterWorld, _controller: RunningController) -> None:
        await world.stores["s2"].kill()
        await world.run(5)
        (found,) = await topic_placements(world)
        assert found.owner in ("s0", "s1")
        assert found.state is PlacementState.OPEN

    with_topics(test, REPLICATED, [("s2", "s0", "s1")])


def test_an_operator_sets_the_replicas_of_a_topic_container() -> None:
    async def test(world: ClusterWorld, controller: RunningController) -> None:
        change = SetContainerReplicas(container=FIRST, replicas=("s1", "s2"))
        await controller.changes.perform(change)
        await world.run(10)
        (found,) = await topic_placements(world)
        assert set(found.replicas) == {"s1", "s2"}
        assert not found.wanted

    with_topics(test, REPLICATED, [("s2", "s0")])


def test_a_drain_moves_topic_containers_off_a_store_with_a_journal() -> None:
    async def test(world: ClusterWorld, controller: RunningController) -> None:
        assert {found.owner for found in await topic_placements(world)} == {"s0"}
        await desk_of(controller).drain(DrainStore(node_id="s0"))
        await world.run(30)
        moved = await topic_placements(world)
        assert {found.owner for found in moved} == {"s1", "s2"}
        assert {found.state for found in moved} == {PlacementState.OPEN}

    with_topics(test, "journal", [("s0",), ("s0", "s1")])
