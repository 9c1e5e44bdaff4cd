"""Transactions, cancelled at each suspension: all of their events or none, and nothing is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.client import PartReport, Transaction, TransactionSettings
from anabranch.client.wire.control import A
from anabranch.common.contracts.queries import Query
from anabranch.common.model.transaction import TransactionState as S
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, writer_settings

SETTINGS = writer_settings(block_size_bytes=60, buffer_size_bytes=600)
QUIET = TransactionSettings(auto_ping=False, short=False)
ALL = [b"%d" % number for number in range(20)]


@asynccontextmanager
async def slow_bench() -> AsyncIterator[Bench]:
    """A controller that lets the loop turn before it works and before it answers."""
    async with bench(segment_count=2) as b:
        ask = b.control.query

        async def query(name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
            await asyncio.sleep(0)
            answered = await ask(name, query, answer, timeout_s=timeout_s)
            await asyncio.sleep(0)
            return answered

        b.control.query = query  # type: ignore[method-assign]
        yield b


async def test_a_block_that_is_cancelled_anywhere_is_seen_as_a_whole_or_not_at_all() -> None:
    """Open is only what was cancelled while it began: nobody knew of it yet, so its lease ends it.
    What was asked to be committed is not aborted."""

    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b, b.client.writer(STREAM, SETTINGS) as writer:
            begun: list[Transaction] = []

            async def program() -> None:
                async with writer.transaction(QUIET) as txn:
                    begun.append(txn)
                    txn.write_batch(ALL, keys=[str(n) for n in range(20)])
                    await txn.drain()
                    await txn.flush()

            before = asyncio.all_tasks()
            await cancelling.run(program())
            assert len(asyncio.all_tasks() - before) == 0
            stored = await b.payloads()
            states = {each.state for each in b.controller.transactions.known.values()}
            if stored:
                assert sorted(stored, key=int) == ALL
                assert states == {S.COMMITTED}
            elif begun and begun[0].state is not None:
                assert states == {S.ABORTED}
            else:
                assert states <= {S.OPEN}
            if not cancelling.done:
                assert stored

    assert await everywhere(scenario) >= 8


async def test_a_commit_that_is_cancelled_anywhere_can_be_asked_for_again() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b, b.client.writer(STREAM, SETTINGS) as writer:
            txn = await writer.transaction(QUIET)
            txn.write_batch(ALL, keys=["k"] * 20)
            b.controller.transactions.is_slow = True
            b.control.before_query = lambda name: finish_if_described(b, name)
            info = await cancelling.run(txn.commit())
            if info is None:
                decided = b.controller.transactions.known[txn.id].state
                assert txn.state is not S.OPEN or decided is S.OPEN
                info = await txn.commit()
            assert info.state is S.COMMITTED
            assert await b.payloads() == ALL
            await txn.close()

    assert await everywhere(scenario) >= 4


def finish_if_described(b: Bench, name: str) -> None:
    if name == "describe_transaction":
        b.controller.transactions.finish()


async def test_writing_goes_on_after_a_flush_that_was_cancelled() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b, b.client.writer(STREAM, SETTINGS) as writer:
            txn = await cancelling.run(writer.transaction(QUIET).__aenter__())
            if txn is None:
                txn = await writer.transaction(QUIET)
            txn.write_batch(ALL[:10])
            await cancelling.run(txn.flush())
            txn.write_batch(ALL[10:15])
            await cancelling.run(txn.drain())
            txn.write_batch(ALL[15:])
            await txn.commit()
            assert sorted(await b.payloads(), key=int) == ALL
            await txn.close()

    assert await everywhere(scenario) >= 4


async def test_parts_that_are_cancelled_anywhere_are_not_counted() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with slow_bench() as b:
            transactions = b.client.transactions(STREAM)
            txn = await transactions.begin(QUIET, parts=True)

            async def task() -> str:
                async with txn.part() as part:
                    part.write_batch(ALL, keys=[str(n) for n in range(20)])
                return (await part.report()).model_dump_json()

            report = await cancelling.run(task())
            if report is None:
                report = await task()
            await txn.commit(parts=[PartReport.model_validate_json(report)])
            assert sorted(await b.payloads(), key=int) == ALL
            await txn.close()

    assert await everywhere(scenario) >= 4
