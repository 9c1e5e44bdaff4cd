"""A batch from its tasks' rows to its commit, with fakes: which parts become events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.client import Transactions
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.errors import (
    OutcomeUnknown,
    StreamNotFound,
    TransactionEnded,
    Unavailable,
    VersionPassed,
)
from anabranch.common.model.names import stream_ref
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.nats_target import nats_target
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.committing import abort_batch, commit_batch
from anabranch.spark.writing.outputs import open_output
from anabranch.spark.writing.reports import SinkKey, TaskReport
from anabranch.spark.writing.schema import Written
from kit.client_bench import STREAM, Bench, bench
from kit.fake_controller import FakeController

KEY = SinkKey("query", 7)
OPTIONS = WriteOptions(stream_ref(STREAM), nats_target("nats://127.0.0.1:4222"))


async def task(
    b: Bench, *events: bytes, key: SinkKey = KEY, options: WriteOptions = OPTIONS
) -> TaskReport:
    """Run a task with these rows."""
    output = await open_output(b.client, options, key, Written(False, False))
    await output.take(pa.record_batch({"event": pa.array(events, pa.binary())}))
    report = await output.finish()
    await output.close()
    return report


def transactions(b: Bench) -> Transactions:
    return b.client.transactions(STREAM)


@asynccontextmanager
async def begun(segments: int = 2) -> AsyncIterator[Bench]:
    async with bench(segments) as b:
        yield b


async def test_a_batch_is_read_after_its_commit_and_not_before() -> None:
    async with begun() as b:
        reports = [await task(b, b"one", b"two"), TaskReport(), await task(b, b"three")]
        assert await b.payloads() == []
        await commit_batch(b.client, OPTIONS, reports)
        assert sorted(await b.payloads()) == [b"one", b"three", b"two"]


async def test_the_parts_of_another_attempt_and_of_an_earlier_run_are_not_committed() -> None:
    async with begun() as b:
        await task(b, b"of a driver that died")
        await task(b, b"same", b"row")
        report = await task(b, b"same", b"row")
        await commit_batch(b.client, OPTIONS, [report])
        assert sorted(await b.payloads()) == [b"row", b"same"]


async def test_a_batch_that_was_committed_is_not_written_again() -> None:
    async with begun() as b:
        await commit_batch(b.client, OPTIONS, [await task(b, b"once")])
        again = await task(b, b"once")
        assert again == TaskReport(KEY)
        await commit_batch(b.client, OPTIONS, [again])
        assert await b.payloads() == [b"once"]


async def test_each_version_is_a_batch_of_its_own() -> None:
    async with begun() as b:
        for version in (7, 8, 7):
            key = replace(KEY, version=version)
            report = await task(b, b"v%d" % version, key=key)
            await commit_batch(b.client, OPTIONS, [report])
        assert sorted(await b.payloads()) == [b"v7", b"v8"]


async def test_a_version_that_a_later_one_overtook_uncommitted_is_an_error() -> None:
    async with begun() as b:
        await task(b, b"later", key=replace(KEY, version=8))
        with pytest.raises(VersionPassed):
            await task(b, b"earlier")


async def test_a_query_that_is_behind_its_application_is_refused_and_drops_no_events() -> None:
    query = replace(OPTIONS, is_query=True, application=KEY.application)
    async with begun() as b:
        for version in (7, 8):
            key = replace(KEY, version=version)
            await commit_batch(b.client, query, [await task(b, b"row", key=key, options=query)])
        with pytest.raises(VersionPassed, match="another checkpoint"):
            await task(b, b"lost", key=replace(KEY, version=7), options=query)
        last = await task(b, b"again", key=replace(KEY, version=8), options=query)
        assert last.part is None


async def test_two_drivers_commit_one_batch_once() -> None:
    async with begun() as b:
        first, second = await task(b, b"row"), await task(b, b"row")
        await commit_batch(b.client, OPTIONS, [first])
        await commit_batch(b.client, OPTIONS, [second])
        assert await b.payloads() == [b"row"]


async def test_an_expired_transaction_is_an_error_and_the_next_run_writes_once() -> None:
    async with begun() as b:
        report = await task(b, b"row")
        assert report.part is not None
        b.controller.transactions.abort(report.part.transaction)
        with pytest.raises(TransactionEnded, match="nothing is committed"):
            await commit_batch(b.client, OPTIONS, [report])
        await commit_batch(b.client, OPTIONS, [await task(b, b"row")])
        assert await b.payloads() == [b"row"]


async def test_an_expired_transaction_does_no_harm_if_another_driver_committed_the_batch() -> None:
    async with begun() as b:
        report = await task(b, b"row")
        assert report.part is not None
        b.controller.transactions.abort(report.part.transaction)
        await commit_batch(b.client, OPTIONS, [await task(b, b"row")])
        await commit_batch(b.client, OPTIONS, [report])
        assert await b.payloads() == [b"row"]


async def test_an_expired_transaction_does_no_harm_if_another_driver_is_ahead_by_batches() -> None:
    async with begun() as b:
        report = await task(b, b"row")
        assert report.part is not None
        b.controller.transactions.abort(report.part.transaction)
        for version in (7, 8):
            again = await task(b, b"v%d" % version, key=replace(KEY, version=version))
            await commit_batch(b.client, OPTIONS, [again])
        await commit_batch(b.client, OPTIONS, [report])
        assert sorted(await b.payloads()) == [b"v7", b"v8"]


class Silent(FakeController):
    """Commits, but the replies to the first `lost` commits are lost."""

    lost = 2

    def answer(self, name: str, data: bytes) -> Contract:
        found = super().answer(name, data)
        if name == "commit_transaction" and self.lost > 0:
            self.lost -= 1
            return QueryFailed(error=ErrorBody.of(Unavailable("no reply")))
        return found


async def test_a_commit_whose_replies_are_lost_is_asked_for_again() -> None:
    async with bench(1, kind=Silent) as b:
        await commit_batch(b.client, OPTIONS, [await task(b, b"row")])
        assert await b.payloads() == [b"row"]


async def test_a_commit_without_any_reply_says_what_to_do() -> None:
    async with bench(1, kind=Silent) as b:
        assert isinstance(b.controller, Silent)
        b.controller.lost = 1_000_000
        short = replace(OPTIONS, commit_timeout_s=0.05)
        with pytest.raises(OutcomeUnknown) as caught:
            await commit_batch(b.client, short, [await task(b, b"row")])
        assert "run the batch again" in str(caught.value.remedy)
        drawn = await task(b, b"row", key=replace(KEY, application="a", is_drawn=True))
        with pytest.raises(OutcomeUnknown) as caught:
            await commit_batch(b.client, short, [drawn])
        assert "anabranch transaction show" in str(caught.value.remedy)


async def test_the_application_of_a_plain_batch_write_is_forgotten() -> None:
    async with begun() as b:
        drawn = SinkKey("spark-1", 0, is_drawn=True)
        await commit_batch(b.client, OPTIONS, [await task(b, b"row", key=drawn)])
        assert (await transactions(b).application("spark-1")).committed_version is None
        await commit_batch(b.client, OPTIONS, [await task(b, b"other")])
        assert (await transactions(b).application("query")).committed_version == KEY.version


async def test_an_abort_of_a_batch_write_aborts_its_transaction_alone() -> None:
    async with begun() as b:
        report = await task(b, b"row")
        assert report.part is not None
        await abort_batch(b.client, OPTIONS, replace(KEY, version=6))
        found = await transactions(b).describe(report.part.transaction)
        assert found.state is TransactionState.OPEN
        for _ in range(2):
            await abort_batch(b.client, OPTIONS, KEY)
        found = await transactions(b).describe(report.part.transaction)
        assert found.state is TransactionState.ABORTED


async def test_a_missing_stream_names_the_option_that_creates_it() -> None:
    async with begun() as b:
        with pytest.raises(StreamNotFound) as caught:
            await task(b, b"row", options=replace(OPTIONS, target=stream_ref("plant/none")))
        assert "create_stream=true" in str(caught.value.remedy)
