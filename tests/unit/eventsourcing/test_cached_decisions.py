"""Decisions on a state in memory: the append shows whether it was the head, nothing else does."""

from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import Busy, StreamSealed
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds
from kit.countdown import CountingStore

SUBJECT = "ana.evt.1.scope.sum"


class Added(Contract):
    amount: int


SUM: Aggregate[int, Added] = Aggregate(
    kind="sum",
    initial=0,
    evolve=lambda total, event: total + event.amount,
    check=lambda *_: None,
    events=TypeAdapter(list[Added]),
    states=TypeAdapter(int),
)


class Sums:
    """A repository whose cache the test fills."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.cache: dict[str, Loaded[int]] = {}
        self.repository = Repository(self.store, SUM, SeededIds(1), self.cache.get)
        self.seen: list[int] = []

    async def add(self, amount: int) -> Loaded[int]:
        def decide(loaded: Loaded[int]) -> Sequence[Added]:
            self.seen.append(loaded.state)
            return [Added(amount=amount)]

        return await self.repository.transact(SUBJECT, decide)

    async def with_a_cache_behind_the_head(self) -> None:
        """The cache has 1, the head is 3."""
        self.cache[SUBJECT] = await self.add(1)
        await Repository(self.store, SUM, SeededIds(2)).transact(
            SUBJECT, lambda _: [Added(amount=2)]
        )
        self.seen.clear()
        self.store.loads = 0


async def test_what_is_decided_on_the_cached_head_needs_no_load() -> None:
    sums = Sums()
    sums.cache[SUBJECT] = await sums.add(1)
    sums.store.loads = 0

    decided = await sums.add(2)

    assert (decided.state, decided.revision, sums.store.loads) == (3, 2, 0)
    assert await sums.repository.load(SUBJECT) == decided


async def test_what_nobody_has_in_memory_is_loaded() -> None:
    sums = Sums()

    assert (await sums.add(1)).state == 1
    assert sums.store.loads == 1


async def test_a_decision_on_an_old_state_is_made_again_on_the_head() -> None:
    sums = Sums()
    await sums.with_a_cache_behind_the_head()

    decided = await sums.add(4)

    assert (sums.seen, decided.state) == ([1, 3], 7)


async def test_a_refusal_on_an_old_state_is_no_refusal() -> None:
    sums = Sums()
    await sums.with_a_cache_behind_the_head()

    def decide(loaded: Loaded[int]) -> Sequence[Added]:
        if loaded.state == 1:
            raise Busy("wait")
        return [Added(amount=4)]

    assert (await sums.repository.transact(SUBJECT, decide)).state == 7


async def test_a_refusal_on_the_head_is_raised() -> None:
    sums = Sums()
    sums.cache[SUBJECT] = await sums.add(1)

    def decide(_loaded: Loaded[int]) -> Sequence[Added]:
        raise StreamSealed("sealed")

    with pytest.raises(StreamSealed):
        await sums.repository.transact(SUBJECT, decide)


async def test_that_nothing_is_to_be_done_is_said_of_the_head_alone() -> None:
    sums = Sums()
    await sums.with_a_cache_behind_the_head()

    decided = await sums.repository.transact(
        SUBJECT, lambda loaded: [] if loaded.state == 1 else [Added(amount=4)]
    )

    assert decided.state == 7
