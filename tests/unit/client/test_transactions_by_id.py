"""`client.transactions(stream)`: beginning, going on elsewhere, looking, keyed versions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import (
    PartReport,
    TransactionKey,
    Transactions,
    TransactionSettings,
)
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    InvalidRequest,
    PartMismatch,
    TransactionEnded,
    TransactionNotFound,
    Unavailable,
    VersionPassed,
)
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.model.transaction import transaction_id
from anabranch.common.wire.messages import Append, Appended, GetSegmentInfo, Message
from kit.client_bench import STREAM, Bench, bench
from kit.fake_segstore import Direction, Fault

SOME_ID = transaction_id(1, b"0123456789")


@asynccontextmanager
async def opened(segment_count: int = 1) -> AsyncIterator[tuple[Bench, Transactions]]:
    async with bench(segment_count) as b:
        yield b, b.client.transactions(STREAM)


# --- several processes --------------------------------------------------------------------


async def test_several_write_to_one_transaction_and_any_of_them_commits() -> None:
    async with opened(segment_count=2) as (b, transactions):
        txn = await transactions.begin()
        txn.write(b"first", "k")
        await txn.flush()
        async with transactions.resume(txn.id) as other:
            assert other.writer_id != txn.writer_id
            other.write(b"second", "k")
        assert await b.payloads() == []
        third = await transactions.resume(txn.id)
        third.write(b"third", "k")
        assert (await third.commit()).state is S.COMMITTED
        assert await b.payloads() == [b"first", b"second", b"third"]
        with pytest.raises(TransactionEnded):
            await txn.abort()


async def test_what_was_not_flushed_when_another_one_committed_is_not_lost_in_silence() -> None:
    async with opened() as (b, transactions):
        b.store.fault = no_appends
        txn = await transactions.begin()
        txn.write(b"too late")
        await transactions.commit(txn.id)
        await txn.describe()
        assert txn.is_done
        with pytest.raises(TransactionEnded):
            await txn.commit()
        with pytest.raises(TransactionEnded):
            await txn.__aexit__(None, None, None)


def no_appends(at: Direction, message: Message) -> AnabranchError | None:
    return Unavailable("full") if isinstance(message, Append) else None


async def test_who_resumed_one_and_fails_leaves_it_open() -> None:
    async with opened() as (_, transactions):
        txn = await transactions.begin()

        async def fail() -> None:
            async with transactions.resume(txn.id) as other:
                other.write(b"lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert (await txn.describe()).state is S.OPEN
        await txn.abort()


async def test_they_are_listed_described_pinged_and_ended_by_id() -> None:
    async with opened() as (_, transactions):
        ids = sorted([(await transactions.begin()).id for _ in range(5)])
        assert [info.transaction_id async for info in transactions.list()] == ids
        assert len((await transactions.page()).transactions) == 2
        assert (await transactions.describe(ids[0])).state is S.OPEN
        assert (await transactions.commit(ids[0])).state is S.COMMITTED
        assert (await transactions.commit(ids[0], wait=False)).state is S.COMMITTED
        assert (await transactions.abort(ids[1])).state is S.ABORTED
        with pytest.raises(TransactionEnded):
            await transactions.commit(ids[1])
        found = [info.transaction_id async for info in transactions.list(S.COMMITTED)]
        assert found == ids[:1]
        pinged = await transactions.ping([*ids[1:3], SOME_ID], 4_000)
        assert [each.state for each in pinged] == [S.ABORTED, S.OPEN, None]
        assert pinged[1].lease_left_ms == 4_000
        for question in (transactions.describe, transactions.abort, transactions.resume):
            with pytest.raises(TransactionNotFound):
                await question(SOME_ID)
        with pytest.raises(InvalidRequest):
            await transactions.describe("no id")


async def test_one_is_kept_alive_by_its_id_and_committed_with_a_writers_time() -> None:
    async with opened() as (b, transactions):
        noted, drawn = [await transactions.begin() for _ in range(2)]
        assert (await transactions.keep_alive(noted.id, 5_000)).lease_left_ms == 5_000
        await transactions.commit(noted.id, timestamp_ms=7, writer_id="ab" * 16)
        await transactions.commit(drawn.id, timestamp_ms=8)
        with pytest.raises(TransactionEnded):
            await transactions.keep_alive(noted.id)
        with pytest.raises(TransactionNotFound):
            await transactions.keep_alive(SOME_ID)
        for wrong in ({"timestamp_ms": -1}, {"timestamp_ms": 1, "writer_id": "me"}):
            with pytest.raises(InvalidRequest):
                await transactions.commit(noted.id, **wrong)
        known = b.controller.transactions.known
        assert known[noted.id].mark == ("ab" * 16, 7)
        drawn_mark = known[drawn.id].mark
        assert drawn_mark is not None
        assert (len(drawn_mark[0]), drawn_mark[1]) == (32, 8)


async def test_who_does_not_know_that_it_ended_is_told_by_what_it_asks() -> None:
    async with opened() as (_, transactions):
        quiet = TransactionSettings(auto_ping=False)
        txn = await transactions.begin(quiet)
        await transactions.abort(txn.id)
        with pytest.raises(TransactionEnded):
            await txn.ping()
        assert txn.state is S.ABORTED
        other = await transactions.begin(quiet)
        await transactions.commit(other.id)
        assert (await other.describe()).state is S.COMMITTED
        with pytest.raises(TransactionEnded):
            other.write(b"late")


# --- keyed --------------------------------------------------------------------------------


async def test_a_version_is_committed_once() -> None:
    async with opened() as (b, transactions):
        async with transactions.begin(key=("sums", 0)) as txn:
            txn.write(b"0")
        assert txn.key == TransactionKey(application="sums", version=0)
        async with transactions.begin(key=("sums", 0)) as again:
            assert again.is_done
            with pytest.raises(TransactionEnded):
                again.write(b"0")
            with pytest.raises(TransactionEnded):
                again.write_batch([b"0"], ["k"])
            assert (await again.commit()).transaction_id == txn.id
        assert await b.payloads() == [b"0"]
        found = await transactions.application("sums")
        assert (found.committed_version, found.committed_transaction) == (0, txn.id)


async def test_what_an_earlier_attempt_left_open_is_aborted_and_its_writer_told() -> None:
    async with opened() as (b, transactions):
        zombie = await transactions.begin(key=("sums", 0))
        zombie.write(b"half")
        await zombie.flush()
        async with transactions.begin(key=("sums", 0)) as txn:
            assert txn.id != zombie.id
            txn.write(b"all")
            zombie.write(b"of it")
            with pytest.raises(TransactionEnded):
                await zombie.commit()
        assert await b.payloads() == [b"all"]


async def test_an_earlier_attempt_that_cannot_be_cleared_away_in_time_is_busy() -> None:
    settings = TransactionSettings(begin_timeout_s=0.02, abort_timeout_s=0.02)
    async with opened() as (b, transactions):
        await transactions.begin(key=("sums", 0))
        b.controller.transactions.is_slow = True
        with pytest.raises(Busy):
            await transactions.begin(settings, key=("sums", 0))
        b.controller.transactions.finish()
        assert not (await transactions.begin(settings, key=("sums", 0))).is_done


async def test_a_version_that_was_passed_is_refused() -> None:
    async with opened() as (_, transactions):
        async with transactions.begin(key=("sums", 5)):
            pass
        with pytest.raises(VersionPassed):
            await transactions.begin(key=("sums", 4))
        await transactions.forget_application("sums")
        assert (await transactions.application("sums")).committed_version is None
        txn = await transactions.begin(key=("sums", 1))
        await transactions.begin(key=("sums", 2))
        with pytest.raises(VersionPassed):
            await txn.commit()
        assert txn.state is S.OPEN


async def test_keys_that_cannot_be_are_refused_before_anything_is_asked() -> None:
    async with opened() as (_, transactions):
        for key in (("", 0), ("a b", 0), ("sums", -1)):
            with pytest.raises(InvalidRequest):
                transactions.begin(key=key)
        with pytest.raises(InvalidRequest):
            await transactions.application("a b")


# --- parts --------------------------------------------------------------------------------


async def test_parts_are_written_elsewhere_and_committed_by_their_reports() -> None:
    async with opened(segment_count=3) as (b, transactions):
        txn = await transactions.begin(parts=True)
        reports = []
        for task in range(3):
            task_txn = await transactions.resume(txn.id)
            async with task_txn.part() as part:
                part.write_batch([b"%d" % task] * 10, [f"{task} {n}" for n in range(10)])
            reports.append((await part.report()).model_dump_json())
        assert await b.payloads() == []
        counted = [PartReport.model_validate_json(report) for report in reports]
        assert [report.event_count for report in counted] == [10, 10, 10]
        assert (await txn.commit(parts=[counted[2], counted[0]])).state is S.COMMITTED
        assert sorted(await b.payloads()) == [b"0"] * 10 + [b"2"] * 10
        order = [part.part for part in b.controller.transactions.known[txn.id].committed]
        assert order == [counted[2].part, counted[0].part]


async def test_a_report_names_segments_with_events_by_their_lengths() -> None:
    async with opened(segment_count=4) as (b, transactions):
        txn = await transactions.begin(parts=True)
        async with txn.part() as part:
            part.write(b"x", "k")
            report = await part.report()
            (named,) = report.lengths
            segments = b.store.segments.items()
            stored = [len(each.data) for name, each in segments if part.part_id in name]
            assert [named.length] == [length for length in stored if length]
        assert await part.report() == report
        async with txn.part() as empty:
            pass
        assert (await empty.report()).lengths == ()
        await txn.commit(parts=[report, await empty.report()])
        assert await b.payloads() == [b"x"]


async def test_a_length_that_was_not_told_is_asked_for() -> None:
    async with opened() as (b, transactions):
        txn = await transactions.begin(parts=True)

        def lose_first(at: Direction, message: Message) -> Fault | None:
            first = isinstance(message, Appended) and b.store.connection_count == 1
            return Fault.DROP if first else None

        b.store.fault = lose_first
        async with txn.part() as part:
            part.write(b"x")
        report = await part.report()
        assert any(isinstance(request, GetSegmentInfo) for request in b.store.requests)
        await txn.commit(parts=[report])
        assert await b.payloads() == [b"x"]


async def test_a_part_that_is_not_as_was_said_leaves_the_transaction_open() -> None:
    async with opened() as (b, transactions):
        txn = await transactions.begin(parts=True)
        async with txn.part() as part:
            part.write(b"x")
            report = await part.report()
            part.write(b"y")
        with pytest.raises(PartMismatch):
            await txn.commit(parts=[report])
        assert txn.state is S.OPEN
        await txn.commit(parts=[await part.report()])
        assert await b.payloads() == [b"x", b"y"]


async def test_a_part_of_what_ended_says_so() -> None:
    async with opened() as (_, transactions):
        txn = await transactions.begin(parts=True)
        part = await txn.part().__aenter__()
        part.write(b"x")
        await part.flush()
        await txn.abort()
        with pytest.raises(TransactionEnded):
            part.write(b"y")
        for late in (part.report(), part.flush(), txn.part().__aenter__()):
            with pytest.raises(TransactionEnded):
                await late
        await part.close()


async def test_what_has_parts_is_not_written_itself_and_the_other_way_round() -> None:
    async with opened() as (_, transactions):
        txn = await transactions.begin(parts=True)
        with pytest.raises(InvalidRequest, match="has parts"):
            txn.write(b"x")
        with pytest.raises(InvalidRequest, match="has parts"):
            txn.write_batch([b"x"])
        with pytest.raises(InvalidRequest):
            await txn.commit()
        part = txn.part()
        with pytest.raises(InvalidRequest):
            await part.report()
        plain = await transactions.begin()
        with pytest.raises(InvalidRequest):
            plain.part()
        with pytest.raises(InvalidRequest):
            await plain.commit(parts=[])
        assert (await plain.commit()).state is S.COMMITTED


async def test_leaving_a_block_without_saying_which_parts_count_is_an_error() -> None:
    async with opened() as (_, transactions):
        txn = await transactions.begin(parts=True)
        await txn.__aenter__()
        with pytest.raises(InvalidRequest, match="without a commit"):
            await txn.__aexit__(None, None, None)
        assert txn.state is S.ABORTED


async def test_a_version_with_parts_goes_on_where_it_was_left() -> None:
    async with opened() as (b, transactions):
        left = await transactions.begin(key=("job", 1), parts=True)
        async with left.part() as half:
            half.write(b"half")
        txn = await transactions.begin(key=("job", 1), parts=True)
        assert txn.id == left.id
        async with txn.part() as part:
            part.write(b"all")
        await txn.commit(parts=[await part.report()])
        assert await b.payloads() == [b"all"]
