"""Load, decide, check, append."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptEvent,
    FormatTooNew,
    OutcomeUnknown,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing import repository
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage, Gate, NewMessage
from anabranch.common.eventsourcing.repository import SNAPSHOT_EVERY, Loaded, Repository
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.runtime.logger import ROOT, Line

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

        async def append(
            self,
            subject: str,
            expected_sequence: int,
            message: NewMessage,
            *,
            gate: Gate | None = None,
        ) -> int:
            return await store.append(subject, expected_sequence, message, gate=gate)

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
    await Repository(behind, COUNTER, SeededIds(1)).transact(SUBJECT, lambda _: add(1))

    with pytest.raises(Busy):
        await Repository(behind, COUNTER, SeededIds(2)).transact(SUBJECT, lambda _: add(1))


async def test_what_was_appended_here_is_known_until_somebody_else_knows_as_much(
    store: InMemoryEventStore,
) -> None:
    seen: list[Loaded[Counter]] = []
    counters = Repository(store, COUNTER, SeededIds(1), lambda _subject: seen[-1] if seen else None)
    assert counters.known(SUBJECT) is None
    first = await counters.transact(SUBJECT, lambda _: add(1))
    second = await counters.transact(SUBJECT, lambda _: add(1))
    assert counters.known(SUBJECT) == second
    seen.append(first)
    counters.remember(first)
    assert counters.known(SUBJECT) == second
    seen.append(replace(second))
    assert counters.known(SUBJECT) is seen[-1]


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


async def test_the_state_is_appended_after_so_many_messages(
    counters: Repository[Counter, Added], store: InMemoryEventStore
) -> None:
    for _ in range(2 * SNAPSHOT_EVERY):
        after = await counters.transact(SUBJECT, lambda _: add(1))

    scanned = [m async for m in store.scan(1, SUBJECT)]
    snapshots = [m for m in scanned if m.kind == "snapshot"]
    assert [m.revision for m in snapshots] == [SNAPSHOT_EVERY + 1, 2 * SNAPSHOT_EVERY + 2]
    assert [m.body for m in snapshots] == [b'{"total":64}', b'{"total":128}']
    assert snapshots[1].snapshot_sequence == snapshots[0].sequence
    assert await store.load(SUBJECT) == [snapshots[1]]
    loaded = await counters.load(SUBJECT)
    assert loaded.state == after.state == Counter(128)
    assert loaded.earlier_snapshot_sequence == snapshots[0].sequence


class _Deaf(InMemoryEventStore):
    """Takes no snapshots."""

    def __init__(self, refusal: AnabranchError) -> None:
        super().__init__()
        self.refusal = refusal
        self.refused = 0

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        if message.kind == "snapshot":
            self.refused += 1
            raise self.refusal
        return await super().append(subject, expected_sequence, message, gate=gate)


@pytest.mark.parametrize(
    "refusal", [WrongExpectedSequence("late"), OutcomeUnknown("?"), Unavailable("away")]
)
async def test_a_snapshot_that_cannot_be_stored_takes_nothing_from_the_decision(
    refusal: AnabranchError,
) -> None:
    store = _Deaf(refusal)
    counters = Repository(store, COUNTER, SeededIds(1))
    for _ in range(SNAPSHOT_EVERY + 3):
        await counters.transact(SUBJECT, lambda _: add(1))

    assert store.refused == 4  # it is tried again with every decision that follows
    assert (await counters.load(SUBJECT)).state == Counter(SNAPSHOT_EVERY + 3)


async def test_a_snapshot_that_was_stored_after_all_is_found_by_the_next_decision() -> None:
    class Forgetful(InMemoryEventStore):
        async def append(
            self,
            subject: str,
            expected_sequence: int,
            message: NewMessage,
            *,
            gate: Gate | None = None,
        ) -> int:
            sequence = await super().append(subject, expected_sequence, message, gate=gate)
            if message.kind == "snapshot":
                raise OutcomeUnknown("the answer was lost")
            return sequence

    counters = Repository(Forgetful(), COUNTER, SeededIds(1))
    for _ in range(SNAPSHOT_EVERY + 1):
        after = await counters.transact(SUBJECT, lambda _: add(1))

    assert after.state == Counter(SNAPSHOT_EVERY + 1)
    assert after.snapshot_revision == SNAPSHOT_EVERY + 1


async def test_a_state_that_is_too_large_is_never_cut_but_goes_without_a_snapshot(
    store: InMemoryEventStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repository, "SNAPSHOT_SIZE_BYTES_MAX", 11)
    counters = Repository(store, COUNTER, SeededIds(1))
    caplog.set_level("WARNING", ROOT)
    for _ in range(2 * SNAPSHOT_EVERY):
        await counters.transact(SUBJECT, lambda _: add(1))

    assert {m.kind async for m in store.scan(1, SUBJECT)} == {"events"}
    (line,) = [each.msg for each in caplog.records]
    assert isinstance(line, Line)
    assert line.fields["subject"] == SUBJECT
    assert (await counters.load(SUBJECT)).state == Counter(2 * SNAPSHOT_EVERY)


async def test_a_gap_is_healed_by_a_snapshot_alone(counters: Repository[Counter, Added]) -> None:
    behind = Loaded(SUBJECT, Counter(1), sequence=1, revision=1)
    events = EventMessage(SUBJECT, 9, 5, "a", "events", 1, 0, b"[]")
    snapshot = EventMessage(SUBJECT, 9, 5, "a", "snapshot", 1, 4, b'{"total":5}')

    with pytest.raises(CorruptEvent):
        counters.fold(behind, events)
    healed = counters.fold(behind, snapshot)

    assert (healed.state, healed.revision, healed.snapshot_sequence) == (Counter(5), 5, 9)


async def test_a_second_message_of_a_revision_changes_the_place_alone(
    counters: Repository[Counter, Added],
) -> None:
    known = Loaded(SUBJECT, Counter(5), sequence=9, revision=5, snapshot_sequence=4)
    for kind, body in (("snapshot", b'{"total":7}'), ("events", b"[]")):
        void = EventMessage(SUBJECT, 11, 5, "b", kind, 1, 2, body)
        assert counters.fold(known, void) == replace(known, sequence=11)
