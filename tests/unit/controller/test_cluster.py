"""Controllers and stores together, on virtual time: liveness, leader, placement."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch.common.contracts.cluster import LEADER_KEY, leader_from_bytes
from anabranch.common.contracts.membership import ConfirmLosses
from anabranch.common.errors import Unavailable
from anabranch.controller.cluster import leadership
from anabranch.controller.domain.cluster.liveness import Kind
from kit.cluster_world import SETTLE_S, ClusterWorld, desk_of, in_a_world

NOTICED_S = 5.0


async def spread(world: ClusterWorld) -> list[int]:
    return sorted(Counter((await world.owners()).values()).values())


def test_the_first_store_gets_everything_at_once_and_shares_it_later() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        world.start_store("s1")
        await world.run(0.5)
        assert await spread(world) == [4]
        world.start_store("s2")
        world.start_store("s3")
        await world.run(SETTLE_S - 0.5)
        assert await spread(world) == [4], "the stores have not settled"
        await world.run(10)
        assert await spread(world) == [1, 1, 2]
        assert all(found.state.value == "open" for found in await world.placements())

    in_a_world(test)


def test_a_killed_store_is_noticed_and_its_containers_wait_for_it() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        stores = [world.start_store(f"s{n}") for n in range(3)]
        await world.run(20)
        before = await world.owners()
        await stores[0].kill()
        killed_ms = world.clock.now_ms()
        await world.run(NOTICED_S)
        desk = desk_of(controller)
        down = {node.node_id: node for node in desk.list_nodes() if not node.live}
        assert set(down) == {"s0"}
        assert killed_ms < down["s0"].since_ms <= killed_ms + NOTICED_S * 1000
        assert not down["s0"].stopped
        assert down["s0"].containers > down["s0"].containers_open == 0
        states = {c.container: c.state for c in controller.placements.list_containers()}
        assert {c for c, state in states.items() if state == "unavailable"} == {
            c for c, owner in before.items() if owner == "s0"
        }
        await world.run(30)
        assert await world.owners() == before, "their logs are there"
        world.start_store("s0")
        await world.run(1)
        assert all(c.state == "open" for c in controller.placements.list_containers())

    in_a_world(test)


def test_a_store_that_stops_in_order_is_down_at_once() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        store = world.start_store("s")
        await world.run(2)
        await store.stop()
        await world.run(0.1)
        (node,) = desk_of(controller).list_nodes()
        assert (node.live, node.stopped) == (False, True)

    in_a_world(test)


def test_nobody_is_dead_after_everybody_was_cut_off() -> None:
    async def test(world: ClusterWorld) -> None:
        controllers = [world.start_controller(name) for name in ("c1", "c2")]
        stores = [world.start_store(f"s{n}") for n in range(3)]
        await world.run(10)
        sessions = {n: s.seen.session for n, s in controllers[0].members.standings(Kind.STORE)}
        lines = [*(one.line for one in controllers), *(one.line for one in stores)]
        for line in lines:
            line.cut = True
        await world.run(6)
        for controller in controllers:
            hold = controller.members.hold
            assert hold is not None
            assert hold.blind
            assert not controller.leadership.leading
            assert controller.members.live_controllers() == {"c1", "c2"}
        for line in lines:
            line.cut = False
        for _ in range(20):
            await world.run(0.5)
            for controller in controllers:
                assert not controller.members.down_since
                assert controller.members.live_controllers() == {"c1", "c2"}
        found = {n: s.seen.session for n, s in controllers[0].members.standings(Kind.STORE)}
        assert found == sessions
        assert [c.leadership.leading for c in controllers].count(True) == 1

    in_a_world(test)


def test_another_controller_leads_when_the_leader_is_killed() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        await world.run(3)
        assert [first.leadership.leading, second.leadership.leading] == [True, False]
        await first.kill()
        await world.run(NOTICED_S + 1)
        assert second.leadership.leading
        leader = second.leadership.leader
        assert leader is not None
        assert (leader.controller_id, leader.term) == ("c2", 2)
        told = {c.controller_id: c for c in desk_of(second).list_controllers().controllers}
        assert (told["c1"].live, told["c1"].leader) == (False, False)
        assert (told["c2"].live, told["c2"].leader, told["c2"].term) == (True, True, 2)

    in_a_world(test)


def test_a_leader_that_stops_in_order_is_followed_at_once_and_forgotten() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        await world.run(3)
        await first.stop()
        await world.run(0.5)
        assert second.leadership.leading
        assert [c.controller_id for c in desk_of(second).list_controllers().controllers] == ["c2"]

    in_a_world(test)


def test_a_controller_that_died_is_listed_for_long_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "FORGET_S", 60.0)

    async def test(world: ClusterWorld) -> None:
        controller, other = world.start_controller("c1"), world.start_controller("c2")
        await world.run(3)
        await other.kill()
        await world.run(50)
        assert [c.live for c in desk_of(controller).list_controllers().controllers] == [True, False]
        await world.run(20)
        assert await world.controllers.get("c2") is None
        assert [c.live for c in desk_of(controller).list_controllers().controllers] == [True]

    in_a_world(test)


def test_a_leader_that_is_cut_off_steps_down_before_another_one_leads() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        await world.run(3)
        first.line.cut = True
        stepped_down = False
        while not second.leadership.leading:
            stepped_down = not first.leadership.leading
            await world.run(0.1)
        assert stepped_down
        first.line.cut = False
        await world.run(3)
        assert [first.leadership.leading, second.leadership.leading] == [False, True]

    in_a_world(test)


def test_a_controller_that_starts_again_under_its_id_leads_again_at_once() -> None:
    async def test(world: ClusterWorld) -> None:
        first = world.start_controller("c1")
        await world.run(3)
        await first.kill()
        again = world.start_controller("c1")
        await world.run(0.5)
        assert again.leadership.leading
        stored = await world.cluster.get(LEADER_KEY)
        assert stored is not None
        assert leader_from_bytes(stored.value).term == 2

    in_a_world(test)


def test_of_two_controllers_with_one_id_the_later_one_stays() -> None:
    async def test(world: ClusterWorld) -> None:
        first = world.start_controller("twin")
        await world.run(2)
        second = world.start_controller("twin")
        await world.run(20)
        assert world.replaced == [first.members.me.session]
        assert first.task.done()
        assert second.leadership.leading

    in_a_world(test)


def test_most_stores_going_at_once_are_held_until_an_operator_confirms() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        stores = [world.start_store(f"s{n}") for n in range(3)]
        await world.run(20)
        for store in stores[:2]:
            await store.kill()
        await world.run(30)
        desk = desk_of(first, second)
        overview = desk.overview()
        assert overview.hold is not None
        assert (overview.hold.reason, overview.hold.stores) == ("losses", ("s0", "s1"))
        assert (overview.stores.known, overview.stores.live) == (3, 3)
        assert overview.containers == {"open": 4}

        confirmed = await desk.confirm(ConfirmLosses())
        assert confirmed.stores == ("s0", "s1")
        await world.run(1)
        for controller in (first, second):
            assert set(controller.members.down_since) == {"s0", "s1"}
            assert controller.members.hold is None
        assert desk.overview().containers["unavailable"] > 0
        assert (await desk.confirm(ConfirmLosses())).stores == ()

    in_a_world(test)


def test_what_nobody_served_leaves_a_killed_store() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        stores = [world.start_store(f"s{n}") for n in range(2)]
        await world.run(15)
        victim = next(c for c, owner in (await world.owners()).items() if owner == "s0")
        await stores[0].kill()
        await world.change(victim, lambda found: replace(found, log_id="", previous_log="log"))
        await world.run(NOTICED_S + 1)
        (found,) = [p for p in await world.placements() if p.container == victim]
        assert found.replicas == ("s1",)
        assert found.void is not None
        assert found.void.through >= 1

    in_a_world(test)


def test_what_an_operator_moved_is_left_where_it_is() -> None:
    async def test(world: ClusterWorld) -> None:
        world.start_controller("c")
        for name in ("s0", "s1"):
            world.start_store(name)
        await world.run(15)
        for container in range(4):
            await world.change(
                container, lambda found: replace(found, replicas=("s0",), pinned=True)
            )
        await world.run(20)
        assert await spread(world) == [4]
        for container in range(4):
            await world.change(container, lambda found: replace(found, pinned=False))
        await world.run(20)
        assert await spread(world) == [2, 2]

    in_a_world(test)


def test_nobody_assigns_who_does_not_lead() -> None:
    async def test(world: ClusterWorld) -> None:
        first, second = world.start_controller("c1"), world.start_controller("c2")
        await world.run(3)
        first.line.cut = True
        world.start_store("s0")
        while not second.leadership.leading:
            assert await world.owners() == {}
            await world.run(0.1)
        await world.run(1)
        assert set((await world.owners()).values()) == {"s0"}

    in_a_world(test)


def test_what_was_decided_on_old_knowledge_does_nothing() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        world.start_store("s0")
        await world.run(1)
        controller.placed_line.lagging = True
        for container in range(4):
            await world.change(container, lambda found: replace(found, pinned=True))
        pinned = await world.placements()
        world.start_store("s1")
        await world.run(20)
        assert await world.placements() == pinned

    in_a_world(test)


def test_nothing_is_told_before_everything_was_seen() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        desk = desk_of(controller)
        asked: list[Callable[[], Any]] = [desk.list_nodes, desk.list_controllers, desk.overview]
        for ask in asked:
            with pytest.raises(Unavailable):
                ask()
        await world.run(0.5)
        for ask in asked:
            ask()

    in_a_world(test)
