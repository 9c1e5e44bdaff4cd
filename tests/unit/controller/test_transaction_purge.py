"""Messages of ended transactions go slot by slot, and nothing goes that somebody may need."""

from contextlib import suppress
from dataclasses import replace

import pytest

from anabranch.common.contracts.subjects import (
    TRANSACTION_SLOT_MS,
    shard_of_subject,
    stream_events,
    transaction_events,
    transaction_gate,
    transaction_key,
    transaction_outcomes,
    transaction_slot,
    transaction_slot_ms,
)
from anabranch.common.contracts.transactions import BeginTransaction, CarriedBlock
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import transaction_id
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.application import APPLICATION, Application, ApplicationOpened
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionSubmitted
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.periodic.purge_transactions import (
    MOVED_S,
    REMEMBERED_S,
    SETTLE_MS,
    TransactionPurger,
)
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.workflows.repositories import Repositories
from kit.fed_mirror import families_of, transaction_mirror
from kit.loud import loud
from kit.rng import seeded

REF = StreamRef(ScopeName("s"), StreamName("x.y"))
BUCKET = shard_of_subject(stream_events(REF))
GATE = transaction_gate(REF, 1)
START_MS = 400_000_000 * TRANSACTION_SLOT_MS


class Clock(SystemClock):
    time_ms = START_MS

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000


class World:
    """One stream whose transactions are begun and ended; `purges` is what the store was asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = InMemoryEventStore(self.clock.now_ms)
        self.repository = Repositories(self.store, SeededIds(1))[TRANSACTIONS]
        self.mirror = transaction_mirror(families_of(self.store))
        self.reached = 0
        self.owned = True
        self.is_away = False
        self.purges: list[tuple[str, int]] = []
        self.purger = TransactionPurger(
            self.mirror.slots,
            lambda: [self.reached] * (BUCKET + 1),
            self._purge,
            lambda _bucket: self.owned,
            self.clock,
            move=self._move,
            containment=loud(self.clock),
        )
        self.moves: list[str] = []
        self.is_behind = False
        self.drawn = 0
        self.broken: dict[str, Exception] = {}

    async def _purge(self, pattern: str, below: int) -> None:
        if self.is_away:
            raise Unavailable("the store is away")
        if pattern in self.broken:
            raise self.broken[pattern]
        self.purges.append((pattern, below))
        await self.store.purge(pattern, below)

    async def _move(self, gate: str) -> None:
        if self.is_away:
            raise Unavailable("the store is away")
        self.moves.append(gate)
        if not self.is_behind:
            self.mirror.slots.moved(gate)

    async def submit(self) -> str:
        """The id of a new carried transaction."""
        self.drawn += 1
        now_ms = self.clock.time_ms
        name = transaction_id(now_ms, self.drawn.to_bytes(10, "big"))
        event = TransactionSubmitted(
            scope="s", stream="x.y", incarnation=1, transaction_id=name, stream_epoch=0,
            writer="", at_ms=now_ms, blocks=(CarriedBlock(segment_id=0, block=b"b"),),
        )  # fmt: skip
        subject = transaction_events(REF, 1, name)
        await self.repository.append(Loaded(subject, Transaction()), [event])
        await self.fold()
        return name

    async def begin(self) -> str:
        """The new transaction's id."""
        self.drawn += 1
        now_ms = self.clock.time_ms
        name = transaction_id(now_ms, self.drawn.to_bytes(10, "big"))
        asked = BeginTransaction(scope="s", stream="x.y", lease_ms=60_000, writer="w")
        event = decide.opened(asked, Opening(name, 1, 0, now_ms))
        subject = transaction_events(REF, 1, name)
        await self.repository.append(Loaded(subject, Transaction()), [event])
        await self.fold()
        return name

    async def fold(self) -> None:
        async for message in self.store.scan(BUCKET, "ana.>", self.reached):
            self.mirror.learn(message, self.mirror.family.fold(message))
            self.reached = message.sequence

    def end(self, *names: str) -> None:
        """The stream tells what became of them."""
        before = Stream(ref=REF, incarnation=1, status=StreamState.ACTIVE)
        outcomes = tuple(Outcome(name, True, 0, 1) for name in names)
        after = replace(before, outcomes=outcomes, outcome_count=len(names))
        self.mirror.drop_ended(before, after)

    def settle(self) -> None:
        """Everything that was begun is old."""
        self.clock.time_ms += TRANSACTION_SLOT_MS + SETTLE_MS

    async def stored(self) -> list[str]:
        """The ids of the transactions that have messages."""
        found = [m.subject async for m in self.store.scan(BUCKET, "ana.>")]
        return [subject.rsplit(".", 1)[1] for subject in found]


