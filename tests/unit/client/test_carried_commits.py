"""Commits that carry their events: the controller stores one copy or none, and the writer learns
which."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import EventWriter, Transaction, TransactionSettings, WriterSettings
from anabranch.client.wire.control import ATTEMPT_PAUSE_S
from anabranch.common.contracts.transactions import CommitEvents
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptBlock,
    EpochPassed,
    IdOutOfTime,
    OutcomeUnknown,
    StreamNotFound,
    StreamSealed,
    TransactionEnded,
    Unavailable,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import (
    CARRIED_AGE_MS_MAX,
    CARRIED_SEGMENTS_MAX,
    CARRIED_SIZE_BYTES_MAX,
    drawn_ms,
)
from anabranch.common.model.transaction import TransactionState as S
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.short_bench import asked, groups, keys_over, numbered

BRIEF = writer_settings(retry_timeout_s=0.05, ack_timeout_s=0.05)
BEGUN_AND_COMMITTED = ["begin_transaction", "commit_transaction"]


def requests(b: Bench) -> list[CommitEvents]:
    """The submissions that the controller got, without the first one, which asks for the time."""
    return [each for each in b.controller.transactions.submitted if drawn_ms(each.transaction_id)]


@asynccontextmanager
async def writing(
    segments: int = 2, settings: WriterSettings | None = None
) -> AsyncIterator[tuple[Bench, EventWriter]]:
    """A writer whose client knows the controllers' time."""
    async with (
        bench(segment_count=segments) as b,
        b.client.writer(STREAM, settings or writer_settings()) as writer,
    ):
        async with writer.transaction() as txn:
            txn.write_batch(numbered(2), keys=keys_over(b, 2))
        b.controller.transactions.submitted.clear()
        yield b, writer


def failing(b: Bench, *errors: AnabranchError | None, before: bool = False) -> None:
    """The next submissions fail, each with an error; the controller gets them, unless `before`."""
    left = list(errors)
    real = b.control.query

    async def query(name: str, *rest: object, **how: object) -> object:
        error = left.pop(0) if name == "commit_events" and left else None
        if error is not None and before:
            raise error
        answer: object = await real(name, *rest, **how)  # type: ignore[arg-type]
        if error is not None:
            raise error
        return answer

    b.control.query = query  # type: ignore[method-assign, assignment]


async def over_both(b: Bench, txn: Transaction, first: int = 2) -> None:
    txn.write_batch(numbered(2, first), keys=keys_over(b, 2))


# --- which way ------------------------------------------------------------------------------------


async def test_a_client_learns_the_time_once_and_then_commits_by_one_request() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        for number in range(3):
            async with writer.transaction() as txn:
                await over_both(b, txn, 2 * number)
            assert (txn.state, len(txn.id)) == (S.COMMITTED, 32)
        assert names[-4:] == ["commit_events"] * 4
        now_ms = b.controller.transactions.now_ms()
        assert all(abs(now_ms - drawn_ms(each.transaction_id)) < 5_000 for each in requests(b))
        assert sorted(await b.payloads()) == numbered(6)
        assert groups(b) == []


async def test_it_is_described_and_listed_by_its_id() -> None:
    async with writing() as (b, writer):
        async with writer.transaction(TransactionSettings(writer="tills")) as txn:
            await over_both(b, txn)
        info = await b.client.transactions(STREAM).describe(txn.id)
        assert (info.state, info.writer) == (S.COMMITTED, "tills")
        assert (await txn.describe()).transaction_id == txn.id
        assert (await txn.commit()).state is S.COMMITTED
        with pytest.raises(TransactionEnded):
            txn.write(b"late")


