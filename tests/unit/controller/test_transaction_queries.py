"""Which transactions a stream has."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.common.contracts import transactions as contracts
from anabranch.common.contracts.transactions import TransactionList
from anabranch.controller.handlers.transactions import queries as transaction_queries
from kit.transaction_desk import TransactionWorld, transaction_world


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def page(world: TransactionWorld, **fields: Any) -> tuple[list[str], str]:
    found = await world.ask("list_transactions", TransactionList, **fields)
    return [one.transaction_id for one in found.transactions], found.next_page_token


async def pages(world: TransactionWorld, **fields: Any) -> list[list[str]]:
    found, token = [], ""
    for _ in range(10):
        ids, token = await page(world, page_token=token, **fields)
        found.append(ids)
        if not token:
            return found
    raise AssertionError("the pages never end")


def test_all_queries_about_transactions_are_answered() -> None:
    tables = (
        (contracts.QUERIES, transaction_queries.QUERIES),
        (contracts.ACTIONS, transaction_queries.ACTIONS),
    )
    for asked, answered in tables:
        assert {name: question.query for name, question in asked.items()} == {
            name: query for name, (query, _) in answered.items()
        }


async def test_what_has_not_ended_is_listed_in_the_order_of_the_ids(
    world: TransactionWorld,
) -> None:
    begun = sorted([await world.begin_id(writer="w") for _ in range(5)])
    await world.info("commit_transaction", begun[3])
    await world.info("abort_transaction", begun[1])
    ended = await world.begin_id()
    assert await pages(world, page_size=2) == [
        *[sorted([*begun, ended])[at : at + 2] for at in (0, 2, 4)],
    ]
    listed = await world.ask("list_transactions", TransactionList, state="committing")
    assert [(one.transaction_id, one.writer) for one in listed.transactions] == [(begun[3], "w")]
    await world.work()
    assert await pages(world) == [sorted({*begun, ended} - {begun[1], begun[3]})]
    assert await pages(world, state="aborting") == [[]]


async def test_what_has_ended_is_listed_from_the_newest_back(world: TransactionWorld) -> None:
    committed = []
    for _ in range(5):
        committed.append(await world.begin_id())
        await world.info("commit_transaction", committed[-1])
        await world.work()
    aborted = await world.begin_id()
    await world.info("abort_transaction", aborted)
    await world.work()
    newest = committed[::-1]
    assert await pages(world, state="committed", page_size=2) == [
        newest[:2],
        newest[2:4],
        newest[4:],
    ]
    assert await pages(world, state="aborted") == [[aborted]]


async def test_a_page_goes_on_where_the_last_one_ended_however_many_end_meanwhile(
    world: TransactionWorld,
) -> None:
    committed = []
    for _ in range(3):
        committed.append(await world.begin_id())
        await world.info("commit_transaction", committed[-1])
        await world.work()
    first, token = await page(world, state="committed", page_size=1)
    for _ in range(3):
        await world.info("commit_transaction", await world.begin_id())
        await world.work()
    rest, _ = await page(world, state="committed", page_token=token)
    assert [*first, *rest] == committed[::-1]


async def test_what_the_stream_does_not_know_yet_has_ended_all_the_same(
    world: TransactionWorld,
) -> None:
    noted = await world.begin_id()
    await world.info("abort_transaction", noted)
    await world.work()
    new = [await world.begin_id() for _ in range(2)]
    for transaction in new:
        await world.info("abort_transaction", transaction)
    await world.folded()
    await world.end_aborted()
    listed, token = await page(world, state="aborted", page_size=1)
    assert (len(listed), listed[0] in new) == (1, True)
    await world.work()
    rest, _ = await page(world, state="aborted", page_token=token)
    assert sorted([*listed, *rest]) == sorted([noted, *new])


async def test_a_token_of_another_query_is_refused(world: TransactionWorld) -> None:
    assert await world.refusal("list_transactions", page_token="7") == "invalid-request"
    refused = await world.refusal("list_transactions", state="aborted", page_token="a" * 32)
    assert refused == "invalid-request"
    assert await world.refusal("list_transactions", stream="y") == "stream-not-found"
