"""Controllers and stores that share a log, on virtual time: sessions, fail-over, drains, tokens."""

import asyncio
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest

from anabranch.common.contracts.cluster import (
    DRAINS_KEY,
    StoredDrains,
    node_from_bytes,
)
from anabranch.common.contracts.container_queries import ExplainContainer
from anabranch.common.contracts.queries import DrainStore, UndrainStore
from anabranch.common.errors import InvalidRequest, NodeNotFound
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import JETSTREAM, PlacementState
from kit.cluster_world import ClusterWorld, RunningController, desk_of, in_a_world
from kit.cut_off import Line

FAILED_OVER_S = 4.5


async def shared_cluster(world: ClusterWorld, count: int = 3) -> RunningController:
    """A controller and stores `s0`, … with a shared log, over which the containers are spread."""
    controller = world.start_controller("c")
    for number in range(count):
        world.start_store(f"s{number}", JETSTREAM)
    await world.run(20)
    return controller


async def record(world: ClusterWorld, store: str) -> tuple[bool, str]:
    """(over, session) of the store's record."""
    stored = await world.nodes.get(store)
    assert stored is not None
    found = node_from_bytes(stored.value)
    return found.over, found.session


def test_the_containers_of_a_killed_store_are_open_elsewhere_within_seconds() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = {found.container: found for found in await world.placements()}
        _, session = await record(world, "s0")
        await stores[0].kill()
        await world.run(FAILED_OVER_S)
        assert await record(world, "s0") == (True, session)
        for found in await world.placements():
            assert found.owner != "s0"
            assert found.state is PlacementState.OPEN
            was = before[found.container]
            assert (found.log_id, found.log_home) == (was.log_id, JETSTREAM)
            assert found.container_epoch == was.container_epoch + (was.owner == "s0")
        moved = sum(found.owner == "s0" for found in before.values())
        assert controller.balancer.counts.sessions_ended == 1
        assert controller.balancer.counts.fail_overs == {("dead",): moved}
        assert len(world.took_s) == moved
        assert all(0 < took_s < 1 for took_s in world.took_s)

    in_a_world(test)


def test_a_store_that_wakes_after_its_session_ended_begins_another_one() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        _, session = await record(world, "s0")
        stores[0].line.cut = True
        await world.run(FAILED_OVER_S)
        assert "s0" not in (await world.owners()).values()
        stores[0].line.cut = False
        await world.run(1)
        over, another = await record(world, "s0")
        assert not over
        assert another != session
        await world.run(20)
        assert "s0" in (await world.owners()).values(), "it is balanced again"

    in_a_world(test)


def test_a_store_that_beats_just_before_its_session_is_ended_keeps_it() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = await world.placements()
        for name in ("s0", "s1", "s2"):
            assert not await controller.members.end_session(name), "it is alive"
        await stores[0].kill()
        controller.placed_line.cut = True
        while "s0" not in controller.members.down_since:
            await world.run(0.05)
        controller.line.lagging = True
        stored = await world.nodes.get("s0")
        assert stored is not None
        alive = replace(node_from_bytes(stored.value), over=False, beat=99)
        await stores[0].rewrite(alive)
        assert not await controller.members.end_session("s0")
        stored = await world.nodes.get("s0")
        assert stored is not None
        assert node_from_bytes(stored.value) == alive
        assert await world.placements() == before

    in_a_world(test)


def test_a_store_that_serves_under_another_session_keeps_its_containers_from_a_lagging_leader() -> (
    None
):
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c", drains_line=Line())
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(2)]
        await world.run(3)
        desk = desk_of(controller)
        await desk.drain(DrainStore(node_id="s1"))
        await world.run(20)
        assert set((await world.owners()).values()) == {"s0"}
        stores[0].line.cut = True
        await world.run(FAILED_OVER_S)
        assert (await record(world, "s0"))[0]
        assert set((await world.owners()).values()) == {"s0"}, "no other store may have them"
        controller.line.lagging = True
        stores[0].line.cut = False
        await world.run(0.9)
        assert not (await record(world, "s0"))[0]
        before = await world.placements()
        await desk.drain(UndrainStore(node_id="s1"))
        await world.run(0.9)
        assert await world.placements() == before

    in_a_world(test)


