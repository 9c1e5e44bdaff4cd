"""Short transactions: which ones are short, what makes one long, and what both promise."""

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow
import pytest

from anabranch.client import (
    EventWriter,
    JsonSerializer,
    Transaction,
    TransactionSettings,
    WriterSettings,
)
from anabranch.client.settings import MIB
from anabranch.client.transactions.unmerged import PENDING_MAX, Unmerged
from anabranch.common.errors import (
    BufferFull,
    EventTooLarge,
    InvalidRequest,
    StreamNotFound,
    StreamSealed,
    TransactionEnded,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.wire.requests import GROUP_SEGMENTS_MAX, GROUP_SIZE_BYTES_MAX
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.short_bench import asked, groups, keys_over, numbered, segment_of

BEGUN_AND_COMMITTED = ["begin_transaction", "commit_transaction"]


# --- which way ----------------------------------------------------------------------------


async def test_a_transaction_in_one_segment_is_one_request_and_asks_no_controller() -> None:
    async with bench(segment_count=3) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(10), keys=["boiler"] * 10)
            assert await b.payloads() == []
            assert (txn.id, txn.state, txn.is_done) == ("", S.OPEN, False)
            names.clear()
        (group,) = groups(b)
        assert [place.segment for place in group.places] == [segment_of(b, "boiler")]
        assert names == []
        assert (txn.id, txn.state, txn.info.state) == ("", S.COMMITTED, S.COMMITTED)
        assert txn.info.ended_ms >= txn.info.opened_ms > 0
        assert await b.payloads() == numbered(10)


async def test_a_transaction_of_segments_that_are_together_is_one_request() -> None:
    async with bench(segment_count=4, together=True) as b, b.client.writer(STREAM) as writer:
        names, keys = asked(b), keys_over(b, 4)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(8), keys=keys * 2)
        (group,) = groups(b)
        assert [place.count for place in group.places] == [2] * 4
        assert names == []
        by_key = await b.by_key()
        assert by_key == {key: [b"%d" % n, b"%d" % (n + 4)] for n, key in enumerate(keys)}


async def test_a_transaction_of_segments_that_are_not_together_is_carried() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(4), keys=keys_over(b, 2) * 2)
        assert set(names) == {"commit_events"}
        assert groups(b) == []
        assert b.controller.transactions.known[txn.id].state is S.COMMITTED
        assert sorted(await b.payloads()) == numbered(4)


async def test_events_without_keys_follow_the_first_key_and_make_nothing_long() -> None:
    async with bench(segment_count=8) as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
            txn.write_batch(numbered(2, 1), keys=[None, "boiler"])
            txn.write(b"3", timestamp_ms=7)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(3, 4))
        first, second = groups(b)
        assert [place.segment for place in first.places] == [segment_of(b, "boiler")]
        assert len(second.places) == 1
        stored = await b.stored()
        assert sorted(p for batch in stored for p in batch.payloads) == numbered(7)
        assert 7 in [stamp for batch in stored for stamp in batch.timestamps_ms]


