"""Transactions are aborted in time after their deadlines, and never before what was stored."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import pytest

from anabranch.common.contracts.place import STREAM, Part
from anabranch.common.contracts.subjects import (
    shard_of_subject,
    stream_events,
    transaction_events,
)
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import Gate, NewMessage
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState, transaction_id
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide, expiry
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.periodic import expire_transactions
from anabranch.controller.periodic.expire_transactions import (
    SWEEP_ALONE_S,
    SWEEP_S,
    TICK_S,
    Known,
    TransactionExpirer,
)
from anabranch.controller.projections.family import Families
from anabranch.controller.workflows.repositories import Repositories
from kit.fake_timers import InMemoryTimers
from kit.fed_mirror import transaction_mirror
from kit.loud import loud
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

REF = StreamRef(ScopeName("s"), StreamName("x"))
BUCKET = shard_of_subject(stream_events(REF))
ACTIVE = Stream(ref=REF, incarnation=1, status=StreamState.ACTIVE)


class CountingTimers(InMemoryTimers):
    """Counts how often somebody asks who is due."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
        self.asked += 1
        return await super().due(bucket, now_ms, limit)


class FaultyStore(InMemoryEventStore):
    is_away = False

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        if self.is_away:
            raise Unavailable("the store is away")
        return await super().append(subject, expected_sequence, message, gate=gate)


class Streams:
    """One stream."""

    state = ACTIVE

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        assert ref == REF
        return Loaded(stream_events(ref), self.state)

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        return self.stream(ref)

    async def live_parts(self, scope: ScopeName, incarnation: int) -> Mapping[Part, Sequence[str]]:
        return {STREAM: [REF.stream]}


