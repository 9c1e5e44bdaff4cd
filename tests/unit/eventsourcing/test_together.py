"""Decisions that depend on a gate, and decisions on two aggregates that are stored together."""

import pytest

from anabranch.common.errors import WrongExpectedSequence
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.eventsourcing.repository import SNAPSHOT_EVERY, Loaded, Repository
from anabranch.common.eventsourcing.together import Decision, append_together
from anabranch.common.runtime.ids import SeededIds
from kit.countdown import COUNTDOWN, Countdown, Counted
from kit.tally import TALLY, Tallied, Tally

GATE = "ana.evt.1.gate.s.1"
A, B = "ana.evt.1.countdown.a", "ana.evt.1.tally.b"

Countdowns = Repository[Countdown, Counted]
Tallies = Repository[Tally, Tallied]


@pytest.fixture
def store() -> InMemoryEventStore:
    return InMemoryEventStore()


@pytest.fixture
def countdowns(store: InMemoryEventStore) -> Countdowns:
    return Repository(store, COUNTDOWN, SeededIds(1))


@pytest.fixture
def tallies(store: InMemoryEventStore) -> Tallies:
    return Repository(store, TALLY, SeededIds(2))


async def test_an_aggregate_is_created_while_its_gate_is_open(
    store: InMemoryEventStore, countdowns: Countdowns
) -> None:
    gates = Gates(store, SeededIds(3))
    at = await gates.open_sequence(GATE)

    created = await countdowns.create(A, [Counted()], Gate(GATE, at))

    assert (created.state.left, created.revision) == (2, 1)
    assert await countdowns.load(A) == created
    assert (await countdowns.append(created, [Counted()])).state.left == 1


async def test_an_aggregate_is_not_created_once_its_gate_has_moved(
    store: InMemoryEventStore, countdowns: Countdowns
) -> None:
    gates = Gates(store, SeededIds(3))
    at = await gates.open_sequence(GATE)
    await gates.close(GATE, 7)

    with pytest.raises(WrongExpectedSequence) as refusal:
        await countdowns.create(A, [Counted()], Gate(GATE, at))

    assert refusal.value.fields["subject"] == GATE
    assert await store.load(A) == []


async def test_a_first_message_that_breaks_an_invariant_is_not_stored(
    store: InMemoryEventStore, tallies: Tallies
) -> None:
    with pytest.raises(AssertionError, match="never shrinks"):
        await tallies.create(B, [Tallied(amount=-1)], Gate(GATE, 0))

    assert await store.load(B) == []


async def test_two_decisions_are_stored_together_and_go_on_separately(
    store: InMemoryEventStore, countdowns: Countdowns, tallies: Tallies
) -> None:
    at_two = await countdowns.append(await countdowns.load(A), [Counted()])

    counted, tallied = await append_together(
        store,
        Decision(countdowns, at_two, [Counted()]),
        Decision(tallies, await tallies.load(B), [Tallied(amount=5), Tallied(amount=6)]),
    )

    assert (await countdowns.load(A), await tallies.load(B)) == (counted, tallied)
    assert (counted.state.left, counted.revision) == (1, 2)
    assert (tallied.state.total, tallied.revision) == (11, 1)
    assert tallied.sequence == counted.sequence + 1
    await countdowns.append(counted, [Counted()])
    await tallies.append(tallied, [Tallied(amount=1)])


@pytest.mark.parametrize("changed", [A, B])
async def test_neither_decision_is_stored_when_somebody_changed_one_of_the_two(
    store: InMemoryEventStore, countdowns: Countdowns, tallies: Tallies, changed: str
) -> None:
    first = Decision(countdowns, await countdowns.load(A), [Counted()])
    second = Decision(tallies, await tallies.load(B), [Tallied(amount=5)])
    if changed == A:
        await countdowns.append(first.loaded, [Counted()])
    else:
        await tallies.append(second.loaded, [Tallied(amount=7)])

    with pytest.raises(WrongExpectedSequence) as refusal:
        await append_together(store, first, second)

    assert refusal.value.fields["subject"] == changed
    assert await store.last_sequence(1) == 1


async def test_neither_decision_is_stored_when_one_breaks_an_invariant(
    store: InMemoryEventStore, countdowns: Countdowns, tallies: Tallies
) -> None:
    first = Decision(countdowns, await countdowns.load(A), [Counted()])
    second = Decision(tallies, await tallies.load(B), [Tallied(amount=-5)])

    for pair in ((first, second), (second, first)):
        with pytest.raises(AssertionError, match="never shrinks"):
            await append_together(store, *pair)
    with pytest.raises(AssertionError, match="has events"):
        await append_together(store, first, Decision(tallies, second.loaded, []))

    assert await store.last_sequence(1) == 0


async def test_a_snapshot_that_is_due_follows_the_pair_and_is_not_part_of_it(
    store: InMemoryEventStore, countdowns: Countdowns, tallies: Tallies
) -> None:
    tallied: Loaded[Tally] = await tallies.load(B)
    for _ in range(SNAPSHOT_EVERY - 1):
        tallied = await tallies.append(tallied, [Tallied(amount=1)])
    counting = await countdowns.load(A)

    _, after = await append_together(
        store,
        Decision(tallies, tallied, [Tallied(amount=1)]),
        Decision(countdowns, counting, [Counted()]),
    )

    kinds = [m.kind async for m in store.scan(1, "ana.evt.1.>", SNAPSHOT_EVERY - 1)]
    assert kinds == ["events", "events", "snapshot"]
    assert after.sequence == SNAPSHOT_EVERY + 1
    assert (await tallies.load(B)).state.total == SNAPSHOT_EVERY
