"""Pings: many at once, nearly all without storing anything."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.common.contracts.subjects import shard_of_subject, transaction_events
from anabranch.common.contracts.transactions import TransactionPinged, TransactionsPinged
from anabranch.common.errors import Unavailable
from anabranch.controller.domain.transaction import decide
from anabranch.controller.handlers.desk.desk import QueryDesk
from kit.transaction_desk import REF, SUBJECT, TransactionWorld, transaction_world

LEASE_MS = 10_000
UNKNOWN = "f" * 32


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def ping(
    world: TransactionWorld, *transactions: str, desk: QueryDesk | None = None, **fields: Any
) -> list[TransactionPinged]:
    pings = [{"transaction_id": each, **fields} for each in transactions]
    found = await world.ask("ping_transactions", TransactionsPinged, desk, pings=pings)
    assert [one.transaction_id for one in found.results] == list(transactions)
    return list(found.results)


def stored(world: TransactionWorld) -> int:
    return sum(1 for subject in world.store.appended if ".txn." in subject)


async def test_a_ping_before_half_a_lease_stores_nothing(world: TransactionWorld) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS)
    await world.folded()
    heads, before = world.store.heads_read, stored(world)
    world.clock.at_ms += LEASE_MS // 2
    (pinged,) = await ping(world, transaction)
    assert (pinged.state, pinged.lease_left_ms, pinged.refusal) == ("open", LEASE_MS, "")
    assert (stored(world), world.store.heads_read) == (before, heads)


async def test_a_later_ping_is_stored_and_news(world: TransactionWorld) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS)
    before = stored(world)
    world.clock.at_ms += LEASE_MS // 2 + 1
    (pinged,) = await ping(world, transaction)
    assert pinged.lease_left_ms == LEASE_MS * 3 // 2
    assert stored(world) == before + 1
    await world.folded()
    news = world.mirror.transactions.tally.take_news()[shard_of_subject(SUBJECT)]
    (deadline_ms,) = news.values()
    assert deadline_ms == world.clock.at_ms + LEASE_MS * 3 // 2 + 1000


async def test_one_request_pings_many(world: TransactionWorld) -> None:
    begun = [await world.begin_id(lease_ms=LEASE_MS) for _ in range(40)]
    world.clock.at_ms += LEASE_MS
    fresh = [await world.begin_id(lease_ms=LEASE_MS) for _ in range(40)]
    await world.info("abort_transaction", begun[0])
    await world.folded()
    before = stored(world)
    found = await ping(world, *begun, UNKNOWN, *fresh)
    assert [one.state for one in found[:2]] == ["aborting", "open"]
    assert found[40].state is None
    assert all(one.lease_left_ms == LEASE_MS * 3 // 2 for one in (*found[1:40], *found[41:]))
    assert stored(world) == before + 39


async def test_what_a_ping_must_not_ask_is_told(world: TransactionWorld) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS, execution_ms_max=LEASE_MS)
    (short,) = await ping(world, transaction, lease_ms=1)
    assert (short.state, short.refusal) == ("open", "lease_out_of_range")
    world.clock.at_ms += 1
    (long,) = await ping(world, transaction)
    assert (long.state, long.refusal) == ("open", "execution_exceeded")


async def test_a_ping_after_the_decision_tells_the_outcome(world: TransactionWorld) -> None:
    committed, aborted = await world.begin_id(), await world.begin_id()
    await world.info("commit_transaction", committed)
    await world.info("abort_transaction", aborted)
    await world.folded()
    states = [one.state for one in await ping(world, committed, aborted)]
    assert states == ["committing", "aborting"]
    await world.work()
    for desk in (world.desk, world.another()):
        found = await ping(world, committed, aborted, UNKNOWN, desk=desk)
        assert [one.state for one in found] == ["committed", "aborted", None]


async def test_what_the_mirror_has_not_seen_is_found_at_the_head_once(
    world: TransactionWorld,
) -> None:
    unseen = [await world.open_elsewhere(number) for number in range(3)]
    heads = world.store.heads_read
    found = await ping(world, *unseen, UNKNOWN)
    assert [one.state for one in found] == ["open", "open", "open", None]
    assert world.store.heads_read == heads + 1


async def test_a_ping_that_comes_after_the_expiry_prolongs_nothing(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS)
    await world.folded()
    world.clock.at_ms += 10 * LEASE_MS

    async def expire(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.expire(txn, world.clock.at_ms))

    world.store.before(".txn.", expire)
    (pinged,) = await ping(world, transaction)
    assert (pinged.state, pinged.lease_left_ms) == ("aborting", 0)
    assert await world.status(transaction) == "aborting"


async def test_one_that_was_purged_meanwhile_is_told_with_its_outcome(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS)
    await world.folded()
    world.clock.at_ms += LEASE_MS

    async def end(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.commit(txn, now_ms=0))
        await world.work()
        await world.purge(transaction)

    world.store.before(".txn.", end)
    (pinged,) = await ping(world, transaction)
    assert pinged.state == "committed"


async def test_a_damaged_one_holds_up_no_other(world: TransactionWorld) -> None:
    bad = await world.begin_id(lease_ms=LEASE_MS)
    good = await world.begin_id(lease_ms=LEASE_MS)
    subject = transaction_events(REF, 1, bad)
    await world.folded()
    known = world.mirror.transactions.get(REF, 1, bad)
    assert known is not None
    world.mirror.transactions.family.damaged[subject] = Unavailable("it cannot be read")
    world.clock.at_ms += LEASE_MS
    found = await ping(world, bad, good)
    assert [(one.state, one.lease_left_ms) for one in found] == [
        ("open", 0),
        ("open", LEASE_MS * 3 // 2),
    ]


async def test_a_store_that_does_not_answer_is_told(world: TransactionWorld) -> None:
    transaction = await world.begin_id(lease_ms=LEASE_MS)
    world.clock.at_ms += LEASE_MS

    async def fail(_subject: str) -> None:
        raise Unavailable("the event store does not answer")

    world.store.before(".txn.", fail)
    pings = [{"transaction_id": transaction}]
    assert await world.refusal("ping_transactions", pings=pings) == "unavailable"
    (pinged,) = await ping(world, transaction)
    assert pinged.lease_left_ms == LEASE_MS * 3 // 2


async def test_pings_are_of_the_life_of_the_stream_that_is_meant(world: TransactionWorld) -> None:
    assert await world.refusal("ping_transactions", pings=[], incarnation=2) == "stream-not-found"
    assert await world.refusal("ping_transactions", pings=[], stream="y") == "stream-not-found"
