"""Beginning transactions, going on with them, and adding parts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.common.contracts.subjects import shard_of_subject, transaction_gate
from anabranch.common.contracts.transactions import TransactionBegun, TransactionInfo
from anabranch.common.model.names import segment_id
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.transaction import decide
from anabranch.controller.handlers.transactions import begin as transaction_begin
from kit.transaction_desk import (
    FIRST,
    REF,
    SECOND,
    START_MS,
    SUBJECT,
    TransactionWorld,
    transaction_world,
)

PART = "a" * 32
GATE = transaction_gate(REF, 1)


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def test_what_is_begun_can_be_written_beside_each_segment(world: TransactionWorld) -> None:
    begun = await world.begin(writer="w", lease_ms=10_000)
    info = begun.transaction
    assert (info.state, info.incarnation, info.stream_epoch, info.writer) == ("open", 1, 0, "w")
    assert info.lease_left_ms == 15_000
    assert [(s.segment_id, s.key_start, s.key_end) for s in begun.segments] == [
        (FIRST, 0.0, 0.5),
        (SECOND, 0.5, 1.0),
    ]
    assert world.live_of(info.transaction_id) == [s.name for s in begun.segments]
    assert info.transaction_id.startswith(f"{START_MS:012x}")


async def test_the_deadline_of_what_is_begun_is_news(world: TransactionWorld) -> None:
    info = (await world.begin()).transaction
    await world.folded()
    news = world.mirror.transactions.tally.take_news()[shard_of_subject(SUBJECT)]
    assert [subject.rpartition(".")[2] for subject in news] == [info.transaction_id]
    assert list(news.values()) == [info.deadline_ms]
    assert world.mirror.transactions.tally.take_news() == {}


async def test_with_parts_there_is_nothing_to_write_to_at_first(world: TransactionWorld) -> None:
    begun = await world.begin(parts=True)
    assert begun.segments == ()
    assert world.live_of(begun.transaction.transaction_id) == []


async def test_none_begins_in_a_stream_that_is_not_there(world: TransactionWorld) -> None:
    assert await world.refusal("begin_transaction", stream="y") == "stream-not-found"
    assert await world.refusal("begin_transaction", scope="t") == "scope-not-found"
    assert await world.refusal("begin_transaction", incarnation=2) == "stream-not-found"
    assert (await world.begin(incarnation=1)).transaction.incarnation == 1


async def test_none_begins_once_the_stream_is_to_be_sealed(world: TransactionWorld) -> None:
    await world.seal()
    await world.folded()
    assert await world.refusal("begin_transaction") == "stream-sealed"
    await world.work()
    assert await world.refusal("begin_transaction") == "stream-sealed"


async def test_a_gate_that_was_closed_meanwhile_lets_none_begin(world: TransactionWorld) -> None:
    async def close(_subject: str) -> None:
        await world.gates.close(GATE, 7)

    world.store.before(".txn.", close)
    assert await world.refusal("begin_transaction") == "stream-sealed"
    assert not [subject for subject in world.store.appended if ".txn." in subject]


async def test_a_gate_that_moved_and_is_open_is_read_again(world: TransactionWorld) -> None:
    async def move(_subject: str) -> None:
        await world.gates.close(GATE, 7)
        await world.gates.reopen(GATE, 8)

    world.store.before(".txn.", move)
    assert (await world.begin()).transaction.state == "open"


async def test_what_must_not_be_asked_is_refused(world: TransactionWorld) -> None:
    assert await world.refusal("begin_transaction", lease_ms=1) == "invalid-request"
    assert not [subject for subject in world.store.appended if ".txn." in subject]


async def test_too_many_that_have_not_ended_are_refused(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_begin, "OPEN_MAX", 2)
    for _ in range(2):
        await world.begin()
    await world.folded()
    assert await world.refusal("begin_transaction") == "overloaded"


async def test_what_ended_before_its_segments_were_made_is_told(world: TransactionWorld) -> None:
    async def abort(segment: str) -> None:
        (name,) = {segment.rpartition(".")[2]}
        await world.decide(name, lambda txn: decide.abort(txn, "asked", 0))
        await world.work()

    world.stores.before = abort
    assert await world.refusal("begin_transaction") == "transaction-ended"


async def test_who_resumes_makes_the_segments_that_a_lost_controller_did_not(
    world: TransactionWorld,
) -> None:
    world.stores.down = True
    assert await world.refusal("begin_transaction") == "unavailable"
    world.stores.down = False
    await world.folded()
    (transaction,) = [t.state.transaction_id for t in world.mirror.transactions.all()]
    resumed = await world.ask("resume_transaction", TransactionBegun, transaction_id=transaction)
    assert world.live_of(transaction) == [s.name for s in resumed.segments]
    assert len(resumed.segments) == 2


async def test_segments_that_are_known_to_be_there_are_not_asked_for_again(
    world: TransactionWorld,
) -> None:
    begun = await world.begin()
    asked = len(world.stores.requests)
    again = await world.ask(
        "resume_transaction",
        TransactionBegun,
        transaction_id=begun.transaction.transaction_id,
    )
    assert again.segments == begun.segments
    assert len(world.stores.requests) == asked


async def test_it_is_resumed_beside_the_segments_of_its_own_epoch(world: TransactionWorld) -> None:
    begun = await world.begin()
    await world.split(FIRST, 0, 0.25, 0.5)
    await world.work()
    resumed = await world.ask(
        "resume_transaction",
        TransactionBegun,
        world.another(),
        transaction_id=begun.transaction.transaction_id,
    )
    assert resumed.segments == begun.segments
    assert [s.segment_id for s in (await world.begin()).segments] == [
        segment_id(1, 2),
        segment_id(1, 3),
        SECOND,
    ]


async def test_what_has_an_outcome_is_resumed_without_segments(world: TransactionWorld) -> None:
    transaction = await world.begin_id()
    await world.info("commit_transaction", transaction)
    resumed = await world.ask("resume_transaction", TransactionBegun, transaction_id=transaction)
    assert (resumed.transaction.state, resumed.segments) == ("committing", ())
    await world.work()
    resumed = await world.ask("resume_transaction", TransactionBegun, transaction_id=transaction)
    expected = TransactionInfo(
        transaction_id=transaction,
        state=TransactionState.COMMITTED,
        incarnation=1,
        stream_epoch=0,
        ended_ms=START_MS,
    )
    assert (resumed.transaction, resumed.segments) == (expected, ())


async def test_one_that_ends_while_it_is_resumed_is_told_with_its_outcome(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    await world.folded()

    async def abort(_segment: str) -> None:
        await world.decide(transaction, lambda txn: decide.abort(txn, "asked", 0))
        await world.work()

    world.stores.before = abort
    info = await world.info("resume_transaction", transaction, world.another())
    assert info.state == "aborted"


async def test_a_part_has_segments_of_its_own(world: TransactionWorld) -> None:
    transaction = await world.begin_id(parts=True)
    asked: dict[str, Any] = {"transaction_id": transaction, "part": PART}
    added = await world.ask("add_transaction_part", TransactionBegun, **asked)
    assert added.transaction.part_count == 1
    assert world.live_of(transaction) == [s.name for s in added.segments]
    assert all(s.name.endswith(f".{PART}") for s in added.segments)
    again = await world.ask("add_transaction_part", TransactionBegun, **asked)
    assert (again.segments, again.transaction.part_count) == (added.segments, 1)


async def test_a_part_is_refused_where_there_is_no_room_for_one(world: TransactionWorld) -> None:
    whole, parted = await world.begin_id(), await world.begin_id(parts=True)
    asked = "add_transaction_part"
    assert await world.refusal(asked, transaction_id=whole, part=PART) == "invalid-request"
    assert await world.refusal(asked, transaction_id="0" * 32, part=PART) == (
        "transaction-not-found"
    )
    await world.info("abort_transaction", parted)
    await world.folded()
    assert await world.refusal(asked, transaction_id=parted, part=PART) == "transaction-ended"
    await world.work()
    assert await world.refusal(asked, transaction_id=parted, part=PART) == "transaction-ended"


async def test_a_part_that_comes_too_late_makes_no_segments(world: TransactionWorld) -> None:
    transaction = await world.begin_id(parts=True)
    await world.folded()

    async def abort(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.abort(txn, "expired", 0))

    world.store.before(".txn.", abort)
    refused = await world.refusal("add_transaction_part", transaction_id=transaction, part=PART)
    assert refused == "transaction-ended"
    assert world.live_of(transaction) == []
