"""Key-value tables on a whole controller: real NATS server, a store of segments in memory."""

import asyncio

import pytest

from anabranch.common.contracts.commands import CreateScope, CreateStream, DeleteScope
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    DescribeKeyValueTable,
    ListTables,
    SealTable,
    TableDescription,
    TableList,
    UpdateTableConfig,
)
from anabranch.common.errors import (
    ScopeNotEmpty,
    ScopeNotFound,
    TableExists,
    TableNotFound,
    TableSealed,
)
from anabranch.common.model.table import TableConfig, TableState
from kit.controller_caller import DEADLINE_S, Caller, StartController
from kit.fake_stores import FakeSegmentStores

CONFIG = TableConfig(partition_count=2, primary_key_size=8)


async def create(caller: Caller, table: str, config: TableConfig = CONFIG) -> None:
    await caller.perform(
        CreateTable(command_id=caller.new_id(), scope="s", table=table, config=config)
    )


async def describe(caller: Caller, table: str = "t") -> TableDescription:
    query = DescribeKeyValueTable(scope="s", table=table)
    return await caller.ask("describe_table", query, TableDescription)


async def until_state(caller: Caller, state: TableState) -> None:
    """Wait until the table has a state: a command is accepted before its first step is done."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if (await describe(caller)).state is state:
                return
            await asyncio.sleep(0.01)


async def listed(caller: Caller) -> tuple[str, ...]:
    return (await caller.ask("list_tables", ListTables(scope="s"), TableList)).tables


async def test_a_table_lives_from_creation_to_deletion_and_again(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="scope", scope="s"))
        await create(caller, "t")
        found = await describe(caller)
        assert (found.state, found.incarnation, found.config) == (TableState.ACTIVE, 1, CONFIG)
        assert stores.live() == ["s/_TABLEt/0.#epoch.0", "s/_TABLEt/1.#epoch.0"]
        assert [each.segment for each in found.partitions] == stores.live()
        assert await listed(caller) == ("t",)
        with pytest.raises(TableExists):
            await create(caller, "t")

        longer = TableConfig(partition_count=2, primary_key_size=8, ttl_ms=60_000)
        update = UpdateTableConfig(command_id="u", scope="s", table="t", config=longer)
        await caller.perform(update)
        assert (await describe(caller)).config == longer
        await caller.perform(SealTable(command_id="seal", scope="s", table="t"))
        assert (await describe(caller)).state is TableState.SEALED
        assert all(segment.sealed for segment in stores.segments.values())
        with pytest.raises(TableSealed):
            await caller.perform(update.model_copy(update={"command_id": "late"}))

        await caller.perform(DeleteTable(command_id="delete", scope="s", table="t"))
        assert (stores.live(), await listed(caller)) == ([], ())
        with pytest.raises(TableNotFound):
            await describe(caller)

        await create(caller, "t", TableConfig(partition_count=1))
        assert (await describe(caller)).incarnation == 2
        assert stores.live() == ["s/_TABLEt/2.#epoch.0"]


async def test_another_controller_knows_the_table_and_ends_what_was_begun(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="scope", scope="s"))
        await create(caller, "t")
        stores.down = True
        answer = await caller.send(DeleteTable(command_id="delete", scope="s", table="t"))
        assert answer.kind == "accepted"
        await until_state(caller, TableState.DELETING)
    stores.down = False

    async with controller():
        command = DeleteTable(command_id="delete", scope="s", table="t")
        again = await caller.send(command)
        assert again.kind == "accepted"
        await caller.outcome(command, again)

    assert stores.live() == []


async def test_a_scope_with_a_table_is_not_empty_and_goes_with_it(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="scope", scope="s"))
        await caller.perform(CreateStream(command_id="stream", scope="s", stream="t"))
        await create(caller, "t")
        await create(caller, "u")
        with pytest.raises(ScopeNotEmpty):
            await caller.perform(DeleteScope(command_id="plain", scope="s"))

        await caller.perform(DeleteScope(command_id="all", scope="s", recursive=True))

        assert stores.live() == []
        with pytest.raises(ScopeNotFound):
            await describe(caller)
        with pytest.raises(ScopeNotFound):
            await create(caller, "t")