def test_a_leader_that_learns_of_another_session_after_its_decision_gives_nothing_away() -> None:
    """Its placements are the present ones, and its record of the store catches up too late."""

    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c", drains_line=Line())
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(2)]
        await world.run(3)
        desk = desk_of(controller)
        await desk.drain(DrainStore(node_id="s1"))
        await world.run(20)
        stores[0].line.cut = True
        await world.run(FAILED_OVER_S)
        controller.line.lagging = True
        stores[0].line.cut = False
        await world.run(0.9)
        before = await world.placements()
        get = world.placed.get

        async def catch_up(key: str) -> StoredObject | None:
            controller.line.lagging = False
            await world.run(0.1)
            return await get(key)

        with patch.object(world.placed, "get", catch_up):
            await desk.drain(UndrainStore(node_id="s1"))
            await world.run(0.5)
        assert "s0" not in controller.members.down_since, "it has caught up"
        assert controller.balancer.counts.fail_overs == {}
        assert [one.owner for one in await world.placements()] == [one.owner for one in before]

    in_a_world(test)


def test_containers_in_a_journal_wait_for_their_store_whatever_others_do() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        journal = world.start_store("j")
        for name in ("s0", "s1"):
            world.start_store(name, JETSTREAM)
        await world.run(20)
        before = {c: owner for c, owner in (await world.owners()).items() if owner == "j"}
        assert before
        await journal.kill()
        await world.run(30)
        after = await world.owners()
        assert {c: owner for c, owner in after.items() if owner == "j"} == before
        assert not (await record(world, "j"))[0]

    in_a_world(test)


def test_a_store_that_stops_in_order_gives_its_containers_away_after_a_while() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = await world.owners()
        await stores[0].stop()
        await world.run(2.8)
        assert await world.owners() == before
        assert not (await record(world, "s0"))[0], "it ended by itself"
        await world.run(2)
        assert "s0" not in (await world.owners()).values()

    in_a_world(test)


def test_most_stores_going_at_once_end_no_session_until_an_operator_confirms() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = await world.placements()
        for store in stores[:2]:
            await store.kill()
        await world.run(30)
        assert await world.placements() == before
        assert controller.balancer.counts.sessions_ended == 0
        reasons = desk_of(controller).explain(ExplainContainer(container=0)).reasons
        assert "The controllers hold: s0, s1" in reasons[-1]
        controller.members.confirm(())
        await world.run(2)
        assert set((await world.owners()).values()) == {"s2"}

    in_a_world(test)


def test_a_drained_store_keeps_its_containers_during_a_hold() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        for store in stores[:2]:
            await store.kill()
        await world.run(5)
        before = await world.placements()
        assert controller.members.hold is not None
        await desk_of(controller).drain(DrainStore(node_id="s2"))
        await world.run(10)
        assert await world.placements() == before

    in_a_world(test)


def test_a_blind_controller_ends_nothing() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = await world.placements()
        await stores[0].kill()
        controller.line.lagging = True
        await world.run(30)
        assert await world.placements() == before
        assert not (await record(world, "s0"))[0]

    in_a_world(test)


def test_two_leaders_at_once_open_every_container_once() -> None:
    async def test(world: ClusterWorld) -> None:
        controllers = [world.start_controller(name, leads=True) for name in ("c1", "c2")]
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        before = {found.container: found for found in await world.placements()}
        await stores[0].kill()
        await world.run(FAILED_OVER_S)
        after = await world.placements()
        assert all(found.state is PlacementState.OPEN for found in after)
        for found in after:
            was = before[found.container]
            assert found.owner != "s0"
            assert found.container_epoch == was.container_epoch + (was.owner == "s0")
        assert sum(c.balancer.counts.sessions_ended for c in controllers) == 1

    in_a_world(test)


def test_a_drained_store_is_emptied_and_gets_containers_again_when_undrained() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = await shared_cluster(world)
        desk = desk_of(controller)
        for container in range(4):
            await world.change(container, lambda found: replace(found, pinned=True))
        drained = await desk.drain(DrainStore(node_id="s1"))
        assert drained.node.draining
        assert drained.node.containers > 0
        assert await desk.drain(DrainStore(node_id="s1")) == drained
        await world.run(10)
        assert "s1" not in (await world.owners()).values()
        assert {n.node_id for n in desk.list_nodes() if n.draining} == {"s1"}
        assert all(found.state is PlacementState.OPEN for found in await world.placements())
        for container in range(4):
            await world.change(container, lambda found: replace(found, pinned=False))
        await world.run(10)
        assert "s1" not in (await world.owners()).values()
        undrained = await desk.drain(UndrainStore(node_id="s1"))
        assert not undrained.node.draining
        assert await desk.drain(UndrainStore(node_id="s1")) == undrained
        await world.run(20)
        assert sorted(Counter((await world.owners()).values()).values()) == [1, 1, 2]

    in_a_world(test)


