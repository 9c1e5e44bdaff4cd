"""Shares of buckets: even, exclusive in the end, and moved only where there is need."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.model.hashing import SHARD_COUNT, bucket_of
from anabranch.controller.domain.buckets import Plan, plan, rendezvous, shares
from kit.rng import seeded

BUCKETS = tuple(range(SHARD_COUNT))
NAMES = [f"controller-{index}" for index in range(20)]
some = st.sets(st.sampled_from(NAMES), min_size=1)
ROUNDS_MAX = 4 * SHARD_COUNT


class World:
    """Leases without a server, and controllers that take turns in a random order."""

    def __init__(self, live: set[str], seed: int) -> None:
        self.live = live
        self.leases: dict[int, str] = {}
        self.moves = 0
        self.orphaned_most = 0
        self._random = seeded(seed)
        self._orders = {name: self._shuffled() for name in NAMES}

    def _shuffled(self) -> Sequence[int]:
        order = list(BUCKETS)
        self._random.shuffle(order)
        return order

    def step(self, me: str) -> Plan:
        found = plan(self.leases, self.live, me, order=self._orders[me])
        for bucket in found.release:
            assert self.leases.pop(bucket) == me
        for bucket in found.acquire:
            assert bucket not in self.leases
            self.leases[bucket] = me
            self.moves += 1
        return found

    def settle(self) -> None:
        """Until nobody has anything to do."""
        for _ in range(ROUNDS_MAX):
            turn = sorted(self.live)
            self._random.shuffle(turn)
            plans = []
            for me in turn:
                plans.append(self.step(me))
                self.orphaned_most = max(self.orphaned_most, SHARD_COUNT - len(self.leases))
            if all(found.is_empty for found in plans):
                return
        raise AssertionError(f"never at rest: {self.leases}")

    def leave(self, name: str) -> None:
        """It is gone, and its leases have ended."""
        self.live = self.live - {name}
        self.leases = {bucket: who for bucket, who in self.leases.items() if who != name}

    def counts(self) -> list[int]:
        counted = Counter(self.leases.values())
        return [counted[name] for name in self.live]

    def assert_even(self) -> None:
        assert set(self.leases) == set(BUCKETS)
        assert set(self.leases.values()) <= self.live
        assert max(self.counts()) - min(self.counts()) <= 1


@given(live=some, held=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 16)))
def test_shares_are_even_and_of_all_buckets(live: set[str], held: dict[str, int]) -> None:
    found = shares(live, held, SHARD_COUNT)

    assert set(found) == live
    assert sum(found.values()) == SHARD_COUNT
    assert max(found.values()) - min(found.values()) <= 1


@given(live=some, seed=st.integers(0, 1 << 30))
def test_from_nothing_every_bucket_gets_one_owner(live: set[str], seed: int) -> None:
    world = World(live, seed)
    world.settle()

    world.assert_even()
    assert world.moves == SHARD_COUNT


@given(live=some, newcomer=st.sampled_from(NAMES), seed=st.integers(0, 1 << 30))
def test_a_join_moves_only_what_the_newcomer_gets_one_at_a_time(
    live: set[str], newcomer: str, seed: int
) -> None:
    world = World(live - {newcomer} or {"first"}, seed)
    world._orders["first"] = BUCKETS
    world.settle()
    world.moves = world.orphaned_most = 0
    world.live = world.live | {newcomer}
    world.settle()

    world.assert_even()
    assert world.moves == Counter(world.leases.values())[newcomer]
    assert world.orphaned_most <= 1


@given(live=some.filter(lambda names: len(names) > 1), seed=st.integers(0, 1 << 30))
def test_a_departure_moves_only_what_the_departed_had(live: set[str], seed: int) -> None:
    world = World(live, seed)
    world.settle()
    departed = min(live)
    had = Counter(world.leases.values())[departed]
    world.moves = 0
    world.leave(departed)
    world.settle()

    world.assert_even()
    assert world.moves == had


@given(changes=st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES))), seed=st.integers())
def test_whatever_comes_and_goes_in_the_end_all_is_even(
    changes: list[tuple[bool, str]], seed: int
) -> None:
    world = World({"controller-0"}, seed)
    for joins, name in changes:
        if joins:
            world.live = world.live | {name}
        elif world.live != {name}:
            world.leave(name)
        for me in sorted(world.live):
            world.step(me)
    world.settle()

    world.assert_even()


def test_what_is_even_stays_as_it_is_whoever_has_more() -> None:
    leases = dict(enumerate("aaaaabbbbbbccccc"))

    assert all(plan(leases, set("abc"), me, order=BUCKETS).is_empty for me in "abc")


def test_a_lease_of_somebody_dead_is_left_alone_until_it_ends() -> None:
    leases = dict.fromkeys(BUCKETS, "dead")

    assert plan(leases, {"me"}, "me", order=BUCKETS).is_empty
    del leases[3]
    assert plan(leases, {"me"}, "me", order=BUCKETS) == Plan(acquire=(3,))


def test_who_is_not_listed_as_living_counts_all_the_same() -> None:
    assert len(plan({}, {"other"}, "me", order=BUCKETS).acquire) == SHARD_COUNT // 2


def test_a_bucket_that_nobody_comes_for_is_taken_beyond_the_share() -> None:
    mine = dict.fromkeys(range(8), "me")
    live = {"me", "ghost"}

    assert plan(mine, live, "me", order=BUCKETS).is_empty
    assert plan(mine, live, "me", order=BUCKETS, unclaimed={9}) == Plan(acquire=(9,))


def test_nothing_is_let_go_while_what_was_let_go_is_still_free() -> None:
    leases = dict.fromkeys(range(15), "me")

    assert plan(leases, {"me", "new"}, "me", order=BUCKETS).is_empty
    leases[15] = "new"
    assert len(plan(leases, {"me", "new"}, "me", order=BUCKETS).release) == 1


@given(live=some, bucket=st.sampled_from(BUCKETS))
def test_a_rendezvous_is_the_same_for_everybody(live: set[str], bucket: int) -> None:
    assert rendezvous(bucket, sorted(live)) == rendezvous(bucket, sorted(live, reverse=True))
    assert rendezvous(bucket, live) in live


@given(live=some, other=st.sampled_from(NAMES), bucket=st.sampled_from(BUCKETS))
def test_a_rendezvous_moves_only_to_who_came_and_from_who_left(
    live: set[str], other: str, bucket: int
) -> None:
    before, after = rendezvous(bucket, live), rendezvous(bucket, live | {other})

    assert after in (before, other)


def test_a_rendezvous_gives_everybody_something() -> None:
    owners = {rendezvous(bucket, NAMES[:3]) for bucket in BUCKETS}

    assert owners == set(NAMES[:3])


def test_of_more_buckets_each_controller_has_its_share_too() -> None:
    order = tuple(range(4 * SHARD_COUNT))
    assert len(plan({}, {"other"}, "me", order=order).acquire) == 2 * SHARD_COUNT


@given(shard=st.sampled_from(BUCKETS), per_shard=st.integers(1, 64), name=st.text(max_size=8))
def test_a_bucket_lies_in_its_shard(shard: int, per_shard: int, name: str) -> None:
    bucket = bucket_of(f"ana.evt.{shard}.stream.{name}", shard, per_shard * SHARD_COUNT)
    assert 0 <= bucket < per_shard * SHARD_COUNT
    assert bucket % SHARD_COUNT == shard


def test_the_aggregates_of_a_shard_are_spread_over_its_buckets() -> None:
    found = {bucket_of(f"ana.evt.3.stream.s.{name}", 3, 4 * SHARD_COUNT) for name in range(100)}
    assert found == {3, 19, 35, 51}
