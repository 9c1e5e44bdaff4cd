"""Controllers and stores that replicate logs, on virtual time: elections, hand-overs, drains."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from anabranch.common.contracts.container_queries import (
    AbandonTail,
    ElectLeader,
    ExplainContainer,
    MoveContainer,
    SetContainerReplicas,
)
from anabranch.common.contracts.queries import DrainStore, UndrainStore
from anabranch.common.errors import Conflict, InvalidRequest, NodeNotFound
from anabranch.common.model.cluster import JETSTREAM, REPLICATED, Placement, PlacementState
from anabranch.controller.domain.cluster.placement_actions import Replication
from kit.cluster_world import ClusterWorld, RunningController, RunningStore, desk_of, in_a_world

ELECTED_S = 4.5


class Replicas:
    """A controller and stores `s0`, … with replicated logs, over which containers are spread."""

    def __init__(self, world: ClusterWorld, count: int, replication: int) -> None:
        world.replication = Replication(replication)
        self.world = world
        self.controller: RunningController = world.start_controller("c")
        self.stores: list[RunningStore] = [
            world.start_store(f"s{number}", REPLICATED) for number in range(count)
        ]

    async def of(self, container: int) -> Placement:
        return (await self.world.placements())[container]

    async def led_by(self, node: str) -> Placement:
        """The first container that this store leads."""
        return next(one for one in await self.world.placements() if one.owner == node)

    def why(self, container: int) -> str:
        return " ".join(
            desk_of(self.controller).explain(ExplainContainer(container=container)).reasons
        )


def replicated(
    test: Callable[[Replicas], Awaitable[None]], count: int = 3, replication: int = 3
) -> None:
    """Run the test once all containers are open, with all copies in sync."""

    async def begin(world: ClusterWorld) -> None:
        replicas = Replicas(world, count, replication)
        await world.run(20)
        for found in await world.placements():
            assert found.state is PlacementState.OPEN
            assert len(found.isr) == len(found.replicas) == replication
        await test(replicas)

    in_a_world(begin)


def test_containers_are_created_on_as_many_stores_as_replicate_them() -> None:
    async def test(world: ClusterWorld) -> None:
        world.replication = Replication(3)
        world.start_controller("c")
        world.start_store("s0", REPLICATED)
        world.start_store("s1", REPLICATED)
        await world.run(10)
        assert await world.placements() == [], "two are too few"
        world.start_store("s2", REPLICATED)
        await world.run(2)
        placed = await world.placements()
        assert [len(found.replicas) for found in placed] == [3] * 4
        assert {found.isr_min for found in placed} == {2}
        assert sorted(Counter(found.owner for found in placed).values()) == [1, 1, 2]

    in_a_world(test)


def test_the_containers_of_a_killed_leader_are_led_by_followers_within_seconds() -> None:
    async def test(here: Replicas) -> None:
        before = {one.container: one for one in await here.world.placements()}
        await here.stores[0].kill()
        await here.world.run(ELECTED_S)
        moved = 0
        for found in await here.world.placements():
            was = before[found.container]
            assert found.owner != "s0"
            assert found.state is PlacementState.OPEN
            assert found.log_id == was.log_id
            assert set(found.replicas) == {"s0", "s1", "s2"}, "it stays a replica"
            assert {copy.node_id for copy in found.isr} == {"s1", "s2"}
            raised = found.container_epoch - was.container_epoch
            assert raised == (2 if was.owner == "s0" else 0), "frozen, and taken"
            moved += was.owner == "s0"
        counts = here.controller.balancer.counts
        assert counts.elections == moved
        assert counts.fail_overs == {("dead",): moved}
        assert len(here.world.took_s) == moved

    replicated(test)


def test_a_store_that_returns_follows_and_leads_again_when_it_is_balanced() -> None:
    async def test(here: Replicas) -> None:
        here.stores[0].line.cut = True
        await here.world.run(ELECTED_S)
        assert "s0" not in (await here.world.owners()).values()
        here.stores[0].line.cut = False
        await here.world.run(20)
        assert "s0" in (await here.world.owners()).values()
        for found in await here.world.placements():
            assert len(found.isr) == 3
            assert found.void is None, "no log was given up"

    replicated(test)


def test_a_wiped_leader_wins_no_election() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        await here.stores[0].kill()
        del here.world.copies.copies["s0", led.container]
        here.world.start_store("s0", REPLICATED)
        await here.world.run(ELECTED_S)
        found = await here.of(led.container)
        assert found.owner in ("s1", "s2")
        assert found.state is PlacementState.OPEN
        await here.world.run(2)
        (own,) = [copy for copy in (await here.of(led.container)).isr if copy.node_id == "s0"]
        assert own not in led.isr, "its copy is a new one"

    replicated(test)


def test_no_member_that_answers_means_no_leader_until_one_returns() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        for store in here.stores:
            await store.kill()
        await here.world.run(5)
        here.controller.members.confirm(())
        await here.world.run(3)
        found = await here.of(led.container)
        assert found.state is PlacementState.ELECTING
        assert found.reason.startswith("leader-offline: ")
        assert "has no leader" in here.why(led.container)
        assert f"anabranch container elect {led.container} --unclean" in here.why(led.container)
        told = here.controller.placements.list_containers()[led.container]
        assert (told.state, told.isr) == ("electing", led.replicas)
        revision = (await here.world.placed.get(str(led.container))).revision  # type: ignore[union-attr]
        await here.world.run(5)
        assert (await here.world.placed.get(str(led.container))).revision == revision  # type: ignore[union-attr]
        here.world.start_store("s2", REPLICATED)
        await here.world.run(3)
        found = await here.of(led.container)
        assert (found.owner, found.state) == ("s2", PlacementState.OPEN)
        assert "2 more" not in here.why(led.container)
        assert "1 of 3 copies of its log are in sync" in here.why(led.container)
        assert "not acknowledged" in here.why(led.container)

    replicated(test)


def test_an_unclean_election_ends_the_wait_for_lost_copies() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        container = led.container
        await here.stores[1].kill()
        await here.world.run(20)
        await here.stores[2].kill()
        await here.world.run(20)
        here.controller.members.confirm(())
        await here.world.run(3)
        with pytest.raises(Conflict):
            await here.controller.changes.perform(ElectLeader(container=container))
        # only s0 is in sync, and it is lost with its disk
        assert {copy.node_id for copy in (await here.of(container)).isr} == {"s0"}
        await here.stores[0].kill()
        del here.world.copies.copies["s0", container]
        here.world.start_store("s2", REPLICATED)
        await here.world.run(5)
        assert (await here.of(container)).state is PlacementState.ELECTING
        told = await here.controller.changes.perform(ElectLeader(container=container))
        assert (told.node_id, told.isr) == ("s2", ("s2",))
        assert told.abandoned is not None
        await here.world.run(2)
        found = await here.of(container)
        assert (found.owner, found.state) == ("s2", PlacementState.OPEN)
        assert found.abandoned == told.abandoned
        with pytest.raises(InvalidRequest):
            await here.controller.changes.perform(ElectLeader(container=99))

    replicated(test)


def test_a_container_whose_copies_are_all_lost_begins_anew_at_any_store() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        for node in ("s0", "s1", "s2"):
            del here.world.copies.copies[node, led.container]
        await here.world.change(
            led.container,
            lambda now: replace(
                now, container_epoch=now.container_epoch + 1, state=PlacementState.ELECTING
            ),
        )
        await here.world.run(2)
        assert (await here.of(led.container)).state is PlacementState.ELECTING
        await here.controller.changes.perform(AbandonTail(container=led.container, node_id="s0"))
        await here.world.run(5)
        found = await here.of(led.container)
        assert (found.owner, found.state) == ("s0", PlacementState.OPEN)
        assert found.log_id != led.log_id
        assert (len(found.replicas), len(found.isr), found.isr_min) == (3, 3, 2)
        assert found.void is not None

    replicated(test)


def test_two_leaders_at_once_elect_each_leader_once() -> None:
    async def test(here: Replicas) -> None:
        world = here.world
        for name in ("c1", "c2"):
            world.start_controller(name, leads=True)
        await world.run(5)
        before = {one.container: one for one in await world.placements()}
        await here.stores[0].kill()
        await world.run(ELECTED_S)
        for found in await world.placements():
            was = before[found.container]
            assert found.state is PlacementState.OPEN
            assert found.container_epoch == was.container_epoch + 2 * (was.owner == "s0")

    replicated(test)


def test_nothing_is_elected_during_a_hold_or_by_a_blind_controller() -> None:
    async def test(here: Replicas) -> None:
        before = await here.world.owners()
        for store in here.stores[:2]:
            await store.kill()
        await here.world.run(10)
        assert here.controller.members.hold is not None
        assert await here.world.owners() == before
        assert not here.controller.balancer.counts.elections
        here.controller.members.confirm(())
        await here.world.run(3)
        assert set((await here.world.owners()).values()) == {"s2"}

    replicated(test)


# --- hand-overs -------------------------------------------------------------------------------


def test_an_operator_hands_leadership_over_to_an_in_sync_store() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        told = await here.controller.changes.perform(
            MoveContainer(container=led.container, node_id="s1")
        )
        assert told.target == "s1"
        await here.world.run(2)
        found = await here.of(led.container)
        assert (found.replicas, found.log_id) == (("s1", "s0", "s2"), led.log_id)
        assert found.pinned
        assert found.container_epoch == led.container_epoch + 1

    replicated(test)


def test_a_store_that_is_out_of_sync_cannot_be_moved_to_yet() -> None:
    async def test(here: Replicas) -> None:
        led = await here.led_by("s0")
        here.stores[2].line.cut = True
        await here.world.run(1)
        with pytest.raises(Conflict):
            await here.controller.changes.perform(
                MoveContainer(container=led.container, node_id="s2")
            )

    replicated(test)


def test_a_store_that_is_no_replica_takes_the_place_of_the_leader() -> None:
    async def test(here: Replicas) -> None:
        found = await here.led_by("s0")
        outside = next(f"s{n}" for n in range(4) if f"s{n}" not in found.replicas)
        told = await here.controller.changes.perform(
            MoveContainer(container=found.container, node_id=outside)
        )
        assert told.wanted[0] == outside
        await here.world.run(5)
        after = await here.of(found.container)
        assert after.replicas == (outside, *found.replicas[1:])
        assert (after.wanted, after.log_id, after.state) == ((), found.log_id, PlacementState.OPEN)
        assert "s0" not in {copy.node_id for copy in after.isr}

    replicated(test, count=4)


def test_a_container_moves_to_a_store_with_another_kind_of_log_and_back() -> None:
    async def test(here: Replicas) -> None:
        here.world.start_store("j", JETSTREAM)
        await here.world.run(1)
        led = await here.led_by("s0")
        perform = here.controller.changes.perform
        await perform(MoveContainer(container=led.container, node_id="j"))
        # its store flushes it, and closes the log: the simulated one does not
        await here.world.change(
            led.container,
            lambda now: replace(
                now, replicas=("j",), target="", log_id="", log_home="", isr=(), isr_min=0,
                state=PlacementState.ASSIGNED, previous_log=now.log_id,
            ),
        )  # fmt: skip
        await here.world.run(2)
        found = await here.of(led.container)
        assert (found.owner, found.log_home, found.state) == ("j", JETSTREAM, PlacementState.OPEN)
        with pytest.raises(Conflict):
            await perform(SetContainerReplicas(container=led.container, replicas=("s0", "s1")))
        await perform(MoveContainer(container=led.container, node_id="s1"))
        await here.world.run(5)
        found = await here.of(led.container)
        assert (found.owner, found.log_home) == ("s1", REPLICATED)
        assert (len(found.replicas), len(found.isr), found.isr_min) == (3, 3, 2)

    replicated(test)


# --- replicas ---------------------------------------------------------------------------------


def test_an_operator_replaces_replicas_and_sees_what_is_awaited() -> None:
    async def test(here: Replicas) -> None:
        found = await here.of(0)
        outside = sorted({"s0", "s1", "s2", "s3", "s4"} - set(found.replicas))
        here.stores[int(outside[0][1])].line.cut = True
        await here.world.run(1)
        wanted = (outside[1], outside[0])
        told = await here.controller.changes.perform(
            SetContainerReplicas(container=0, replicas=wanted)
        )
        assert told.wanted == wanted
        await here.world.run(2)
        assert f"once these copies are in sync: {outside[0]}" in here.why(0)
        assert (await here.of(0)).owner == found.owner
        here.stores[int(outside[0][1])].line.cut = False
        await here.world.run(5)
        after = await here.of(0)
        assert (after.replicas, after.wanted, after.isr_min) == (wanted, (), 2)
        assert {copy.node_id for copy in after.isr} == set(wanted)
        assert here.why(0) == f"{wanted[0]} serves the container."

    replicated(test, count=5)


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), InvalidRequest),
        (("s0", "s0"), InvalidRequest),
        (("s0", "nowhere"), NodeNotFound),
        (("s0", "j"), InvalidRequest),
    ],
)
def test_impossible_replicas_are_refused(replicas: tuple[str, ...], error: type[Exception]) -> None:
    async def test(here: Replicas) -> None:
        here.world.start_store("j")
        await here.world.run(1)
        before = await here.of(0)
        with pytest.raises(error):
            await here.controller.changes.perform(
                SetContainerReplicas(container=0, replicas=replicas)
            )
        assert await here.of(0) == before

    replicated(test)


def test_a_log_may_shrink_to_one_replica_and_grow_again() -> None:
    async def test(here: Replicas) -> None:
        perform = here.controller.changes.perform
        owner = (await here.of(0)).owner
        await perform(SetContainerReplicas(container=0, replicas=(owner,)))
        await here.world.run(3)
        found = await here.of(0)
        assert (found.replicas, found.isr_min, len(found.isr)) == ((owner,), 1, 1)
        await perform(SetContainerReplicas(container=0, replicas=("s2", "s1", "s0")))
        await here.world.run(3)
        found = await here.of(0)
        assert (found.owner, found.isr_min, len(found.isr)) == (owner, 2, 3)

    replicated(test)


# --- drains -----------------------------------------------------------------------------------


def test_a_drained_store_gives_leadership_and_then_its_copies_away() -> None:
    async def test(here: Replicas) -> None:
        desk = desk_of(here.controller)
        await desk.drain(DrainStore(node_id="s1"))
        await here.world.run(30)
        for found in await here.world.placements():
            assert "s1" not in found.replicas
            assert len(found.isr) == 3
        (told,) = [one for one in desk.list_nodes() if one.node_id == "s1"]
        assert (told.containers, told.containers_followed) == (0, 0)
        await desk.drain(UndrainStore(node_id="s1"))
        await here.world.run(10)
        assert all(one.state is PlacementState.OPEN for one in await here.world.placements())

    replicated(test, count=4)


def test_a_drained_store_keeps_copies_that_no_other_store_can_take() -> None:
    async def test(here: Replicas) -> None:
        desk = desk_of(here.controller)
        await desk.drain(DrainStore(node_id="s1"))
        await here.world.run(20)
        placed = await here.world.placements()
        assert "s1" not in {found.owner for found in placed}
        assert all("s1" in found.replicas for found in placed)
        assert "s1 is drained, and replicates the log without leading" in here.why(0)
        (told,) = [one for one in desk.list_nodes() if one.node_id == "s1"]
        assert (told.log, told.containers, told.containers_followed) == ("replicated", 0, 4)

    replicated(test)


def test_the_copies_of_a_store_that_is_lost_for_good_are_replaced_when_it_is_drained() -> None:
    async def test(here: Replicas) -> None:
        await here.stores[1].kill()
        await here.world.run(10)
        placed = await here.world.placements()
        assert any("s1" in found.replicas for found in placed), "it may come back"
        await desk_of(here.controller).drain(DrainStore(node_id="s1"))
        await here.world.run(30)
        for found in await here.world.placements():
            assert "s1" not in found.replicas
            assert len(found.isr) == 3

    replicated(test, count=4)