@pytest.mark.parametrize("size", [CARRIED_SIZE_BYTES_MAX // 2 - 300, CARRIED_SIZE_BYTES_MAX // 2])
async def test_events_that_no_commit_carries_are_long(size: int) -> None:
    async with writing() as (b, writer):
        names = asked(b)
        async with writer.transaction() as txn:
            txn.write_batch([b"x" * size] * 2, keys=keys_over(b, 2))
        is_long = 2 * size >= CARRIED_SIZE_BYTES_MAX
        assert names == (BEGUN_AND_COMMITTED if is_long else ["commit_events"])
        assert len(await b.payloads()) == 4


async def test_more_segments_than_a_commit_has_are_long() -> None:
    count = CARRIED_SEGMENTS_MAX + 1
    async with writing(count) as (b, writer):
        keys, names = keys_over(b, count), asked(b)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(count - 1), keys=keys[1:])
        assert names == ["commit_events"]
        async with writer.transaction() as txn:
            txn.write_batch(numbered(count), keys=keys)
        assert names[1:] == BEGUN_AND_COMMITTED


async def test_a_commit_with_a_time_is_long() -> None:
    async with writing() as (b, writer):
        names = asked(b)
        async with writer.transaction() as txn:
            await over_both(b, txn)
            await txn.commit(timestamp_ms=7)
        assert "commit_events" not in names


# --- waiting for the merge ------------------------------------------------------------------------


async def test_without_wait_it_returns_when_it_is_decided() -> None:
    async with writing() as (b, writer):
        b.controller.transactions.is_slow = True
        async with writer.transaction() as txn:
            await over_both(b, txn)
            assert (await txn.commit(wait=False)).state is S.COMMITTING
        assert txn.state is S.COMMITTING
        assert [each.wait_ms for each in requests(b)] == [0]
        b.controller.transactions.finish()
        assert (await txn.wait(5)).state is S.COMMITTED


async def test_with_wait_it_returns_when_readers_see_it() -> None:
    async with writing() as (b, writer), asyncio.TaskGroup() as tasks:
        b.controller.transactions.is_slow = True
        txn = await writer.transaction().__aenter__()
        await over_both(b, txn)
        leaving = tasks.create_task(txn.__aexit__(None, None, None))
        while not requests(b):  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not leaving.done()
        b.controller.transactions.finish()
        await leaving
        assert txn.state is S.COMMITTED


async def test_a_client_does_not_overtake_its_carried_commit() -> None:
    async with writing() as (b, writer):
        b.controller.transactions.is_slow = True
        async with writer.transaction() as first:
            await over_both(b, first)
            await first.commit(wait=False)
        async with writer.transaction() as second:
            second.write(b"one segment", key="boiler")
            await second.commit(wait=False)
        assert len(requests(b)) == 2
        assert groups(b) == []
        b.controller.transactions.finish()
        async with writer.transaction() as third:
            third.write(b"short again", key="boiler")
        assert third.id == ""
        assert len(groups(b)) == 1


# --- repeats and refusals -------------------------------------------------------------------------


async def test_a_lost_answer_is_asked_for_again_under_the_same_id() -> None:
    async with writing() as (b, writer):
        failing(b, Unavailable("lost"), Busy("not now"))
        async with writer.transaction() as txn:
            await over_both(b, txn)
        assert [each.transaction_id for each in requests(b)] == [txn.id] * 3
        assert sorted(await b.payloads()) == numbered(4)


async def test_a_scale_is_met_by_routing_anew_under_the_same_id() -> None:
    async with writing() as (b, writer):
        txn = await writer.transaction().__aenter__()
        txn.write_batch(numbered(4, 2), keys=keys_over(b, 2) * 2)
        list(b.scale_to(4))
        await txn.__aexit__(None, None, None)
        first, second = requests(b)
        assert (first.stream_epoch, second.stream_epoch) == (0, 1)
        assert first.transaction_id == second.transaction_id == txn.id
        assert sorted(await b.payloads()) == numbered(6)


async def test_a_copy_that_was_stored_before_the_scale_is_the_only_one() -> None:
    async with writing() as (b, writer):
        failing(b, Unavailable("lost"), EpochPassed("seen too late"))
        async with writer.transaction() as txn:
            await over_both(b, txn)
        assert txn.state is S.COMMITTED
        assert sorted(await b.payloads()) == numbered(4)


@pytest.mark.parametrize(
    "refusal", [StreamSealed("sealed"), CorruptBlock("damaged"), StreamNotFound("deleted")]
)
async def test_a_refusal_of_the_only_copy_leaves_it_open(refusal: AnabranchError) -> None:
    async with writing() as (b, writer):
        errors = [refusal] * (2 if isinstance(refusal, StreamNotFound) else 1)
        failing(b, *errors, before=True)
        txn = await writer.transaction(TransactionSettings()).__aenter__()
        await over_both(b, txn)
        if isinstance(refusal, StreamNotFound):
            del b.controller.scopes["plant"]["sensors"]
        with pytest.raises(type(refusal)):
            await txn.commit()
        assert txn.state is S.OPEN
        assert (await txn.abort()).state is S.ABORTED


async def test_a_refusal_behind_a_copy_without_an_answer_is_unknown() -> None:
    async with writing() as (b, writer):
        failing(b, Unavailable("lost"), StreamSealed("sealed"), before=True)
        txn = await writer.transaction().__aenter__()
        await over_both(b, txn)
        error = await unknown(txn)
        assert (error.fields["cause"], len(str(error.fields["transaction"]))) == (
            "stream-sealed", 32,
        )  # fmt: skip
        await txn.close()


async def test_a_refusal_that_may_answer_a_repeat_is_unknown() -> None:
    async with writing() as (b, writer):
        real = b.control.query

        async def slowly(name: str, *rest: object, **how: object) -> object:
            if name != "commit_events":
                return await real(name, *rest, **how)  # type: ignore[arg-type]
            await asyncio.sleep(ATTEMPT_PAUSE_S)
            raise StreamSealed("sealed")

        b.control.query = slowly  # type: ignore[method-assign, assignment]
        txn = await writer.transaction().__aenter__()
        await over_both(b, txn)
        await unknown(txn)
        await txn.close()


async def unknown(txn: Transaction) -> OutcomeUnknown:
    with pytest.raises(OutcomeUnknown) as told:
        await txn.commit()
    assert txn.state is None
    return told.value


async def test_a_commit_without_an_answer_is_unknown_until_another_one_learns_it() -> None:
    async with writing(settings=BRIEF) as (b, writer):
        failing(b, *[Unavailable("lost")] * 100)
        async with writer.transaction() as txn:
            await over_both(b, txn)
            error = await unknown(txn)
            with pytest.raises(TransactionEnded):
                txn.write(b"late")
            with pytest.raises(OutcomeUnknown):
                await txn.abort()
            failing(b)
            b.control.query = type(b.control).query.__get__(b.control)  # type: ignore[method-assign]
            assert (await txn.commit()).state is S.COMMITTED
        assert txn.id == error.fields["transaction"]
        assert {each.transaction_id for each in requests(b)} == {txn.id}
        assert sorted(await b.payloads()) == numbered(4)


async def test_a_commit_without_any_controller_can_be_repeated() -> None:
    async with writing(settings=BRIEF) as (b, writer):
        failing(b, *[Unavailable("no controller")] * 100, before=True)
        async with writer.transaction() as txn:
            await over_both(b, txn)
            await unknown(txn)
            b.control.query = type(b.control).query.__get__(b.control)  # type: ignore[method-assign]
        assert txn.state is S.COMMITTED
        assert sorted(await b.payloads()) == numbered(4)


# --- ids and time ---------------------------------------------------------------------------------


async def test_an_id_that_was_too_old_from_the_first_copy_on_is_drawn_again() -> None:
    async with writing() as (b, writer):
        now_ms = b.controller.transactions.now_ms
        later_ms = CARRIED_AGE_MS_MAX + 20_000
        b.controller.transactions.now_ms = lambda: now_ms() + later_ms
        async with writer.transaction() as txn:
            await over_both(b, txn)
        first, second = requests(b)
        assert first.transaction_id != second.transaction_id == txn.id
        assert drawn_ms(second.transaction_id) - drawn_ms(first.transaction_id) >= later_ms - 5_000
        assert sorted(await b.payloads()) == numbered(4)


async def test_an_id_that_became_too_old_leaves_the_outcome_unknown() -> None:
    async with writing() as (b, writer):
        now_ms = b.controller.transactions.now_ms()
        late = IdOutOfTime("too old", now_ms=now_ms + CARRIED_AGE_MS_MAX + 1)
        failing(b, Unavailable("lost"), late, before=True)
        txn = await writer.transaction().__aenter__()
        await over_both(b, txn)
        error = await unknown(txn)
        assert error.fields["cause"] == "id-out-of-time"
        await txn.close()


# --- cancellation ---------------------------------------------------------------------------------


async def test_a_cancelled_commit_is_stored_or_open_or_unknown() -> None:
    async def work(cancelling: Cancelling) -> None:
        async with writing() as (b, writer):
            txn = await writer.transaction().__aenter__()
            await over_both(b, txn)
            await cancelling.run(txn.commit())
            stored = len(await b.payloads()) - 2
            if txn.state is S.OPEN:
                assert (stored, requests(b)) == (0, [])
            else:
                assert txn.state in (None, S.COMMITTED)
                assert stored in (0, 2)
            assert (await txn.commit()).state is S.COMMITTED
            assert sorted(await b.payloads()) == numbered(4)
            await txn.close()

    await everywhere(work)


async def test_a_sealed_stream_refuses_it_before_anything_is_written() -> None:
    async with writing() as (b, writer):
        txn = await writer.transaction().__aenter__()
        await over_both(b, txn)
        b.stream.state = StreamState.SEALED
        with pytest.raises(StreamSealed):
            await txn.commit()
        assert txn.state is S.OPEN
        await txn.close()