@pytest.mark.parametrize("size", [GROUP_SIZE_BYTES_MAX // 2 - 200, GROUP_SIZE_BYTES_MAX // 2])
async def test_what_no_group_holds_is_long(size: int) -> None:
    async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction() as txn:
            txn.write_batch([b"x" * size] * 2, keys=keys_over(b, 2))
        is_long = 2 * size >= GROUP_SIZE_BYTES_MAX
        assert names == (BEGUN_AND_COMMITTED if is_long else [])
        assert len(groups(b)) == (0 if is_long else 1)
        assert len(await b.payloads()) == 2


async def test_compressed_events_count_with_what_they_take() -> None:
    settings = WriterSettings(compression="zstd")
    async with bench() as b, b.client.writer(STREAM, settings) as writer:
        async with writer.transaction() as txn:
            txn.write(b"x" * (3 * GROUP_SIZE_BYTES_MAX))
        assert len(groups(b)) == 1
        async with writer.transaction() as txn:
            txn.write(b"x" * (5 * GROUP_SIZE_BYTES_MAX))
        assert len(groups(b)) == 1
        assert [len(each) for each in await b.payloads()] == [
            3 * GROUP_SIZE_BYTES_MAX, 5 * GROUP_SIZE_BYTES_MAX,
        ]  # fmt: skip


async def test_more_segments_than_a_group_has_are_long() -> None:
    count = GROUP_SEGMENTS_MAX + 1
    async with bench(segment_count=count, together=True) as b, b.client.writer(STREAM) as writer:
        keys = keys_over(b, count)
        async with writer.transaction() as txn:
            txn.write_batch(numbered(count - 1), keys=keys[1:])
        async with writer.transaction() as txn:
            txn.write_batch(numbered(count), keys=keys)
        assert len(groups(b)) == 1
        assert len(await b.payloads()) == 2 * count - 1


async def test_what_is_awaited_or_has_a_key_or_parts_or_wants_it_is_long() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        transactions = b.client.transactions(STREAM)
        async with await writer.transaction() as txn:
            txn.write(b"0")
        async with writer.transaction(key=("app", 0)) as txn:
            txn.write(b"1")
        async with writer.transaction(TransactionSettings(short=False)) as txn:
            assert len(txn.id) == 32
            txn.write(b"2")
        async with transactions.begin(parts=True) as txn:
            await txn.commit(parts=[])
        assert groups(b) == []
        async with transactions.begin() as txn:
            txn.write(b"3")
        assert len(groups(b)) == 1
        assert await b.payloads() == numbered(4)


async def test_nothing_written_is_committed_without_a_request() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            pass
        assert txn.state is S.COMMITTED
        assert groups(b) == []


# --- what makes it long -------------------------------------------------------------------


async def flush(txn: Transaction) -> None:
    await txn.flush()


async def ping(txn: Transaction) -> None:
    await txn.ping()


async def describe(txn: Transaction) -> None:
    assert (await txn.describe()).state is S.OPEN


async def append(txn: Transaction) -> None:
    await txn.append(b"4", "k", 9)


async def acknowledgement(txn: Transaction) -> None:
    await txn.acknowledgement()


async def columns(txn: Transaction) -> None:
    rows = [b"%04d" % number for number in range(1000)]
    txn.write_arrow(pyarrow.table({"event": rows, "key": ["k"] * 1000}), key="key")


@pytest.mark.parametrize("use", [flush, ping, describe, append, acknowledgement, columns])
async def test_a_call_that_needs_it_makes_it_long_and_the_order_stays(
    use: Callable[[Transaction], Awaitable[None]],
) -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        async with writer.transaction() as txn:
            txn.write(b"0", "k")
            txn.write_batch(numbered(2, 1), keys=["k", "k"], timestamps_ms=[5, 6])
            txn.write(b"3", "k")
            await use(txn)
            txn.write(b"5", "k")
        assert names[0] == "begin_transaction"
        assert names[-1] == "commit_transaction"
        assert groups(b) == []
        assert txn.state is S.COMMITTED
        stored = [p for p in (await b.by_key())["k"] if len(p) == 1]
        assert stored == [p for p in numbered(6) if use is append or p != b"4"]


async def test_a_commit_with_a_time_is_long_and_one_with_parts_is_refused() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
            with pytest.raises(InvalidRequest):
                await txn.commit(parts=[])
            assert txn.id == ""
            await txn.commit(timestamp_ms=7)
        model = b.controller.transactions.known[txn.id]
        assert model.mark == (writer.writer_id.hex(), 7)
        with pytest.raises(InvalidRequest, match="no parts"):
            txn.part()


async def test_a_few_columns_stay_short_and_a_malformed_key_is_refused_at_once() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write_arrow(pyarrow.table({"event": [b"0", b"1"]}))
            many = pyarrow.table({"event": [b"x"] * 2000, "key": ["k" * 70_000] * 2000})
            with pytest.raises(InvalidRequest, match="too long"):
                txn.write_arrow(many, key="key")
        assert len(groups(b)) == 1
        assert await b.payloads() == numbered(2)


async def test_what_fills_the_buffer_is_drained_into_a_long_transaction() -> None:
    settings = writer_settings(buffer_size_bytes=1000)
    async with bench() as b, b.client.writer(STREAM, settings) as writer:
        names = asked(b)
        async with writer.transaction() as txn:
            for event in numbered(200):
                while True:
                    try:
                        txn.write(event, "k")
                        break
                    except BufferFull:
                        await txn.drain()
        assert names == BEGUN_AND_COMMITTED
        assert await b.payloads() == numbered(200)


async def test_a_drain_while_there_is_room_changes_nothing() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
            await txn.drain()
            assert txn.unacknowledged() == {"": [b"0"]}
            assert txn.used_bytes > 0
        assert len(groups(b)) == 1
        assert (txn.used_bytes, txn.unacknowledged()) == (0, {})


async def test_events_written_while_it_becomes_long_are_part_of_it() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with asyncio.TaskGroup() as tasks, writer.transaction() as txn:
            txn.write(b"0", "k")
            held: list[str] = []

            def write_meanwhile(name: str) -> None:
                held.append(name)
                txn.write(b"1", "k")

            b.control.before_query = write_meanwhile
            flushes = [tasks.create_task(txn.flush()) for _ in range(3)]
            await asyncio.wait(flushes)
            b.control.before_query = held.append
            txn.write(b"2", "k")
        assert held == BEGUN_AND_COMMITTED
        assert await b.payloads() == numbered(3)


# --- what is refused ----------------------------------------------------------------------


async def test_what_a_writer_refuses_a_short_transaction_refuses_at_the_write() -> None:
    settings = WriterSettings(buffer_size_bytes=9 * MIB, event_size_bytes_max=10 * MIB)
    async with bench() as b, b.client.writer(STREAM, settings) as writer:
        async with writer.transaction() as txn:
            with pytest.raises(EventTooLarge) as refused:
                txn.write(b"x" * (8 * MIB + 1))
            assert "large_events=True" in refused.value.remedy
            with pytest.raises(InvalidRequest, match="too long"):
                txn.write(b"x", "k" * 70_000)
            with pytest.raises(InvalidRequest, match="must be text"):
                txn.write(b"x", 7)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="timestamp"):
                txn.write(b"x", timestamp_ms=1 << 63)
            with pytest.raises(InvalidRequest, match="bytes or text"):
                txn.write(7)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="must be bytes"):
                txn.write_batch([b"x", "y"])
            with pytest.raises(InvalidRequest, match="differ in length"):
                txn.write_batch([b"x", b"y"], keys=["k"])
            with pytest.raises(InvalidRequest, match="larger than the writer's buffer"):
                txn.write_batch([b"x" * 5 * MIB] * 2)
            txn.write(b"x" * 5 * MIB)
            with pytest.raises(BufferFull):
                txn.write(b"y" * 5 * MIB)
            await txn.abort()
        assert await b.payloads() == []


