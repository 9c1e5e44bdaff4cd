"""Committing, aborting, and being told what became of a transaction."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.contracts.commands import DeleteStream
from anabranch.common.contracts.subjects import transaction_events
from anabranch.common.contracts.transactions import (
    ApplicationDescription,
    TransactionBegun,
    TransactionInfo,
)
from anabranch.common.errors import PartMismatch
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.stream import state as stream_state
from anabranch.controller.domain.stream.commits import Outcome
from anabranch.controller.domain.stream.events import StreamDeleted
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide
from anabranch.controller.handlers.transactions import outcomes as transaction_outcomes
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.workflows import archive_outcomes
from anabranch.controller.workflows.delete_stream import delete_segments
from kit.fed_mirror import fed_mirror
from kit.transaction_desk import (
    FIRST,
    REF,
    SECOND,
    START_MS,
    TransactionWorld,
    transaction_world,
)
from kit.virtual_time import run_virtual

A, B = "a" * 32, "b" * 32


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def with_parts(world: TransactionWorld, *parts: str) -> str:
    transaction = await world.begin_id(parts=True)
    for part in parts:
        await world.ask(
            "add_transaction_part", TransactionBegun, transaction_id=transaction, part=part
        )
    return transaction


def ended(transaction: str, state: str) -> TransactionInfo:
    return TransactionInfo(
        transaction_id=transaction,
        state=TransactionState(state),
        incarnation=1,
        stream_epoch=0,
        ended_ms=START_MS,
    )


async def test_a_commit_is_told_at_once_and_again(world: TransactionWorld) -> None:
    transaction = await world.begin_id()
    assert (await world.info("commit_transaction", transaction)).state == "committing"
    assert (await world.info("commit_transaction", transaction)).state == "committing"
    assert (await world.info("describe_transaction", transaction)).state == "committing"
    await world.work()
    for query in ("commit_transaction", "describe_transaction"):
        assert await world.info(query, transaction) == ended(transaction, "committed")
    assert await world.refusal("abort_transaction", transaction_id=transaction) == (
        "transaction-ended"
    )


async def test_an_abort_is_told_at_once_and_again(world: TransactionWorld) -> None:
    transaction = await world.begin_id()
    assert (await world.info("abort_transaction", transaction)).state == "aborting"
    assert (await world.info("abort_transaction", transaction)).state == "aborting"
    assert await world.refusal("commit_transaction", transaction_id=transaction) == (
        "transaction-ended"
    )
    await world.work()
    assert world.live_of(transaction) == []
    assert await world.info("abort_transaction", transaction) == ended(transaction, "aborted")
    assert await world.refusal("commit_transaction", transaction_id=transaction) == (
        "transaction-ended"
    )


async def test_what_never_was_is_not_found_however_it_is_asked_for(
    world: TransactionWorld,
) -> None:
    queries = "commit_transaction", "abort_transaction", "describe_transaction"
    for query in (*queries, "resume_transaction"):
        assert await world.refusal(query, transaction_id=A) == "transaction-not-found"
        assert await world.refusal(query, transaction_id=A, incarnation=7) == "stream-not-found"


async def test_a_mirror_that_is_behind_finds_it_at_the_head(world: TransactionWorld) -> None:
    transaction = await world.open_elsewhere()
    assert world.mirror.transactions.get(REF, 1, transaction) is None
    assert (await world.info("describe_transaction", transaction)).state == "open"


async def test_the_last_moment_decides_between_commit_and_abort(world: TransactionWorld) -> None:
    transaction = await world.begin_id()
    await world.folded()

    async def abort(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.abort(txn, "asked", 0))

    world.store.before(".txn.", abort)
    assert await world.refusal("commit_transaction", transaction_id=transaction) == (
        "transaction-ended"
    )
    assert await world.status(transaction) == "aborting"


async def test_what_expired_at_the_last_moment_is_not_committed(world: TransactionWorld) -> None:
    info = (await world.begin()).transaction
    await world.folded()
    world.clock.at_ms = info.deadline_ms

    async def expire(_subject: str) -> None:
        await world.decide(info.transaction_id, lambda txn: decide.expire(txn, info.deadline_ms))

    world.store.before(".txn.", expire)
    failure = await world.failure("commit_transaction", transaction_id=info.transaction_id)
    assert (failure.code, failure.fields["state"]) == ("transaction-ended", "aborting")


async def test_what_passed_its_deadline_is_committed_if_nobody_aborted_it(
    world: TransactionWorld,
) -> None:
    info = (await world.begin()).transaction
    world.clock.at_ms = info.deadline_ms + 1
    assert (await world.info("commit_transaction", info.transaction_id)).state == "committing"


async def test_one_that_was_committed_at_the_last_moment_is_not_aborted(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    await world.folded()

    async def commit(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.commit(txn, now_ms=0))

    world.store.before(".txn.", commit)
    assert await world.refusal("abort_transaction", transaction_id=transaction) == (
        "transaction-ended"
    )
    assert await world.status(transaction) == "committing"


async def test_one_that_ended_and_was_purged_meanwhile_is_answered_by_its_outcome(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    await world.folded()

    async def end(_subject: str) -> None:
        await world.decide(transaction, lambda txn: decide.commit(txn, now_ms=0))
        await world.work()
        await world.purge(transaction)

    world.store.before(".txn.", end)
    info = await world.info("commit_transaction", transaction)
    assert info == ended(transaction, "committed")
    world.store.before(".txn.", end)
    failure = await world.failure("abort_transaction", transaction_id=transaction)
    assert (failure.code, failure.fields["state"]) == ("transaction-ended", "committed")


async def test_nothing_is_committed_whose_segments_were_never_made(
    world: TransactionWorld,
) -> None:
    world.stores.down = True
    assert await world.refusal("begin_transaction") == "unavailable"
    await world.folded()
    (transaction,) = [t.state.transaction_id for t in world.mirror.transactions.all()]
    assert await world.refusal("commit_transaction", transaction_id=transaction) == "unavailable"
    assert await world.status(transaction) == "open"
    world.stores.down = False
    await world.info("commit_transaction", transaction)
    assert len(world.live_of(transaction)) == 2
    await world.work()
    assert await world.info("describe_transaction", transaction) == ended(transaction, "committed")


async def test_another_controller_commits_what_was_merged_meanwhile(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    await world.folded()

    async def end(_segment: str) -> None:
        await world.decide(transaction, lambda txn: decide.commit(txn, now_ms=0))
        await world.work()

    world.stores.before = end
    info = await world.info("commit_transaction", transaction, world.another())
    assert info.state == "committed"


async def test_what_is_written_is_in_the_stream_when_it_is_committed(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    before = world.stores.segments["s/x/1.#epoch.0"].length
    world.segment(transaction, 1).length = 30
    await world.info("commit_transaction", transaction)
    await world.work()
    assert world.stores.segments["s/x/1.#epoch.0"].length == before + 30


# --- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "before", "after"),
    [
        ("commit_transaction", "committing", "committed"),
        ("abort_transaction", "aborting", "aborted"),
    ],
)
async def test_who_waits_is_told_the_end(
    world: TransactionWorld, query: str, before: str, after: str
) -> None:
    transaction = await world.begin_id()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(world.info(query, transaction, wait_ms=20_000))
        await world.decided(transaction, before)
        await world.work()
    assert asked.result().state == after


async def test_who_waits_for_what_is_dropped_is_told_the_end(world: TransactionWorld) -> None:
    transaction = await world.begin_id()
    await world.info("commit_transaction", transaction)
    await world.folded()
    known = world.mirror.transactions
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(world.info("commit_transaction", transaction, wait_ms=20_000))
        await asyncio.sleep(0)
        await world.work()
        assert known.get(REF, 1, transaction) is None
    assert asked.result().state == "committed"


def test_who_waits_in_vain_is_told_the_outcome() -> None:
    async def story() -> None:
        async with transaction_world() as world:
            transaction = await world.begin_id()
            began_s = asyncio.get_running_loop().time()
            info = await world.info("commit_transaction", transaction, wait_ms=20_000)
            assert info.state == "committing"
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(20)
            work = world.desk.transactions
            assert work is not None
            assert work.waiting.count == 0

    run_virtual(story())


async def test_where_too_many_wait_nobody_else_does(world: TransactionWorld) -> None:
    work = world.desk.transactions
    assert work is not None
    while work.waiting.enter():
        pass
    transaction = await world.begin_id()
    info = await world.info("commit_transaction", transaction, wait_ms=30_000)
    assert info.state == "committing"


# --- parts -------------------------------------------------------------------------------------


async def test_the_parts_that_count_are_sealed_and_compared(world: TransactionWorld) -> None:
    transaction = await with_parts(world, A, B)
    world.segment(transaction, 0, A).length = 7
    world.segment(transaction, 1, B).length = 9
    said = [{"part": A, "lengths": [{"segment_id": FIRST, "length": 7}]}]
    assert (await world.info("commit_transaction", transaction, parts=said)).state == "committing"
    assert world.segment(transaction, 0, A).sealed
    assert world.segment(transaction, 1, A).sealed
    assert not world.segment(transaction, 1, B).sealed
    first = world.stores.segments["s/x/0.#epoch.0"]
    second = world.stores.segments["s/x/1.#epoch.0"]
    before = first.length, second.length
    await world.work()
    assert (first.length, second.length) == (before[0] + 7, before[1])
    assert world.live_of(transaction) == []


@pytest.mark.parametrize(
    ("lengths", "fields"),
    [
        ({FIRST: 6}, ("0.#epoch.0", 7, 6)),
        ({FIRST: 7, SECOND: 1}, ("1.#epoch.0", 0, 1)),
        ({}, ("0.#epoch.0", 7, 0)),
        ({FIRST: 7, 99: 1}, ("99", 0, 1)),
    ],
)
async def test_a_part_that_is_not_as_long_as_is_said_leaves_it_open(
    world: TransactionWorld, lengths: dict[int, int], fields: tuple[str, int, int]
) -> None:
    transaction = await with_parts(world, A)
    world.segment(transaction, 0, A).length = 7
    named = [{"segment_id": segment, "length": length} for segment, length in lengths.items()]
    failure = await world.failure(
        "commit_transaction",
        transaction_id=transaction,
        parts=[{"part": A, "lengths": named}],
    )
    assert isinstance(failure, PartMismatch)
    assert fields[0] in str(failure.fields["segment"])
    assert (failure.fields["part"], failure.fields["length"], failure.fields["said"]) == (
        A,
        *fields[1:],
    )
    assert await world.status(transaction) == "open"


async def test_a_part_that_was_never_added_is_refused_and_not_made(
    world: TransactionWorld,
) -> None:
    transaction = await with_parts(world, A)
    parts = [{"part": B}]
    refused = await world.refusal("commit_transaction", transaction_id=transaction, parts=parts)
    assert refused == "part-mismatch"
    assert not [name for name in world.live_of(transaction) if B in name]


async def test_a_part_that_another_controller_added_is_known_at_the_head(
    world: TransactionWorld,
) -> None:
    transaction = await with_parts(world, A)
    await world.folded()
    await world.decide(transaction, lambda txn: decide.add_part(txn, B))
    info = await world.info("commit_transaction", transaction, parts=[{"part": B}])
    assert info.state == "committing"
    # Its segments were not there: whoever added it was lost. What is merged must be there.
    assert len([name for name in world.live_of(transaction) if B in name]) == 2
    await world.work()
    assert await world.info("describe_transaction", transaction) == ended(transaction, "committed")


async def test_more_lengths_than_one_commit_may_name_are_refused(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_outcomes, "PART_LENGTHS_MAX", 1)
    transaction = await with_parts(world, A)
    named = [{"segment_id": FIRST, "length": 1}, {"segment_id": SECOND, "length": 1}]
    parts = [{"part": A, "lengths": named}]
    refused = await world.refusal("commit_transaction", transaction_id=transaction, parts=parts)
    assert refused == "invalid-request"
    assert not world.segment(transaction, 0, A).sealed


async def test_a_transaction_without_parts_is_not_committed_by_parts(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    parts = [{"part": A}]
    refused = await world.refusal("commit_transaction", transaction_id=transaction, parts=parts)
    assert refused == "invalid-request"


async def test_outcomes_are_stored_on_the_subject_of_the_transaction(
    world: TransactionWorld,
) -> None:
    transaction = await world.begin_id()
    await world.info("commit_transaction", transaction)
    subject = transaction_events(REF, 1, transaction)
    assert world.store.appended.count(subject) == 2


# --- a stream that is being deleted ---------------------------------------------------------------


class DeletedWhileSearched(OutcomeHistory):
    """The stream's deletion begins, and deletes what it has to, while somebody searches a chunk."""

    def __init__(self, world: TransactionWorld) -> None:
        super().__init__(HistoryChunks(world.store, SeededIds(9)))
        self._world = world

    async def find(self, stream: Stream, transaction: str) -> Outcome | None:
        await begin_to_delete(self._world)
        return await super().find(stream, transaction)