class World:
    """A stream's transactions, a mirror that is fed by `fold`, timers, and who aborts in time."""

    def __init__(self, timers: CountingTimers | None = None) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.store = FaultyStore(self.clock.now_ms)
        repositories = Repositories(
            self.store,
            SeededIds(1),
            lambda subject: self.mirror.family.known(subject),  # noqa: PLW0108  # made below
        )
        self.repository = repositories[TRANSACTIONS]
        self.mirror = transaction_mirror(Families(repositories))
        self.folded = 0
        self.streams = Streams()
        self.owned = frozenset({BUCKET})
        self.timers = timers
        self.late_s: list[float] = []
        self.containment = loud(self.clock)
        self.drawn = 0
        self.expirer = TransactionExpirer(
            Known(self.mirror, self.streams, lambda: self.owned),
            self.repository,
            timers,
            clock=self.clock,
            on_expired=self.late_s.append,
            containment=self.containment,
        )

    def contain(self) -> None:
        """Let defects be, as a controller does."""
        self.containment = self.expirer._containment = Containment(self.clock, seeded(0))

    async def begin(self, lease_ms: int = 2_000, *, armed: bool = True) -> str:
        """The new transaction's subject."""
        self.drawn += 1
        now_ms = self.clock.now_ms()
        name = transaction_id(now_ms, self.drawn.to_bytes(10, "big"))
        asked = BeginTransaction(scope="s", stream="x", lease_ms=lease_ms, writer="w")
        subject = transaction_events(REF, 1, name)
        event = decide.opened(asked, Opening(name, 1, 0, now_ms))
        loaded = await self.repository.append(Loaded(subject, Transaction()), [event])
        if self.timers is not None and armed:
            await self.timers.arm(BUCKET, {subject: loaded.state.deadline_ms})
        return subject

    async def decide(
        self, subject: str, decision: Callable[[Transaction], Sequence[TransactionEvent]]
    ) -> Transaction:
        return (await self.repository.transact(subject, lambda one: decision(one.state))).state

    async def fold(self) -> None:
        """Bring the mirror to the head."""
        async for message in self.store.scan(BUCKET, "ana.>", self.folded):
            self.mirror.learn(message, self.mirror.family.fold(message))
            self.folded = message.sequence

    async def state(self, subject: str) -> Transaction:
        return (await self.repository.load(subject)).state

    async def run(self, seconds: float) -> None:
        """Rounds for so long, as `serve` has them, with a mirror that follows."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until_s:
            with suppress(Unavailable):  # as the loop of periodic jobs does
                await self.expirer.round()
            await self.fold()
            await self.clock.sleep(TICK_S)


def virtual(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test())

    run.__name__ = test.__name__
    return run


# --- in time ------------------------------------------------------------------------------------


@virtual
async def test_a_transaction_is_aborted_within_a_tick_of_its_deadline() -> None:
    world = World(CountingTimers())
    subject = await world.begin()
    await world.fold()
    deadline_ms = (await world.state(subject)).deadline_ms
    left_s = (deadline_ms - world.clock.now_ms()) / 1000

    await world.run(left_s - TICK_S / 2)
    assert (await world.state(subject)).is_open
    await world.run(2 * TICK_S)

    aborted = await world.state(subject)
    assert aborted.status is TransactionState.ABORTING
    assert aborted.abort_reason == "expired"
    (late_s,) = world.late_s
    assert 0 <= late_s <= TICK_S + 0.01


@virtual
async def test_many_deadlines_are_each_met_within_a_tick() -> None:
    world = World(CountingTimers())
    for number in range(200):
        await world.begin(2_000 + number * 20)
    await world.fold()

    await world.run(12)

    assert len(world.late_s) == 200
    assert max(world.late_s) <= TICK_S + 0.01


@virtual
async def test_who_is_pinged_lives_and_is_armed_at_the_later_deadline() -> None:
    timers = CountingTimers()
    world = World(timers)
    subject = await world.begin()
    first_ms = (await world.state(subject)).deadline_ms
    await world.clock.sleep(1.5)
    pinged = await world.decide(
        subject, lambda txn: decide.ping(txn, 5_000, world.clock.now_ms()).events
    )
    await world.fold()

    await world.run((first_ms - world.clock.now_ms()) / 1000 + 1)

    assert (await world.state(subject)).is_open
    assert timers.armed(BUCKET) == {subject: pinged.deadline_ms}


@virtual
async def test_a_mirror_that_missed_a_ping_aborts_nothing() -> None:
    timers = CountingTimers()
    world = World(timers)
    subject = await world.begin()
    await world.fold()
    await world.clock.sleep(2)
    pinged = await world.decide(
        subject, lambda txn: decide.ping(txn, 10_000, world.clock.now_ms()).events
    )
    await world.clock.sleep(3)

    await world.expirer.round()

    assert (await world.state(subject)).is_open
    assert world.late_s == []
    assert timers.armed(BUCKET) == {subject: pinged.deadline_ms}


@virtual
async def test_the_buckets_of_others_are_left_to_them() -> None:
    world = World(CountingTimers())
    subject = await world.begin()
    await world.fold()
    world.owned = frozenset()

    await world.run(10)
    assert (await world.state(subject)).is_open
    world.owned = frozenset({BUCKET})
    world.expirer.sweep_soon()
    await world.run(2 * TICK_S)

    assert not (await world.state(subject)).is_open


@virtual
async def test_a_bucket_that_was_lost_since_the_timers_were_asked_is_left_alone() -> None:
    world: World

    class Losing(CountingTimers):
        async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
            world.owned = frozenset()
            return await super().due(bucket, now_ms, limit)

    world = World(Losing())
    subject = await world.begin()
    await world.fold()
    await world.clock.sleep(10)

    await world.expirer.round()

    assert (await world.state(subject)).is_open


@virtual
async def test_without_open_transactions_nobody_is_asked() -> None:
    timers = CountingTimers()
    world = World(timers)
    subject = await world.begin(60_000)
    await world.decide(subject, lambda txn: decide.abort(txn, "asked", world.clock.now_ms()))
    await world.fold()

    await world.run(60)

    assert timers.asked == 0


@virtual
async def test_timers_that_were_not_asked_have_not_answered() -> None:
    timers = CountingTimers()
    world = World(timers)
    await world.begin()
    await world.fold()
    timers.away = True
    await world.run(8)
    world.expirer.sweep_soon()
    await world.expirer.round()  # nothing is open

    await world.begin(armed=False)
    await world.fold()
    asked = timers.asked
    await world.expirer.round()

    assert timers.asked == asked


# --- without timers -----------------------------------------------------------------------------


@virtual
async def test_without_timers_there_is_a_sweep_every_second() -> None:
    world = World()
    for _ in range(3):
        await world.begin()
        await world.fold()
        await world.clock.sleep(0.3)

    await world.run(10)

    assert len(world.late_s) == 3
    assert max(world.late_s) <= SWEEP_ALONE_S + TICK_S


@virtual
async def test_what_the_timers_lost_is_armed_by_the_next_sweep() -> None:
    timers = CountingTimers()
    world = World(timers)
    subject = await world.begin(4_000)
    far = await world.begin(60_000)
    await world.fold()
    await world.expirer.round()
    timers.forget()

    await world.run(SWEEP_S + TICK_S)

    assert subject in timers.armed(BUCKET)
    assert far not in timers.armed(BUCKET)


@virtual
async def test_while_the_timers_are_away_sweeps_go_on_and_afterwards_they_are_asked_again() -> None:
    timers = CountingTimers()
    world = World(timers)
    await world.begin()
    await world.fold()
    await world.run(1)
    timers.away = True

    await world.run(8)
    assert len(world.late_s) == 1
    assert world.late_s[0] <= SWEEP_ALONE_S + TICK_S
    timers.away = False
    await world.begin(10_000, armed=False)
    await world.fold()
    asked = timers.asked
    await world.run(20)

    assert timers.asked - asked > 100
    assert len(world.late_s) == 2
    assert world.late_s[1] <= 2 * TICK_S


@virtual
async def test_timers_that_are_away_are_asked_once_a_second_and_told_of_once() -> None:
    timers = CountingTimers()
    world = World(timers)
    await world.begin(60_000)
    await world.fold()
    timers.away = True

    await world.run(10)

    assert timers.asked <= 12


@virtual
async def test_a_store_that_was_away_costs_a_sweep_and_nothing_else() -> None:
    world = World(CountingTimers())
    subject = await world.begin()
    await world.fold()
    world.store.is_away = True
    await world.run(6)
    assert (await world.state(subject)).is_open

    world.store.is_away = False
    await world.run(SWEEP_ALONE_S + 2 * TICK_S)

    assert (await world.state(subject)).abort_reason == "expired"


def test_a_sweep_that_finds_very_many_goes_on_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expire_transactions, "ROUND_MAX", 8)

    async def scenario() -> None:
        world = World()
        for _ in range(10):
            await world.begin()
        await world.fold()
        await world.clock.sleep(10)

        await world.run(3 * TICK_S)

        assert len(world.late_s) == 10

    run_virtual(scenario())


# --- left over ----------------------------------------------------------------------------------


@virtual
async def test_what_ended_long_ago_and_is_in_no_batch_is_forgotten() -> None:
    world = World()
    subject = await world.begin()
    await world.decide(subject, lambda txn: decide.commit(txn, now_ms=world.clock.now_ms()))
    await world.decide(subject, lambda txn: decide.committed(txn, world.clock.now_ms()))
    await world.fold()

    await world.run(expiry.LEFT_OVER_MS / 1000 - 1)
    assert world.mirror.family.known(subject) is not None
    await world.run(3)

    assert world.mirror.family.known(subject) is None
    assert list(world.mirror.slots.done()) != []


# --- the tally ----------------------------------------------------------------------------------


@virtual
async def test_transactions_are_counted_by_state_with_the_age_of_the_oldest() -> None:
    world = World()
    first = await world.begin()
    await world.clock.sleep(1)
    second, third, fourth = [await world.begin() for _ in range(3)]
    opened_ms = (await world.state(first)).opened_ms
    await world.decide(second, lambda txn: decide.commit(txn, now_ms=world.clock.now_ms()))
    committing_ms = world.clock.now_ms()
    await world.decide(third, lambda txn: decide.abort(txn, "asked", world.clock.now_ms()))
    await world.decide(fourth, lambda txn: decide.abort(txn, "asked", world.clock.now_ms()))
    await world.decide(fourth, lambda txn: decide.aborted(txn, world.clock.now_ms()))
    await world.fold()

    ages = world.mirror.tally.ages()

    assert (ages.open_count, ages.committing_count, ages.aborting_count) == (1, 1, 1)
    assert (ages.opened_ms, ages.committing_ms) == (opened_ms, committing_ms)
    assert world.mirror.tally.ended() == [fourth]
    for subject in (first, second, third, fourth):
        world.mirror.forget(subject)
    assert world.mirror.tally.ages() == replace(
        ages, open_count=0, committing_count=0, aborting_count=0, opened_ms=0, committing_ms=0
    )
    assert world.mirror.tally.deadlines(BUCKET) == {}


@virtual
async def test_a_transaction_that_cannot_be_read_has_no_deadline() -> None:
    world = World()
    subject = await world.begin()
    await world.fold()
    await world.decide(subject, lambda txn: decide.ping(txn, 9_000, world.clock.now_ms()).events)
    world.store.damage(BUCKET, 2, b"[]")
    await world.fold()

    deadlines: Mapping[str, int] = world.mirror.tally.deadlines(BUCKET)

    assert deadlines == {}


@virtual
async def test_one_transaction_with_a_defect_keeps_no_other_one_open() -> None:
    world = World(CountingTimers())
    world.contain()
    subjects = [await world.begin() for _ in range(5)]
    await world.fold()
    bad = (await world.state(subjects[0])).transaction_id
    expire = decide.expire

    def broken(txn: Transaction, now_ms: int) -> Sequence[TransactionEvent]:
        if txn.transaction_id == bad:
            raise KeyError("nobody expected this")
        return expire(txn, now_ms)

    with patch.object(decide, "expire", broken):
        await world.run(120)

    assert [(await world.state(one)).is_open for one in subjects] == [True, *[False] * 4]
    assert max(world.late_s) <= TICK_S + 0.01
    assert world.containment.is_parked("expiry", subjects[0])
