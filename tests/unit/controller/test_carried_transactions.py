"""Transactions whose commit carries their events: one message decides, and it counts once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.contracts.subjects import (
    transaction_events,
    transaction_gate,
)
from anabranch.common.errors import WrongExpectedSequence
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.model.names import SegmentId, segment_id, segment_name
from anabranch.common.model.transaction import (
    CARRIED_AGE_MS_MAX,
    CARRIED_AHEAD_MS_MAX,
    CARRIED_SIZE_BYTES_MAX,
    TransactionState,
)
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionSubmitted
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.transactions import carried
from kit.carried_desk import an_id, asked, block, submit
from kit.transaction_desk import (
    FIRST,
    REF,
    SECOND,
    START_MS,
    TransactionWorld,
    transaction_world,
)

GATE = transaction_gate(REF, 1)
COMMITTING, COMMITTED = TransactionState.COMMITTING, TransactionState.COMMITTED


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def refused(world: TransactionWorld, desk: QueryDesk | None = None, **fields: Any) -> str:
    return await world.refusal("commit_events", desk, **asked(**fields))


def content(world: TransactionWorld, segment: int) -> list[bytes]:
    found = world.stores.segments[segment_name(REF, SegmentId(segment))]
    return [each for _, each in sorted(found.blocks.items())]


async def test_one_message_decides_and_the_batch_brings_the_events(world: TransactionWorld) -> None:
    before = len(world.store.appended)
    info = await submit(world)
    assert (info.state, info.stream_epoch, info.transaction_id) == (COMMITTING, 0, an_id())
    assert info.lease_ms == info.deadline_ms == 0
    assert len(world.store.appended) == before + 1
    assert content(world, FIRST) == []
    await world.work()
    assert (content(world, FIRST), content(world, SECOND)) == ([block(b"one")], [block(b"other")])
    assert await world.status(an_id()) == COMMITTING  # its end is an event of the stream alone
    assert world.live_of(an_id()) == []
    described = await world.info("describe_transaction", an_id())
    assert described.state is COMMITTED


async def test_it_waits_for_the_end_if_it_is_asked_to(world: TransactionWorld) -> None:
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(submit(world, wait_ms=5_000))
        await world.decided(an_id(), COMMITTING)
        await world.work()
    assert answer.result().state is COMMITTED


async def test_a_repeat_is_answered_and_stores_nothing(world: TransactionWorld) -> None:
    await submit(world)
    await world.folded()
    stored = list(world.store.appended)
    assert (await submit(world)).state is COMMITTING
    assert world.store.appended == stored
    await world.work()
    assert (await submit(world)).state is COMMITTED
    assert content(world, FIRST) == [block(b"one")]


async def test_two_copies_at_once_are_merged_once(world: TransactionWorld) -> None:
    async def first(_subject: str) -> None:
        await submit(world, world.another())

    world.store.before("txn.", first)
    assert (await submit(world)).state is COMMITTING
    stored = [subject for subject in world.store.appended if an_id() in subject]
    assert len(stored) == 2
    await world.work()
    assert content(world, FIRST) == [block(b"one")]
    assert (await submit(world)).state is COMMITTED


async def test_they_are_merged_in_the_order_of_their_messages(world: TransactionWorld) -> None:
    for number in (3, 1, 2):
        await submit(world, number=number, blocks={FIRST: block(b"%d" % number)})
    await world.work()
    assert content(world, FIRST) == [block(b"3"), block(b"1"), block(b"2")]


async def test_they_are_merged_together_with_those_that_were_begun(world: TransactionWorld) -> None:
    await submit(world, number=1, blocks={FIRST: block(b"1")})
    long = await world.begin_id()
    world.segment(long, 0).length = 5
    await world.info("commit_transaction", long)
    await submit(world, number=2, blocks={FIRST: block(b"2")})
    await world.work()
    target = world.stores.segments[segment_name(REF, FIRST)]
    one = len(block(b"1"))
    assert sorted(target.blocks) == [0, one + 5]
    assert target.length == 2 * one + 5
    assert await world.status(long) == COMMITTED


async def test_commits_that_another_controller_records_at_the_same_time_are_recorded_once(
    world: TransactionWorld,
) -> None:
    begun = [await world.begin_id() for _ in range(3)]
    for each in begun:
        await world.info("commit_transaction", each)

    async def record(_subject: str) -> None:
        await world.decide(begun[1], lambda seen: decide.committed(seen, START_MS))

    world.store.before("txn.", record)
    await world.work()
    for each in begun:
        assert await world.status(each) == COMMITTED
        stored = [subject for subject in world.store.appended if each in subject]
        assert len(stored) == 3


# --- what is refused ------------------------------------------------------------------------------


async def test_an_epoch_that_has_ended_is_refused_and_the_same_id_may_come_again(
    world: TransactionWorld,
) -> None:
    await world.split(FIRST, 0.0, 0.25, 0.5)
    await world.work()
    error = await world.failure("commit_events", **asked())
    assert (error.code, error.fields["stream_epoch"]) == ("epoch-passed", 1)
    new = segment_id(1, 2)
    assert (await submit(world, stream_epoch=1, blocks={new: block(b"new")})).state is COMMITTING
    assert await refused(world, number=2, stream_epoch=2) == "invalid-request"


async def test_an_epoch_that_ends_after_the_decision_makes_the_stream_roll(
    world: TransactionWorld,
) -> None:
    await submit(world)
    await world.split(FIRST, 0.0, 0.25, 0.5)
    await world.work()
    assert (await world.info("describe_transaction", an_id())).state is COMMITTED
    stream = world.mirror.stream(REF)
    assert stream is not None
    taken = next(e for e in stream.state.epochs if e.cause == "roll")
    assert content(world, taken.created[0].segment_id) == [block(b"one")]
    assert content(world, FIRST) == []


@pytest.mark.parametrize(
    ("at_ms", "code"),
    [
        (START_MS - CARRIED_AGE_MS_MAX - 1, "id-out-of-time"),
        (START_MS + CARRIED_AHEAD_MS_MAX + 1, "id-out-of-time"),
    ],
)
async def test_an_unknown_id_of_another_time_is_refused(
    world: TransactionWorld, at_ms: int, code: str
) -> None:
    error = await world.failure("commit_events", **asked(transaction_id=an_id(at_ms=at_ms)))
    assert (error.code, error.fields["now_ms"]) == (code, START_MS)


async def test_a_known_id_of_another_time_is_answered(world: TransactionWorld) -> None:
    await submit(world)
    await world.work()
    world.clock.at_ms += CARRIED_AGE_MS_MAX + 1
    assert (await submit(world)).state is COMMITTED
    await world.purge(an_id())
    assert (await submit(world)).state is COMMITTED


async def test_a_stream_that_is_sealed_takes_none_but_knows_its_own(
    world: TransactionWorld,
) -> None:
    await submit(world)
    await world.seal()
    await world.folded()
    assert await refused(world, number=2) == "stream-sealed"
    await world.work()
    assert content(world, FIRST) == [block(b"one")]
    assert await refused(world, number=2) == "stream-sealed"
    assert (await submit(world)).state is COMMITTED


async def test_a_seal_between_the_look_and_the_append_refuses_it(world: TransactionWorld) -> None:
    async def seal(_subject: str) -> None:
        await world.seal()
        await world.gates.close(GATE, 9)

    world.store.before("txn.", seal)
    assert await refused(world) == "stream-sealed"


@pytest.mark.parametrize(
    ("blocks", "code"),
    [
        ({segment_id(0, 7): block(b"x")}, "invalid-request"),
        ({FIRST: block(b"x")[:-1]}, "corrupt-block"),
        ({FIRST: b"x"}, "corrupt-block"),
        ({FIRST: block(b"x") + b"y"}, "corrupt-block"),
        ({FIRST: block(bytes(CARRIED_SIZE_BYTES_MAX))}, "invalid-request"),
        ({}, "invalid-request"),
    ],
)
async def test_a_store_never_gets_a_block_that_it_would_refuse(
    world: TransactionWorld, blocks: dict[int, bytes], code: str
) -> None:
    body = asked(blocks=blocks or {FIRST: block(b"x")})
    if not blocks:
        body["blocks"] = body["blocks"] * 2
    assert await world.refusal("commit_events", **body) == code
    assert not [subject for subject in world.store.appended if an_id() in subject]


async def test_it_is_refused_while_too_many_events_wait_for_their_merge(
    world: TransactionWorld,
) -> None:
    with patch.object(carried, "STREAM_SIZE_BYTES_MAX", len(block(b"one"))):
        await submit(world)
        await world.folded()
        assert await refused(world, number=2) == "busy"
        assert (await submit(world)).state is COMMITTING
        await world.work()
        assert (await submit(world, number=2)).state is COMMITTING


# --- late copies ----------------------------------------------------------------------------------


async def late_copy(world: TransactionWorld, gate: Gate) -> None:
    """A copy that was decided long ago arrives, with its condition."""
    event = TransactionSubmitted(
        scope="s", stream="x", incarnation=1, transaction_id=an_id(), stream_epoch=0, writer="",
        at_ms=START_MS, blocks=tuple(asked()["blocks"]),
    )  # fmt: skip
    await world.transactions.create(transaction_events(REF, 1, an_id()), [event], gate)


async def test_a_copy_that_was_decided_before_the_purge_is_not_stored_after_it(
    world: TransactionWorld,
) -> None:
    gate = Gate(GATE, (await world.gates.read(GATE)).sequence)
    await submit(world)
    await world.work()
    await world.gates.move(GATE)
    await world.purge(an_id())
    with pytest.raises(WrongExpectedSequence):
        await late_copy(world, gate)
    await world.work()
    assert content(world, FIRST) == [block(b"one")]


async def test_a_copy_that_comes_after_the_end_and_before_the_purge_is_void(
    world: TransactionWorld,
) -> None:
    """The mirror has dropped the transaction by then."""
    gate = Gate(GATE, (await world.gates.read(GATE)).sequence)
    await submit(world)
    await world.work()
    await late_copy(world, gate)
    await world.work()
    assert content(world, FIRST) == [block(b"one")]
    assert world.mirror.transactions.count(REF, 1) == 0
    assert (await submit(world)).state is COMMITTED


async def test_a_controller_that_lags_does_not_decide_again_after_the_purge(
    world: TransactionWorld,
) -> None:
    """It reads the gate afresh, and then waits for its mirror to know as much as the gate."""

    async def ended_meanwhile(_subject: str) -> None:
        await submit(world, world.another())
        await world.work()
        await world.gates.move(GATE)
        await world.purge(an_id())

    world.store.before("txn.", ended_meanwhile)
    assert (await submit(world)).state is COMMITTED
    assert content(world, FIRST) == [block(b"one")]
    assert not await world.store.load(transaction_events(REF, 1, an_id()))
