"""Transactions of a writer: seen together or never, also when answers get lost."""

import asyncio
from collections.abc import Callable

import pytest

from anabranch.client import JsonSerializer, Transaction, TransactionSettings, WriterSettings
from anabranch.client.settings import MIB
from anabranch.client.transactions.calls import COMMIT_WAIT_MS
from anabranch.client.wire import nats_control
from anabranch.common.errors import (
    AnabranchError,
    EventTooLarge,
    InvalidRequest,
    InvalidSetting,
    OutcomeUnknown,
    StreamNotFound,
    TransactionEnded,
    Unavailable,
)
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.wire.messages import Append, Appended, Message
from kit.client_bench import STREAM, Bench, bench, until, writer_settings
from kit.fake_segstore import Direction, Fault, no_faults
from kit.fake_transactions import FakeTransaction

LONG = TransactionSettings(short=False)
QUICK = TransactionSettings(
    begin_timeout_s=0.05, commit_timeout_s=0.05, abort_timeout_s=0.05, short=False
)


def model_of(b: Bench, txn: Transaction) -> FakeTransaction:
    return b.controller.transactions.known[txn.id]


def asked(b: Bench) -> list[str]:
    """The names of all queries from now on."""
    names: list[str] = []
    b.control.before_query = names.append
    return names


def failing(b: Bench, name: str, times: int) -> Callable[[], int]:
    """The next `times` answers to this question get lost, after it was performed → how many were
    asked."""
    ask, count = b.control.query, 0

    async def query(asked: str, *rest: object, **how: object) -> object:
        nonlocal count
        answer: object = await ask(asked, *rest, **how)  # type: ignore[arg-type]
        if asked == name:
            count += 1
            if count <= times:
                raise Unavailable("the answer got lost")
        return answer

    b.control.query = query  # type: ignore[assignment]
    return lambda: count


# --- outcomes -----------------------------------------------------------------------------


async def test_events_are_seen_when_the_block_is_left_and_not_before() -> None:
    async with bench(segment_count=3) as b, b.client.writer(STREAM) as writer:
        async with writer.transaction(LONG) as txn:
            for number in range(60):
                txn.write(b"%d" % number, key=f"key {number % 7}")
            txn.write_batch([b"x", b"y"])
            await txn.flush()
            assert await b.payloads() == []
            assert not txn.is_done
        assert txn.state is S.COMMITTED
        for key, payloads in (await b.by_key()).items():
            if key is not None:
                assert payloads == [b"%d" % n for n in range(60) if f"key {n % 7}" == key]
        assert len(await b.payloads()) == 62


async def test_an_exception_aborts_and_is_what_is_raised() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction()

        async def work() -> None:
            async with txn:
                txn.write(b"never")
                await txn.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        assert txn.state is S.ABORTED
        assert await b.payloads() == []


async def test_an_exception_is_what_is_raised_also_when_nobody_can_be_told_to_abort() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:

        async def work() -> None:
            async with writer.transaction(QUICK):
                b.control.before_query = unavailable
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()


def unavailable(name: str) -> None:
    raise Unavailable("nobody is there")


async def test_the_writers_own_events_and_those_of_its_transactions_are_apart() -> None:
    async with bench() as b, b.client.writer(STREAM, serializer=JsonSerializer()) as writer:
        async with writer.transaction(LONG) as one, writer.transaction(LONG) as other:
            one.write({"of": 1})
            other.write({"of": 2})
            writer.write({"of": 0})
            await writer.flush()
            assert await b.payloads() == [b'{"of":0}']
        assert await b.payloads() == [b'{"of":0}', b'{"of":2}', b'{"of":1}']
        assert one.writer_id != other.writer_id != writer.writer_id


async def test_a_begin_and_a_commit_are_one_question_each() -> None:
    async with bench(segment_count=4) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction(LONG) as txn:
            txn.write_batch([b"%d" % n for n in range(20)], keys=[str(n) for n in range(20)])
        assert names == ["begin_transaction", "commit_transaction"]


async def test_segments_are_flushed_side_by_side() -> None:
    async with bench(segment_count=3) as b, b.client.writer(STREAM) as writer:
        waiting: set[int] = set()

        def hold(at: Direction, message: Message) -> Fault | None:
            if isinstance(message, Appended):
                waiting.add(message.session)
                return Fault.HOLD
            return None

        async with asyncio.TaskGroup() as tasks, writer.transaction(LONG) as txn:
            b.store.fault = hold
            txn.write_batch([b"%d" % n for n in range(30)], keys=[str(n) for n in range(30)])
            flushing = tasks.create_task(txn.flush())
            await until(lambda: len(waiting) == 3)
            assert not flushing.done()
            b.store.fault = no_faults
            b.store.release()
        assert len(await b.payloads()) == 30