async def begin_to_delete(world: TransactionWorld) -> None:
    """Delete the sealed stream as far as its last event, which a crash prevents."""
    await world.perform(partial(DeleteStream, scope=REF.scope, stream=REF.stream))
    await world.folded()
    loaded = world.mirror.stream(REF)
    assert loaded is not None
    assert isinstance(await delete_segments(world.context, loaded), StreamDeleted)


async def sealed_with_archived(world: TransactionWorld) -> str:
    """A transaction of a sealed stream, whose outcome is in a chunk."""
    key = {"application": "app", "version": 7}
    transaction = await world.begin_id(key=key)
    await world.info("commit_transaction", transaction)
    with (
        patch.object(stream_state, "OUTCOMES_KEPT", 0),
        patch.object(stream_state, "OUTCOMES_PER_CHUNK", 1),
        patch.object(archive_outcomes, "OUTCOMES_PER_CHUNK", 1),
    ):
        await world.work()
        await world.seal()
        await world.work()
    assert (await world.info("describe_transaction", transaction)).state == "committed"
    return transaction


async def told(world: TransactionWorld, transaction: str) -> set[str]:
    """The errors that all questions about it are answered with."""
    queries = ("commit_transaction", "abort_transaction", "describe_transaction")
    found = {
        await world.refusal(query, transaction_id=transaction)
        for query in (*queries, "resume_transaction")
    }
    pings = [{"transaction_id": transaction}]
    return found | {await world.refusal("ping_transactions", pings=pings)}