async def test_values_are_serialized_when_they_are_written() -> None:
    async with bench() as b, b.client.writer(STREAM, serializer=JsonSerializer()) as writer:
        value = {"n": 1}
        async with writer.transaction() as txn:
            txn.write(value)
            txn.write_batch([value], keys=["k"])
            value["n"] = 2
        assert await b.payloads() == [b'{"n":1}'] * 2


# --- outcomes -----------------------------------------------------------------------------


async def test_an_exception_and_an_abort_leave_nothing() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        names = asked(b)
        txn = await writer.transaction().__aenter__()
        txn.write(b"never")
        await txn.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert (txn.state, txn.used_bytes) == (S.ABORTED, 0)
        async with writer.transaction() as txn:
            txn.write(b"never")
            assert (await txn.abort()).state is S.ABORTED
            assert (await txn.abort()).state is S.ABORTED
            with pytest.raises(TransactionEnded) as ended:
                txn.write(b"2")
        for call in (txn.commit, txn.flush, txn.ping, txn.wait):
            with pytest.raises(TransactionEnded):
                await call()
        assert ended.value.fields == {"stream": STREAM, "transaction": "", "state": "aborted"}
        assert (await txn.describe()).state is S.ABORTED
        assert names == []
        assert await b.payloads() == []