def test_transactions_of_one_slot_begin_alike_whatever_their_streams() -> None:
    ids = [transaction_id(START_MS + ms, bytes(10)) for ms in (0, TRANSACTION_SLOT_MS - 1)]
    later = transaction_id(START_MS + TRANSACTION_SLOT_MS, bytes(10))
    subjects = [transaction_events(REF, incarnation, ids[incarnation]) for incarnation in (0, 1)]

    assert {transaction_slot(subject) for subject in subjects} == {transaction_slot(subjects[0])}
    assert transaction_slot(transaction_events(REF, 1, later)) != transaction_slot(subjects[0])
    assert transaction_slot_ms(transaction_slot(subjects[1])) == START_MS
    assert shard_of_subject(transaction_slot(subjects[1])) == BUCKET


async def test_a_slot_goes_with_one_purge_when_all_its_transactions_have_ended() -> None:
    world = World()
    names = [await world.begin() for _ in range(3)]
    world.settle()
    await world.begin()
    world.end(*names[:2])
    await world.purger.round()
    assert world.purges == []

    world.end(names[2])
    for _ in range(2):
        await world.purger.round()

    slot = transaction_slot(transaction_events(REF, 1, names[0]))
    assert world.purges == [(slot, 5)]
    assert len(await world.stored()) == 1
    assert world.purger.purged_count == 1


async def test_a_young_slot_is_not_purged_again_and_again() -> None:
    world = World()
    for _ in range(3):
        world.end(await world.begin())
        await world.purger.round()
    assert world.purges == []

    world.settle()
    await world.purger.round()

    assert len(world.purges) == 1


async def test_what_is_begun_late_in_a_slot_stays_and_goes_when_it_ends() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    now_ms, world.clock.time_ms = world.clock.time_ms, START_MS
    late = await world.begin()
    world.clock.time_ms = now_ms

    await world.purger.round()
    assert world.purges == []
    world.end(late)
    await world.purger.round()

    assert await world.stored() == []


async def test_what_is_stored_while_a_purge_is_under_way_is_not_taken_for_purged() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    working = world.purger._purge

    async def slow(pattern: str, below: int) -> None:
        now_ms, world.clock.time_ms = world.clock.time_ms, START_MS
        world.end(await world.begin())
        world.clock.time_ms = now_ms
        await working(pattern, below)

    world.purger._purge = slow
    await world.purger.round()
    assert len(await world.stored()) == 1
    world.purger._purge = working
    await world.purger.round()

    assert await world.stored() == []


async def test_one_that_cannot_be_read_keeps_its_slot_for_the_repair() -> None:
    world = World()
    name = await world.begin()
    await world.begin()
    world.store.damage(BUCKET, 2, b"[]")
    other = World()
    other.store = world.store
    await other.fold()
    other.end(name)
    other.settle()

    await other.purger.round()

    assert other.purges == []


async def test_others_slots_are_purged_when_their_bucket_is_taken_soon() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    world.owned = False
    await world.purger.round()
    world.clock.time_ms += int(REMEMBERED_S * 1000) - 1
    await world.purger.round()
    assert world.purges == []

    world.owned = True
    await world.purger.round()

    assert len(world.purges) == 1


async def test_others_slots_are_forgotten_after_a_while() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    world.owned = False
    await world.purger.round()
    world.clock.time_ms += int(REMEMBERED_S * 1000)
    await world.purger.round()

    assert world.mirror.slots.done() == {}


async def test_a_purge_that_failed_is_tried_again() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    world.is_away = True
    with pytest.raises(Unavailable):
        await world.purger.round()
    world.is_away = False
    await world.purger.round()

    assert await world.stored() == []
    assert world.mirror.slots.done() == {}


async def test_with_a_stream_go_its_outcomes_and_applications_but_not_the_gate() -> None:
    store, ids = InMemoryEventStore(), SeededIds(1)
    chunks = HistoryChunks(store, ids)
    deleted = Stream(ref=REF, incarnation=1, status=StreamState.DELETING)
    gate, next_life = transaction_gate(REF, 1), transaction_outcomes(REF, 2, 0)
    await chunks.put(transaction_outcomes(REF, 1, 0), b"[]")
    await chunks.put(transaction_key(REF, 1, "app"), b"[]")
    await chunks.put(gate, b"[]")
    await chunks.put(next_life, b"[]")
    late = transaction_outcomes(REF, 1, 1)
    await chunks.put(late, b"[]")

    for _ in range(2):
        await OutcomeHistory(chunks).forget_all(deleted, below_sequence=5)

    found = [m.subject async for m in store.scan(BUCKET, "ana.>")]
    assert found == [gate, next_life, late]


async def test_the_applications_of_a_deleted_stream_leave_the_mirror() -> None:
    world = World()
    repository = Repository(world.store, APPLICATION, SeededIds(2))
    for incarnation in (1, 2):
        opened = ApplicationOpened(
            scope="s",
            stream="x.y",
            incarnation=incarnation,
            application="app",
            version=1,
            transaction_id=transaction_id(1, bytes(10)),
        )
        subject = transaction_key(REF, incarnation, "app")
        await repository.append(Loaded(subject, Application()), [opened])
    async for message in world.store.scan(BUCKET, "ana.>"):
        world.mirror.applications.fold(message)

    world.mirror.drop_applications(Stream(ref=REF, incarnation=1, status=StreamState.DELETED))

    assert list(world.mirror.applications.loaded) == [transaction_key(REF, 2, "app")]