def test_an_unknown_store_is_not_drained_and_one_that_is_gone_is_undrained() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = await shared_cluster(world, 1)
        desk = desk_of(controller)
        for change in (DrainStore(node_id="nowhere"), UndrainStore(node_id="nowhere")):
            with pytest.raises(NodeNotFound):
                await desk.drain(change)
        await world.cluster.create(DRAINS_KEY, StoredDrains(nodes=("gone", "s0")).to_bytes())
        await world.run(1)
        assert controller.drains.nodes == {"gone", "s0"}
        told = (await desk.drain(UndrainStore(node_id="gone"))).node
        assert (told.node_id, told.live, told.draining) == ("gone", False, False)
        stored = await world.cluster.get(DRAINS_KEY)
        assert stored is not None
        assert StoredDrains.parsed(stored.value).nodes == ("s0",)

    in_a_world(test)


def test_two_operators_at_once_drain_both_of_their_stores() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        for number in range(2):
            world.start_store(f"s{number}", JETSTREAM)
        await world.run(5)
        async with asyncio.TaskGroup() as group:
            group.create_task(desk_of(first).drain(DrainStore(node_id="s0")))
            group.create_task(desk_of(second).drain(DrainStore(node_id="s1")))
        await world.run(1)
        assert first.drains.nodes == second.drains.nodes == {"s0", "s1"}

    in_a_world(test)


def test_a_damaged_list_of_drained_stores_changes_nothing() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = await shared_cluster(world, 2)
        await desk_of(controller).drain(DrainStore(node_id="s1"))
        stored = await world.cluster.get(DRAINS_KEY)
        assert stored is not None
        await world.cluster.update(DRAINS_KEY, b"{", stored.revision)
        await world.run(5)
        assert controller.drains.nodes == {"s1"}

    in_a_world(test)


def test_a_store_without_the_join_token_is_refused_and_gets_nothing() -> None:
    async def test(world: ClusterWorld) -> None:
        world.join_token = "the secret"
        controller = world.start_controller("c")
        stranger = world.start_store("stranger", JETSTREAM, token="another secret")
        world.start_store("nothing")
        await world.run(5)
        assert await world.owners() == {}
        world.start_store("s0", JETSTREAM, token="the secret")
        await world.run(20)
        assert set((await world.owners()).values()) == {"s0"}
        assert set(controller.placements.nodes) == {"s0"}
        told = {node.node_id: node for node in desk_of(controller).list_nodes()}
        assert [(n, told[n].refused, told[n].live) for n in sorted(told)] == [
            ("nothing", True, False), ("s0", False, True), ("stranger", True, False),
        ]  # fmt: skip
        await stranger.kill()
        world.start_store("stranger", JETSTREAM, token="the secret")
        await world.run(1)
        assert set(controller.placements.nodes) == {"s0", "stranger"}
        assert "stranger" not in controller.members.refused

    in_a_world(test)


def test_a_container_on_a_refused_store_is_explained() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = await shared_cluster(world, 1)
        await controller.kill()
        world.join_token = "the secret"
        controller = world.start_controller("c")
        await world.run(2)
        explained = desk_of(controller).explain(ExplainContainer(container=0))
        assert "the controller refuses this store" in explained.reasons[0]
        (located,) = controller.placements.locate(["s/x/0.#epoch.0"])
        assert located.host == ""
        for wrong in (-1, 4):
            with pytest.raises(InvalidRequest):
                desk_of(controller).explain(ExplainContainer(container=wrong))

    in_a_world(test)


def test_nodes_and_containers_are_listed_with_their_logs_racks_and_leases() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        world.start_store("j")
        store = world.start_store("s", JETSTREAM, rack="r1")
        await world.run(20)
        told = {node.node_id: node for node in desk_of(controller).list_nodes()}
        assert [(n, told[n].log, told[n].rack) for n in sorted(told)] == [
            ("j", "journal", ""), ("s", "jetstream", "r1"),
        ]  # fmt: skip
        logs = {(c.node_id, c.log, c.lease) for c in controller.placements.list_containers()}
        assert logs == {("j", "journal", ""), ("s", "jetstream", "held")}
        store.line.cut = True
        await world.run(2.9)
        leases = {c.lease for c in controller.placements.list_containers() if c.node_id == "s"}
        assert leases == {"lapsed"}
        await world.run(3)
        told = {node.node_id: node for node in desk_of(controller).list_nodes()}
        assert (told["s"].live, told["s"].over) == (False, True)

    in_a_world(test)


def test_a_plan_on_an_old_placement_does_nothing() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}", JETSTREAM) for n in range(3)]
        await world.run(20)
        victim = next(c for c, owner in (await world.owners()).items() if owner == "s0")
        controller.placed_line.lagging = True
        await world.change(victim, lambda found: replace(found, replicas=("s1",)))
        await stores[0].kill()
        await world.run(10)
        assert (await record(world, "s0"))[0]
        assert (await world.owners())[victim] == "s1"

    in_a_world(test)