async def test_what_was_committed_inside_the_block_takes_nothing_more() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"1")
            assert (await txn.commit(wait=False)).state is S.COMMITTED
            with pytest.raises(TransactionEnded) as ended:
                txn.write(b"2")
            assert ended.value.fields["state"] == "committed"
            for again in (await txn.commit(), await txn.wait(), await txn.describe()):
                assert again.state is S.COMMITTED
        for call in (txn.abort, txn.flush, txn.ping):
            with pytest.raises(TransactionEnded):
                await call()
        assert len(groups(b)) == 1
        assert await b.payloads() == [b"1"]


async def test_commits_at_the_same_time_are_one() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn, asyncio.TaskGroup() as tasks:
            txn.write(b"1")
            commits = [tasks.create_task(txn.commit()) for _ in range(3)]
        assert {each.result().state for each in commits} == {S.COMMITTED}
        assert len(groups(b)) == 1


async def test_what_is_closed_without_an_outcome_is_aborted() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write(b"1")
        await txn.close()
        assert txn.state is S.ABORTED
        with pytest.raises(TransactionEnded):
            await txn.commit()
        assert await b.payloads() == []


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_stream_that_takes_nothing_more_says_so_and_nothing_is_written(
    is_gone: bool,
) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"1")
            if is_gone:
                b.controller._drop_stream("plant", "sensors")
            else:
                b.seal()
            with pytest.raises(StreamNotFound if is_gone else StreamSealed):
                await txn.commit()
            assert (await txn.abort()).state is S.ABORTED
        assert txn.state is S.ABORTED
        with pytest.raises(StreamNotFound if is_gone else StreamSealed):
            await writer.transaction().__aenter__()


async def test_a_stream_that_is_sealed_is_refused_when_it_is_entered_first() -> None:
    async with bench() as b:
        b.controller.scopes["plant"]["sensors"].state = StreamState.SEALED
        with pytest.raises(StreamSealed):
            await b.client.transactions(STREAM).begin().__aenter__()


# --- order --------------------------------------------------------------------------------


async def write_two(b: Bench, writer: EventWriter) -> Transaction:
    """A long transaction that is decided and not merged, and then one that could be short."""
    first = await writer.transaction()
    first.write(b"0", "k")
    await first.commit(wait=False)
    await first.close()
    async with writer.transaction() as second:
        second.write(b"1", "k")
        if b.controller.transactions.is_slow:
            await second.commit(wait=False)
    return second


async def test_a_short_commit_does_not_overtake_a_long_one_of_the_same_client() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.controller.transactions.is_slow = True
        second = await write_two(b, writer)
        assert second.state is S.COMMITTING
        b.controller.transactions.finish()
        b.controller.transactions.is_slow = False
        async with writer.transaction() as third:
            third.write(b"2", "k")
        assert third.id == ""
        assert await b.payloads() == numbered(3)
        names = asked(b)
        async with writer.transaction() as fourth:
            fourth.write(b"3", "k")
        assert names == []


async def test_a_commit_by_id_is_not_overtaken_either() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        transactions = b.client.transactions(STREAM)
        b.controller.transactions.is_slow = True
        async with transactions.resume((await transactions.begin()).id) as first:
            first.write(b"0", "k")
        await transactions.commit(first.id, wait=False)
        async with writer.transaction() as second:
            second.write(b"1", "k")
            await second.commit(wait=False)
        assert second.state is S.COMMITTING
        b.controller.transactions.finish()
        assert await b.payloads() == numbered(2)


def test_as_few_pending_commits_are_remembered_as_possible() -> None:
    unmerged = Unmerged()
    for number in range(5):
        unmerged.returned(str(number), S.COMMITTING, unmerged.decided())
    assert unmerged.decided() == {"4"}
    unmerged.returned("unknown", None, unmerged.decided())
    assert unmerged.decided() == {"4"}
    unmerged.returned("5", S.COMMITTED, unmerged.decided())
    assert unmerged.decided() == frozenset()
    for number in range(PENDING_MAX + 5):
        unmerged.returned(f"unknown {number}", None, frozenset())
    assert len(unmerged._pending) == PENDING_MAX
