"""Load, decide, check, append."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pytest
from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import Busy, CorruptEvent, FormatTooNew
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import NewMessage
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds

SUBJECT = "ana.evt.1.scope.counter"


@dataclass(frozen=True, slots=True)
class Counter:
    total: int = 0


class Added(Contract):
    kind: Literal["added"] = "added"
    amount: int


def evolve(counter: Counter, event: Added) -> Counter:
    return Counter(counter.total + event.amount)


def check(before: Counter, after: Counter) -> None:
    assert after.total >= before.total, "a counter never shrinks"


COUNTER: Aggregate[Counter, Added] = Aggregate(
    kind="counter",
    initial=Counter(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[Added]),
    states=TypeAdapter(Counter),
)


@pytest.fixture
def store() -> InMemoryEventStore:
    return InMemoryEventStore()


@pytest.fixture
def counters(store: InMemoryEventStore) -> Repository[Counter, Added]:
    return Repository(store, COUNTER, SeededIds(1))


def add(amount: int) -> Sequence[Added]:
    return [Added(amount=amount)]


async def test_what_was_decided_is_loaded_again(counters: Repository[Counter, Added]) -> None:
    await counters.transact(SUBJECT, lambda _: add(2))
    stored = await counters.transact(SUBJECT, lambda _: [*add(3), *add(4)])

    loaded = await counters.load(SUBJECT)

    assert loaded == stored
    assert (loaded.state.total, loaded.revision) == (9, 2)


async def test_a_decision_without_events_stores_nothing(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    await counters.transact(SUBJECT, lambda _: ())

    assert await store.load(SUBJECT) == []


async def test_a_decision_that_breaks_an_invariant_stores_nothing(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    with pytest.raises(AssertionError, match="never shrinks"):
        await counters.transact(SUBJECT, lambda _: add(-1))

    assert await store.load(SUBJECT) == []


async def test_a_lost_race_is_decided_again_on_the_new_state(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    rival = Repository(store, COUNTER, SeededIds(2))
    seen: list[int] = []
    stale = await rival.load(SUBJECT)
    await rival.append(stale, add(10))

    class Rushed(InMemoryEventStore):
        """Serves one stale load, as if the rival appended in between."""

        async def load(self, subject: str, after_sequence: int = 0):  # type: ignore[no-untyped-def]
            found = await store.load(subject, after_sequence)
            return found if seen else []

        async def append(self, subject: str, expected_sequence: int, message: NewMessage) -> int:
            return await store.append(subject, expected_sequence, message)

    def decide(loaded: Loaded[Counter]) -> Sequence[Added]:
        seen.append(loaded.state.total)
        return add(1)

    after = await Repository(Rushed(), COUNTER, SeededIds(3)).transact(SUBJECT, decide)

    assert seen == [0, 10]
    assert after.state.total == 11


async def test_losing_every_race_ends_as_busy(store: InMemoryEventStore) -> None:
    class AlwaysBehind(InMemoryEventStore):
        async def load(self, subject: str, after_sequence: int = 0):  # type: ignore[no-untyped-def]
            return []

    behind = AlwaysBehind()
    counters = Repository(behind, COUNTER, SeededIds(1))
    await counters.transact(SUBJECT, lambda _: add(1))

    with pytest.raises(Busy):
        await counters.transact(SUBJECT, lambda _: add(1))


async def test_messages_of_a_newer_release_are_refused_by_name(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    await store.append(SUBJECT, 0, NewMessage(1, "a", "events", 2, 0, b"[]"))

    with pytest.raises(FormatTooNew) as refusal:
        await counters.load(SUBJECT)

    assert refusal.value.fields["found"] == 2


async def test_damage_stops_the_aggregate(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    await counters.transact(SUBJECT, lambda _: add(1))
    store.damage(1, 1, b"[]")

    with pytest.raises(CorruptEvent):
        await counters.load(SUBJECT)


async def test_loading_starts_from_a_snapshot(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    await counters.transact(SUBJECT, lambda _: add(1))
    at = await store.append(SUBJECT, 1, NewMessage(2, "s", "snapshot", 1, 0, b'{"total":50}'))
    loaded = await counters.load(SUBJECT)
    assert (loaded.state.total, loaded.revision, loaded.snapshot_sequence) == (50, 2, at)

    after = await counters.transact(SUBJECT, lambda _: add(1))

    assert after.state.total == 51
    assert (await store.load(SUBJECT))[-1].snapshot_sequence == at
    assert await counters.load(SUBJECT) == after