async def test_what_became_of_it_is_gone_with_the_stream_and_never_unknown(
    world: TransactionWorld,
) -> None:
    transaction = await sealed_with_archived(world)
    await begin_to_delete(world)
    forgetful = OutcomeHistory(HistoryChunks(world.store, SeededIds(9)))
    world.replace_desk(transactions=replace(world.desk.transactions, outcomes=forgetful))

    assert await told(world, transaction) == {"stream-not-found"}


@pytest.mark.parametrize("query", ["describe_transaction", "ping_transactions"])
async def test_a_deletion_that_overtakes_the_search_makes_nothing_unknown(
    world: TransactionWorld, query: str
) -> None:
    transaction = await sealed_with_archived(world)
    slow = DeletedWhileSearched(world)
    world.replace_desk(transactions=replace(world.desk.transactions, outcomes=slow))
    about: dict[str, Any] = {"transaction_id": transaction}
    fields = {"pings": [about]} if query == "ping_transactions" else about

    assert await world.refusal(query, **fields) == "stream-not-found"


async def test_what_an_application_committed_is_gone_with_the_stream_and_never_nothing(
    world: TransactionWorld,
) -> None:
    await sealed_with_archived(world)
    known = await world.ask("describe_application", ApplicationDescription, application="app")
    assert known.committed_version == 7
    await begin_to_delete(world)
    started_later = replace(world.desk, mirror=fed_mirror(world.store))

    refusal = await world.refusal("describe_application", started_later, application="app")

    assert refusal == "stream-not-found"


async def test_what_never_was_is_unknown_as_long_as_the_stream_lives(
    world: TransactionWorld,
) -> None:
    await sealed_with_archived(world)

    assert await world.refusal("describe_transaction", transaction_id=A) == "transaction-not-found"
    nothing = await world.ask("describe_application", ApplicationDescription, application="other")
    assert nothing.committed_version is None