@pytest.mark.parametrize("error", [KeyError("a defect"), Unavailable("it cannot be purged")])
async def test_one_slot_that_cannot_be_purged_keeps_no_other_one(error: Exception) -> None:
    world = World()
    world.purger._containment = Containment(world.clock, seeded(0))
    names = []
    for _ in range(3):
        names.append(await world.begin())
        world.settle()
    world.end(*names)
    slots = [transaction_slot(transaction_events(REF, 1, name)) for name in names]
    world.broken = {slots[0]: error}

    for _ in range(3):
        with suppress(Unavailable):
            await world.purger.round()

    assert sorted({pattern for pattern, _ in world.purges}) == sorted(slots[1:])


# --- carried transactions: a late copy must not find its subject fresh ----------------------------


async def test_a_slot_goes_some_seconds_after_the_gates_of_its_streams_have_moved() -> None:
    world = World()
    name = await world.submit()
    world.end(name)
    world.settle()
    await world.purger.round()
    assert (world.moves, world.purges) == ([GATE], [])
    await world.purger.round()
    world.clock.time_ms += int(MOVED_S * 1000) - 1
    await world.purger.round()
    assert (world.moves, world.purges) == ([GATE], [])
    world.clock.time_ms += 1
    await world.purger.round()
    assert (world.moves, len(world.purges)) == ([GATE], 1)
    assert await world.stored() == []


async def test_a_slot_waits_until_the_mirror_has_folded_the_moves() -> None:
    world = World()
    world.is_behind = True
    world.end(await world.submit())
    world.settle()
    for _ in range(3):
        await world.purger.round()
        world.clock.time_ms += int(MOVED_S * 1000)
    assert (len(world.moves), world.purges) == (3, [])
    world.mirror.slots.moved(GATE)
    await world.purger.round()
    world.clock.time_ms += int(MOVED_S * 1000)
    await world.purger.round()
    assert len(world.purges) == 1


async def test_a_gate_that_moved_before_the_end_moves_again() -> None:
    world = World()
    first = await world.submit()
    second = await world.submit()
    world.mirror.slots.moved(GATE)
    world.end(first, second)
    world.settle()
    await world.purger.round()
    assert (world.moves, world.purges) == ([GATE], [])


async def test_moves_for_later_slots_do_not_keep_an_earlier_one() -> None:
    world = World()
    for _ in range(8):
        world.end(await world.submit())
        world.clock.time_ms += TRANSACTION_SLOT_MS
        await world.purger.round()
    assert len(world.moves) >= 2
    assert world.purges


async def test_a_transaction_of_the_slot_that_comes_later_lets_the_gates_move_again() -> None:
    world = World()
    world.end(await world.submit())
    await world.purger.round()
    world.settle()
    await world.purger.round()
    world.clock.time_ms -= TRANSACTION_SLOT_MS + SETTLE_MS
    late = await world.submit()
    world.clock.time_ms += TRANSACTION_SLOT_MS + SETTLE_MS + int(MOVED_S * 1000)
    await world.purger.round()
    assert world.purges == []
    world.end(late)
    await world.purger.round()
    assert (world.moves, world.purges) == ([GATE, GATE], [])


async def test_a_failed_move_is_tried_again_before_the_purge() -> None:
    world = World()
    world.end(await world.submit())
    world.settle()
    world.is_away = True
    with pytest.raises(Unavailable):
        await world.purger.round()
    world.is_away = False
    world.clock.time_ms += int(MOVED_S * 1000)
    await world.purger.round()
    assert (world.moves, world.purges) == ([GATE], [])


async def test_transactions_that_were_begun_move_no_gate() -> None:
    world = World()
    world.end(await world.begin())
    world.settle()
    await world.purger.round()
    assert (world.moves, len(world.purges)) == ([], 1)


async def test_a_carried_transaction_that_has_ended_is_known_until_its_slot_is_purged() -> None:
    world = World()
    name = await world.submit()
    subject = transaction_events(REF, 1, name)
    assert not world.mirror.slots.has_ended(subject)
    world.end(name)
    assert world.mirror.slots.has_ended(subject)
    world.settle()
    for _ in range(3):
        await world.purger.round()
        world.clock.time_ms += int(MOVED_S * 1000)
    assert len(world.purges) == 1
    assert not world.mirror.slots.has_ended(subject)


async def test_another_controllers_slot_is_remembered_until_its_gates_have_moved() -> None:
    world = World()
    world.owned = False
    name = await world.submit()
    world.end(name)
    subject = transaction_events(REF, 1, name)
    await world.purger.round()
    world.clock.time_ms += int(REMEMBERED_S * 1000)
    await world.purger.round()
    assert world.mirror.slots.has_ended(subject)
    world.mirror.slots.moved(GATE)
    await world.purger.round()
    assert not world.mirror.slots.has_ended(subject)
