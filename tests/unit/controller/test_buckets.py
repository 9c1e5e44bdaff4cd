"""Who owns which bucket while controllers come and go and the leases' server fails."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from anabranch.common.leases.memory import InMemoryLeases
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.controller.cluster.buckets import LEASE_S, MARGIN_S, Buckets, Neighbourhood
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

ALL = frozenset(range(SHARD_COUNT))


class Cluster:
    """Controllers that share leases and see each other at once."""

    def __init__(self, group: asyncio.TaskGroup, *, with_leases: bool = True) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.leases = InMemoryLeases(self.clock, LEASE_S)
        self.live: frozenset[str] = frozenset()
        self.controllers: dict[str, Buckets] = {}
        self.heard: dict[str, set[int]] = {}
        self.reasons: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group = group
        self._with_leases = with_leases

    def join(self, name: str) -> None:
        heard = self.heard[name] = set()

        def on_change(taken: frozenset[int], lost: frozenset[int]) -> None:
            assert not taken & heard
            assert lost <= heard
            heard.difference_update(lost)
            heard.update(taken)

        self.live |= {name}
        self.controllers[name] = Buckets(
            Neighbourhood(name, lambda: self.live),
            self.leases if self._with_leases else None,
            count=SHARD_COUNT,
            clock=self.clock,
            rng=seeded(ord(name)),
        )
        report = partial(self.reasons.__setitem__, name)
        serving = self.controllers[name].serve(on_change, report)
        self._tasks[name] = self._group.create_task(serving)

    def die(self, name: str) -> None:
        """As SIGKILL does: nothing is released, nobody is told but by the list of the living."""
        self._tasks.pop(name).cancel()
        del self.controllers[name]
        self.live -= {name}

    async def stop(self, name: str) -> None:
        """As SIGTERM does."""
        self.controllers[name].withdraw()
        await self.controllers[name].release()
        self.die(name)

    async def after(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def owned(self) -> dict[str, frozenset[int]]:
        for name, found in self.controllers.items():
            assert found.owned <= self.heard[name]
        return {name: found.owned for name, found in self.controllers.items()}

    def assert_shared_somehow(self) -> None:
        """Every bucket has exactly one owner."""
        owned = list(self.owned().values())
        assert frozenset().union(*owned) == ALL
        assert sum(map(len, owned)) == SHARD_COUNT

    def assert_shared(self) -> None:
        """As before, and nobody has two more than another one."""
        self.assert_shared_somehow()
        counts = [len(owned) for owned in self.owned().values()]
        assert max(counts) - min(counts) <= 1

    def end(self) -> None:
        for name in list(self.controllers):
            self.die(name)


def story(
    tell: Callable[[Cluster], Coroutine[Any, Any, None]], *, with_leases: bool = True
) -> None:
    """Run `tell` in virtual time."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            cluster = Cluster(group, with_leases=with_leases)
            await tell(cluster)
            cluster.end()

    run_virtual(main())


def test_a_lone_controller_owns_everything_at_once() -> None:
    async def tell(cluster: Cluster) -> None:
        cluster.join("a")
        await cluster.after(0.1)
        assert cluster.owned() == {"a": ALL}

    story(tell)


def test_controllers_that_join_get_their_shares_within_ten_seconds() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "abc":
            cluster.join(name)
            await cluster.after(10)
            cluster.assert_shared()

    story(tell)


def test_survivors_have_everything_within_ten_seconds_of_a_death() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "abc":
            cluster.join(name)
        await cluster.after(15)
        cluster.die("b")
        await cluster.after(10)
        cluster.assert_shared()

    story(tell)


def test_what_a_controller_had_that_stops_in_order_is_taken_at_once() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "ab":
            cluster.join(name)
        await cluster.after(15)
        await cluster.stop("b")
        await cluster.after(2)
        assert cluster.owned() == {"a": ALL}

    story(tell)


def test_a_server_that_forgets_everything_moves_nothing() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "abc":
            cluster.join(name)
        await cluster.after(15)
        before = cluster.owned()
        lost = [found.lost_count for found in cluster.controllers.values()]
        for _ in range(10):
            cluster.leases.forget()
            await cluster.after(3)
            assert cluster.owned() == before
        assert [found.lost_count for found in cluster.controllers.values()] == lost

    story(tell)


def test_while_the_server_is_silent_owners_are_found_without_it_and_then_with_it_again() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "abc":
            cluster.join(name)
        await cluster.after(15)
        cluster.leases.away = True
        await cluster.after(LEASE_S + 2)
        cluster.assert_shared_somehow()
        assert all(found.by_rendezvous for found in cluster.controllers.values())
        assert "rendezvous" in cluster.reasons["a"]
        cluster.die("b")
        await cluster.after(2)
        cluster.assert_shared_somehow()

        cluster.leases.away = False
        await cluster.after(15)
        cluster.assert_shared()
        assert not any(found.by_rendezvous for found in cluster.controllers.values())
        assert (cluster.reasons["a"], cluster.reasons["c"]) == ("", "")

    story(tell)


def test_a_short_silence_changes_nothing() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "ab":
            cluster.join(name)
        await cluster.after(15)
        before = cluster.owned()
        cluster.leases.away = True
        await cluster.after(2)
        assert cluster.owned() == before
        cluster.leases.away = False
        await cluster.after(5)
        assert cluster.owned() == before

    story(tell)


def test_a_controller_that_hears_nothing_stops_before_its_lease_ends() -> None:
    async def tell(cluster: Cluster) -> None:
        cluster.join("a")
        await cluster.after(0.1)
        lone = cluster.controllers["a"]
        cluster._tasks["a"].cancel()  # it stands still, and its clock goes on
        await cluster.after(LEASE_S - MARGIN_S - 0.2)
        assert lone.owned == ALL
        assert await cluster.leases.read()
        await cluster.after(0.2)
        assert lone.owned == frozenset()
        assert await cluster.leases.read()

    story(tell)


def test_without_redis_owners_are_found_by_rendezvous_from_the_start() -> None:
    async def tell(cluster: Cluster) -> None:
        for name in "abc":
            cluster.join(name)
        await cluster.after(2)
        cluster.assert_shared_somehow()
        cluster.die("a")
        await cluster.after(2)
        cluster.assert_shared_somehow()
        assert "".join(cluster.reasons.values()) == ""

    story(tell, with_leases=False)


def test_what_somebody_listed_does_not_take_is_taken_by_the_others_for_a_while() -> None:
    async def tell(cluster: Cluster) -> None:
        cluster.join("a")
        await cluster.after(1)
        cluster.live |= {"ghost"}  # it lives, and cannot reach the leases
        await cluster.after(60)
        assert cluster.owned() == {"a": ALL}
        assert cluster.controllers["a"].lost_count <= 2

    story(tell)
