"""Transactions with a key: one is committed of each version, whoever begins or commits it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from anabranch.common.contracts.subjects import transaction_key
from anabranch.common.contracts.transactions import ApplicationDescription, TransactionBegun
from anabranch.common.errors import Unavailable
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide
from kit.transaction_desk import REF, TransactionWorld, transaction_world

KEY = ".txnkey."


class Forgetful:
    """`OutcomeChunks` of a stream whose outcomes are too old."""

    async def archive(self, stream: Stream, outcomes: Sequence[Outcome]) -> None:
        raise AssertionError("nothing is archived")

    async def forget(self, stream: Stream, chunks: Sequence[int]) -> None:
        raise AssertionError("nothing is forgotten")

    async def forget_all(self, stream: Stream, below_sequence: int) -> None:
        raise AssertionError("nothing is forgotten")

    async def unpurged(self, stream: Stream, chunk: int) -> Sequence[Outcome]:
        raise AssertionError("nothing is forgotten")

    async def find(self, stream: Stream, transaction: str) -> Outcome | None:
        return None


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


def key(version: int) -> dict[str, Any]:
    return {"application": "app", "version": version}


async def begin(world: TransactionWorld, version: int, **fields: Any) -> TransactionBegun:
    return await world.begin(key=key(version), **fields)


async def begin_id(world: TransactionWorld, version: int) -> str:
    return (await begin(world, version)).transaction.transaction_id


async def application(world: TransactionWorld) -> tuple[int | None, str | None, int | None]:
    """The committed version, and what is open."""
    found = await world.ask("describe_application", ApplicationDescription, application="app")
    return found.committed_version, found.open_transaction, found.open_version


def opened(world: TransactionWorld) -> int:
    """How many transactions were ever begun."""
    return len({subject for subject in world.store.appended if ".txn." in subject})


async def test_a_version_is_begun_once(world: TransactionWorld) -> None:
    first = await begin(world, 1)
    again = await begin(world, 1, desk=world.another())
    assert again.segments == first.segments
    assert len(again.segments) == 2
    assert again.transaction.transaction_id == first.transaction.transaction_id
    assert opened(world) == 1
    assert await application(world) == (None, first.transaction.transaction_id, 1)


async def test_of_two_who_begin_a_version_at_once_one_gives_way(world: TransactionWorld) -> None:
    others: list[str] = []

    async def begin_first(_subject: str) -> None:
        others.append(await begin_id(world, 1))

    world.store.before(KEY, begin_first)
    mine = await begin(world, 1)
    assert [mine.transaction.transaction_id] == others
    assert len(mine.segments) == 2
    await world.folded()
    states = sorted(t.state.status or "" for t in world.mirror.transactions.all())
    assert states == ["aborting", "open"]
    await world.work()
    assert len(world.stores.live()) == 4


async def test_one_that_was_aborted_is_replaced(world: TransactionWorld) -> None:
    first = await begin_id(world, 1)
    await world.info("abort_transaction", first)
    second = await begin_id(world, 1)
    assert second != first
    await world.work()
    assert await application(world) == (None, second, 1)
    assert await begin_id(world, 1) == second


async def test_one_that_is_aborted_when_another_gives_way_to_it_is_replaced(
    world: TransactionWorld,
) -> None:
    async def begin_first(_subject: str) -> None:
        other = await begin_id(world, 1)
        await world.info("abort_transaction", other)
        await world.work()
        await world.purge(other)

    world.store.before(KEY, begin_first)
    mine = await begin(world, 1)
    assert mine.transaction.state == "open"
    assert await application(world) == (None, mine.transaction.transaction_id, 1)


async def test_one_whose_controller_was_lost_before_the_version_was_its_is_in_nobodys_way(
    world: TransactionWorld,
) -> None:
    async def lose(_subject: str) -> None:
        raise Unavailable("the event store does not answer")

    world.store.before(KEY, lose)
    assert await world.refusal("begin_transaction", key=key(1)) == "unavailable"
    assert await application(world) == (None, None, None)
    mine = await begin_id(world, 1)
    assert await application(world) == (None, mine, 1)
    assert opened(world) == 2


async def test_one_whose_segments_were_not_made_is_gone_on_with(world: TransactionWorld) -> None:
    world.stores.down = True
    assert await world.refusal("begin_transaction", key=key(1)) == "unavailable"
    world.stores.down = False
    begun = await begin(world, 1)
    assert opened(world) == 1
    assert world.live_of(begun.transaction.transaction_id) == [s.name for s in begun.segments]


async def test_a_later_version_replaces_an_earlier_one(world: TransactionWorld) -> None:
    first = await begin_id(world, 1)
    second = await begin_id(world, 2)
    assert await world.status(first) == "aborting"
    assert await application(world) == (None, second, 2)
    assert await world.refusal("begin_transaction", key=key(1)) == "version-passed"
    assert opened(world) == 2


async def test_who_learns_too_late_that_its_version_is_passed_leaves_nothing_open(
    world: TransactionWorld,
) -> None:
    async def begin_second(_subject: str) -> None:
        await begin_id(world, 2)

    world.store.before(KEY, begin_second)
    assert await world.refusal("begin_transaction", key=key(1)) == "version-passed"
    await world.folded()
    states = sorted(t.state.status or "" for t in world.mirror.transactions.all())
    assert states == ["aborting", "open"]


async def test_a_committed_version_is_answered_with_its_transaction(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)
    await world.info("commit_transaction", first)
    assert await application(world) == (1, None, None)
    for state in ("committing", "committed"):
        begun = await begin(world, 1)
        assert (begun.transaction.transaction_id, begun.transaction.state) == (first, state)
        assert begun.segments == ()
        await world.work()
    assert opened(world) == 1
    second = await begin_id(world, 2)
    await world.info("commit_transaction", second)
    assert await application(world) == (2, None, None)
    assert await world.refusal("begin_transaction", key=key(1)) == "version-passed"


async def test_a_committed_version_is_known_in_a_sealed_stream(world: TransactionWorld) -> None:
    first = await begin_id(world, 1)
    await world.info("commit_transaction", first)
    await world.seal()
    await world.work()
    begun = await begin(world, 1)
    assert (begun.transaction.transaction_id, begun.transaction.state) == (first, "committed")
    assert await world.refusal("begin_transaction", key=key(2)) == "stream-sealed"


async def test_a_version_is_known_longer_than_the_outcome_of_its_transaction(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)
    await world.info("commit_transaction", first)
    await world.work()

    desk = world.another()
    work = desk.transactions
    assert work is not None
    desk = replace(desk, transactions=replace(work, outcomes=Forgetful()))
    begun = await begin(world, 1, desk=desk)
    assert (begun.transaction.transaction_id, begun.transaction.state) == (first, "committed")
    assert begun.transaction.key is not None


async def test_what_was_replaced_cannot_be_committed(world: TransactionWorld) -> None:
    first = await begin_id(world, 1)

    async def fail(_subject: str) -> None:
        raise Unavailable("the event store does not answer")

    world.store.before(first, fail)
    await begin_id(world, 2)
    assert await world.status(first) == "open"
    assert await world.refusal("commit_transaction", transaction_id=first) == "version-passed"
    assert await world.status(first) == "open"


async def test_what_was_replaced_at_the_last_moment_is_not_committed(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)

    async def begin_second(_subject: str) -> None:
        await begin_id(world, 2)

    world.store.before(KEY, begin_second)
    assert await world.refusal("commit_transaction", transaction_id=first) == "transaction-ended"
    assert (await application(world))[2] == 2


async def test_two_who_commit_a_version_at_once_both_succeed(world: TransactionWorld) -> None:
    first = await begin_id(world, 1)

    async def commit(_subject: str) -> None:
        await world.info("commit_transaction", first, world.another())

    world.store.before(KEY, commit)
    assert (await world.info("commit_transaction", first)).state == "committing"
    assert await application(world) == (1, None, None)


async def test_an_abort_at_the_last_moment_leaves_the_version_uncommitted(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)

    async def abort(_subject: str) -> None:
        await world.decide(first, lambda txn: decide.abort(txn, "asked", 0))

    world.store.before(KEY, abort)
    assert await world.refusal("commit_transaction", transaction_id=first) == "transaction-ended"
    assert await application(world) == (None, first, 1)


async def test_one_that_was_committed_passed_by_and_purged_is_still_told_as_committed(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)

    async def go_on(_subject: str) -> None:
        await world.info("commit_transaction", first, world.another())
        await world.work()
        await world.purge(first)
        await world.info("commit_transaction", await begin_id(world, 2))

    world.store.before(KEY, go_on)
    assert (await world.info("commit_transaction", first)).state == "committed"
    assert await application(world) == (2, None, None)


async def test_one_that_is_committed_and_passed_by_between_two_looks_is_told_as_committed(
    world: TransactionWorld,
) -> None:
    first = await begin_id(world, 1)
    await world.folded()

    async def go_on(_subject: str) -> None:
        await world.info("commit_transaction", first, world.another())
        await world.info("commit_transaction", await begin_id(world, 2))

    world.store.before_load(KEY, go_on)
    assert (await world.info("commit_transaction", first)).state == "committing"
    assert await application(world) == (2, None, None)


async def test_what_is_forgotten_begins_at_any_version(world: TransactionWorld) -> None:
    await world.info("commit_transaction", await begin_id(world, 5))
    open_one = await begin_id(world, 6)
    for _ in range(2):
        forgotten = await world.ask("forget_application", ApplicationDescription, application="app")
        assert forgotten == ApplicationDescription(application="app")
    refused = await world.refusal("commit_transaction", transaction_id=open_one)
    assert refused == "version-passed"
    await begin_id(world, 1)
    assert (await application(world))[2] == 1


async def test_an_application_that_never_was_is_described(world: TransactionWorld) -> None:
    assert await application(world) == (None, None, None)
    described = ApplicationDescription(application="other")
    asked: dict[str, Any] = {"application": "other"}
    assert await world.ask("forget_application", ApplicationDescription, **asked) == described
    assert not [s for s in world.store.appended if s == transaction_key(REF, 1, "other")]
