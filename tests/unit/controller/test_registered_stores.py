"""Only registered SPUs join: stores and controllers on virtual time."""

from kit.cluster_world import SETTLE_S, ClusterWorld, desk_of, in_a_world

WAITED_S = 6.0
"""Longer than a store may rely on its session, with the looks of the controllers."""


def told(world_desk: object, name: str) -> tuple[bool, str]:
    """Whether the store is live, and why it is refused."""
    for node in desk_of(world_desk).list_nodes():  # type: ignore[arg-type]
        if node.node_id == name:
            return node.live, node.refusal
    raise AssertionError(f"{name} is not listed")


def test_an_unknown_store_is_registered_with_the_next_free_id() -> None:
    async def test(world: ClusterWorld) -> None:
        world.spus.add("edge", 7)
        controller = world.start_controller("c")
        world.start_store("s1")
        await world.run(2)
        world.start_store("s2")
        await world.run(SETTLE_S + 10)
        assert world.spus.ids() == {"edge": 7, "s1": 8, "s2": 9}
        assert told(controller, "s1") == (True, "")
        assert set((await world.owners()).values()) == {"s1", "s2"}

    in_a_world(test)


def test_a_cluster_that_requires_registration_refuses_an_unknown_store_until_it_is_registered() -> (
    None
):
    async def test(world: ClusterWorld) -> None:
        world.registration = "required"
        world.spus.add("s1", 1)
        controller = world.start_controller("c")
        world.start_store("s1", "jetstream")
        world.start_store("s2", "jetstream")
        await world.run(SETTLE_S + 5)
        assert told(controller, "s1") == (True, "")
        assert told(controller, "s2") == (False, "unregistered")
        assert set((await world.owners()).values()) == {"s1"}
        assert world.spus.ids() == {"s1": 1}

        world.spus.add("s2", 2)
        await world.run(SETTLE_S + 10)
        assert told(controller, "s2") == (True, "")
        assert set((await world.owners()).values()) == {"s1", "s2"}

    in_a_world(test)


def test_stores_are_judged_only_when_the_registered_spus_are_known() -> None:
    async def test(world: ClusterWorld) -> None:
        world.registration = "required"
        world.spus.listed = False
        world.spus.add("s1", 1)
        controller = world.start_controller("c")
        world.start_store("s1", "jetstream")
        await world.run(5)
        assert not controller.members.complete
        assert await world.owners() == {}
        world.spus.listed = True
        world.spus.tell()
        await world.run(2)
        assert controller.members.complete
        assert set((await world.owners()).values()) == {"s1"}
        assert world.sessions == 2, "no session was ended"

    in_a_world(test)


def test_the_containers_of_an_unregistered_store_fail_over_while_it_waits() -> None:
    async def test(world: ClusterWorld) -> None:
        world.registration = "required"
        for number, name in enumerate(("s1", "s2")):
            world.spus.add(name, number)
        controller = world.start_controller("c")
        for name in ("s1", "s2"):
            world.start_store(name, "jetstream")
        await world.run(SETTLE_S + 10)
        assert set((await world.owners()).values()) == {"s1", "s2"}
        logs = {found.container: found.log_id for found in await world.placements()}

        world.spus.remove("s1")
        await world.run(0.1)
        assert told(controller, "s1") == (False, "unregistered")
        await world.run(2)
        assert "s1" in (await world.owners()).values(), "it may rely on its session still"
        (held, *_) = [c for c, owner in (await world.owners()).items() if owner == "s1"]
        why = desk_of(controller)._situation()
        assert why.unregistered == {"s1"}
        await world.run(WAITED_S)
        assert set((await world.owners()).values()) == {"s2"}
        assert {found.container: found.log_id for found in await world.placements()} == logs
        assert held in logs

        world.spus.add("s1", 5)
        await world.run(SETTLE_S + 10)
        assert told(controller, "s1") == (True, "")

    in_a_world(test)


def test_a_store_that_was_unregistered_does_not_register_itself_again() -> None:
    async def test(world: ClusterWorld) -> None:
        controller = world.start_controller("c")
        store = world.start_store("s1", "jetstream")
        world.start_store("s2", "jetstream")
        await world.run(SETTLE_S + 10)
        assert world.spus.ids() == {"s1": 0, "s2": 1}
        world.spus.remove("s1")
        await world.run(WAITED_S + 5)
        assert world.spus.ids() == {"s2": 1}
        assert told(controller, "s1") == (False, "unregistered")
        assert set((await world.owners()).values()) == {"s2"}

        await store.kill()
        world.start_store("s1", "jetstream")  # its process is started again
        await world.run(WAITED_S)
        assert world.spus.ids() == {"s1": 2, "s2": 1}
        assert told(controller, "s1") == (True, "")

    in_a_world(test)


def test_the_record_of_an_unregistered_store_that_holds_nothing_is_removed_after_a_while() -> None:
    async def test(world: ClusterWorld) -> None:
        world.registration = "required"
        world.spus.add("s1", 1)
        world.start_controller("c")
        world.start_store("s1", "jetstream")
        store = world.start_store("s2", "jetstream")
        await world.run(10)
        await store.kill()
        await world.run(30)
        assert await world.nodes.get("s2") is not None
        await world.run(60)
        assert await world.nodes.get("s2") is None
        assert await world.nodes.get("s1") is not None

    in_a_world(test)