async def test_connections_that_break_cost_and_repeat_nothing() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        seen = 0

        def drop_some(at: Direction, message: Message) -> Fault | None:
            nonlocal seen
            seen += isinstance(message, Append | Appended)
            return Fault.DROP if seen % 5 == 4 and isinstance(message, Append | Appended) else None

        b.store.fault = drop_some
        async with writer.transaction(LONG) as txn:
            for number in range(40):
                txn.write(b"%d" % number, key=str(number % 3))
                if number % 4 == 3:
                    await asyncio.sleep(0)
                    await txn.flush()
        b.store.fault = no_faults
        assert sorted(map(int, await b.payloads())) == list(range(40))


# --- who decides --------------------------------------------------------------------------


async def test_what_was_committed_inside_the_block_takes_nothing_more() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
            info = await txn.commit()
            assert info.state is S.COMMITTED
            with pytest.raises(TransactionEnded) as ended:
                txn.write(b"2")
            assert ended.value.fields["state"] == "committed"
            assert (await txn.commit()).state is S.COMMITTED
        with pytest.raises(TransactionEnded):
            await txn.abort()
        assert await b.payloads() == [b"1"]


async def test_what_was_aborted_inside_the_block_is_left_in_silence() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
            assert (await txn.abort()).state is S.ABORTED
            with pytest.raises(TransactionEnded):
                txn.write(b"2")
        with pytest.raises(TransactionEnded) as ended:
            await txn.commit()
        assert ended.value.fields == {"stream": STREAM, "transaction": txn.id, "state": "aborted"}
        assert await b.payloads() == []


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_write_to_what_ended_says_so_and_never_that_a_segment_is_sealed(
    is_slow: bool,
) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction()
        txn.write(b"1")
        await txn.flush()
        b.controller.transactions.is_slow = is_slow
        b.controller.transactions.abort(txn.id)
        b.store.seal(*(each.name for each in model_of(b, txn).segments() if is_slow))
        txn.write(b"2")
        with pytest.raises(TransactionEnded) as ended:
            await txn.flush()
        assert ended.value.fields["state"] == ("aborting" if is_slow else "aborted")
        with pytest.raises(TransactionEnded):
            txn.write(b"3")
        with pytest.raises(TransactionEnded):
            await txn.flush()
        await txn.close()


async def test_a_block_whose_transaction_ended_meanwhile_is_left_by_its_end() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        with pytest.raises(TransactionEnded):
            async with writer.transaction(LONG) as txn:
                b.controller.transactions.abort(txn.id)


async def test_a_segment_that_is_missing_while_the_transaction_is_open_is_no_silent_loss() -> None:
    settings = writer_settings(retry_timeout_s=0.05)
    async with bench() as b, b.client.writer(STREAM, settings) as writer:
        txn = await writer.transaction(QUICK)
        for segment in model_of(b, txn).segments():
            del b.store.segments[segment.name]
        txn.write(b"1")
        with pytest.raises(OutcomeUnknown) as unknown:
            await txn.__aexit__(None, None, None)
        assert txn.state is S.ABORTED
        assert unknown.value.fields["transaction"] == txn.id


async def test_without_waiting_a_commit_is_decided_and_can_be_waited_for() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.controller.transactions.is_slow = True
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
            assert (await txn.commit(wait=False)).state is S.COMMITTING
            assert txn.is_done
        assert await b.payloads() == []
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(txn.wait())
            await asyncio.sleep(0)
            b.controller.transactions.finish()
        assert waiting.result().state is S.COMMITTED
        assert await b.payloads() == [b"1"]


async def test_a_commit_that_takes_too_long_is_decided_all_the_same() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.controller.transactions.is_slow = True
        async with writer.transaction(QUICK) as txn:
            txn.write(b"1")
        assert txn.state is S.COMMITTING
        assert (await txn.wait(0.01)).state is S.COMMITTING


async def test_waiting_for_what_nobody_commits_ends() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction()
        with pytest.raises(OutcomeUnknown, match="still open"):
            await txn.wait(0.01)
        await txn.abort()
        with pytest.raises(TransactionEnded):
            await txn.wait()
        await txn.close()


# --- lost answers -------------------------------------------------------------------------


async def test_what_was_begun_by_a_request_whose_answer_got_lost_nobody_pings_or_commits() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        failing(b, "begin_transaction", 2)
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
        begun = b.controller.transactions.known
        states = {identity: each.state for identity, each in begun.items()}
        assert states.pop(txn.id) is S.COMMITTED
        assert set(states.values()) <= {S.OPEN}
        assert await b.payloads() == [b"1"]


async def test_a_commit_whose_answer_got_lost_is_asked_for_again() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        count = failing(b, "commit_transaction", 3)
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
        assert count() == 4
        assert txn.state is S.COMMITTED
        assert await b.payloads() == [b"1"]


async def test_a_commit_that_nobody_answers_is_unknown_and_named_and_not_aborted() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        failing(b, "commit_transaction", 1000)
        names = asked(b)
        with pytest.raises(OutcomeUnknown) as unknown:
            async with writer.transaction(QUICK) as txn:
                txn.write(b"1")
        assert unknown.value.fields["transaction"] == txn.id
        assert "describe" in unknown.value.remedy
        assert "abort_transaction" not in names
        assert txn.state is None
        with pytest.raises(TransactionEnded) as ended:
            txn.write(b"2")
        assert ended.value.fields["state"] == "unknown"
        assert (await txn.describe()).state is S.COMMITTED
        assert txn.is_done


async def test_nobody_answers_a_begin() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.control.before_query = unavailable
        with pytest.raises(Unavailable):
            await writer.transaction(QUICK)


async def test_a_stream_that_is_gone_is_said_to_be() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction()
        b.controller._drop_stream("plant", "sensors")
        for segment in model_of(b, txn).segments():
            b.store.delete(segment.name)
        txn.write(b"1")
        with pytest.raises(StreamNotFound):
            await txn.flush()
        await txn.close()


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("settings", [None, LONG])
async def test_large_events_come_along_in_both_kinds(settings: TransactionSettings | None) -> None:
    large = b"x" * (8 * MIB + 1)
    async with bench() as b, b.client.writer(STREAM, WriterSettings(large_events=True)) as writer:
        await writer.append(b"before")
        async with writer.transaction(settings) as txn:
            txn.write(b"small", "k")
            txn.write(large, "k")
            txn.write(b"behind", "k")
        aborted = await writer.transaction(settings)
        aborted.write(large, "k")
        await aborted.abort()
        assert await b.payloads() == [b"before", b"small", large, b"behind"]


async def test_a_large_event_that_was_not_allowed_is_refused_with_what_to_do() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction(LONG) as txn:
            with pytest.raises(EventTooLarge) as refused:
                txn.write(b"x" * (8 * MIB + 1))
            assert "large_events=True" in refused.value.remedy
            txn.write(b"small")
        assert await b.payloads() == [b"small"]


@pytest.mark.parametrize(
    "changes",
    [
        {"lease_ms": 999},
        {"lease_ms": 600_001},
        {"execution_ms_max": -1},
        {"writer": "x" * 251},
        {"commit_timeout_s": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        TransactionSettings(**changes)  # type: ignore[arg-type]


async def test_a_time_that_is_none_is_refused_and_writing_goes_on() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            with pytest.raises(InvalidRequest):
                await txn.commit(timestamp_ms=-1)
            txn.write(b"1")
        assert await b.payloads() == [b"1"]


async def test_a_commits_time_is_the_writers() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction(LONG) as txn:
            txn.write(b"1")
            await txn.commit(timestamp_ms=7)
        assert model_of(b, txn).mark == (writer.writer_id.hex(), 7)
        await writer.__aexit__(None, None, None)
        assert names[-1] == "remove_writer"


async def test_a_flush_that_fails_leaves_the_transaction_to_be_aborted() -> None:
    settings = writer_settings(retry_timeout_s=0.05, ack_timeout_s=0.05)
    async with bench() as b, b.client.writer(STREAM, settings) as writer:
        b.store.fault = refuse_appends
        with pytest.raises(AnabranchError, match="gave up"):
            async with writer.transaction(LONG) as txn:
                txn.write(b"1")
        assert txn.state is S.ABORTED


def refuse_appends(at: Direction, message: Message) -> AnabranchError | None:
    return Unavailable("full") if at == "in" and isinstance(message, Append) else None


async def test_what_was_begun_is_told_to_the_controller() -> None:
    settings = TransactionSettings(
        lease_ms=5_000, execution_ms_max=60_000, writer="me", short=False
    )
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction(settings) as txn:
            begun = model_of(b, txn).begun
            assert (begun.lease_ms, begun.execution_ms_max, begun.writer) == (5_000, 60_000, "me")
            assert txn.info.lease_ms == 5_000
            assert (await txn.ping(2_000)).lease_left_ms == 2_000
        with pytest.raises(TransactionEnded):
            await txn.ping()


def test_a_commit_waits_less_than_an_attempt_to_ask() -> None:
    assert COMMIT_WAIT_MS / 1000 < nats_control._ATTEMPT_S
