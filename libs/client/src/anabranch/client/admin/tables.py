"""Key-value tables as the controller knows them: it creates, seals, deletes and describes them.

A table is named ``scope/table``. Each change is a command, sent as the commands of `streams.py` and
with the same errors. Only the segment stores know the entries of a table.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Unpack

from anabranch.client.admin.operations import Operation, Sending, send
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.queries import PAGE_SIZE_MAX
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
from anabranch.common.model.names import scope_name
from anabranch.common.model.table import TableConfig, table_ref


class Tables:
    """The key-value tables of a cluster; `client.tables`.

    ::

        await client.tables.create("plant/latest", TableConfig(partition_count=8))
        async for name in client.tables.list("plant"):
            print(name)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    # --- changing -------------------------------------------------------------------------

    async def create(
        self, table: str, config: TableConfig | None = None, **how: Unpack[Sending]
    ) -> Operation:
        """Create a table with this configuration, by default with keys of any size in 4 partitions.

        Only the time to live of the entries can change later. Raises ScopeNotFound, TableExists,
        InvalidName.

        ::

            await client.tables.create("plant/latest", TableConfig(primary_key_size=8))
        """
        ref = table_ref(table)
        asked = config or TableConfig()
        return await send(
            self._control,
            lambda command_id: CreateTable(
                command_id=command_id, scope=ref.scope, table=ref.table, config=asked
            ),
            **how,
        )

    async def update(self, table: str, *, ttl_ms: int, **how: Unpack[Sending]) -> Operation:
        """Let entries live for so many milliseconds after their last put; 0: until removed.

        The new time to live counts for later puts. Raises TableNotFound, TableSealed,
        InvalidRequest (the time is out of range).

        ::

            await client.tables.update("plant/latest", ttl_ms=24 * 3600 * 1000)
        """
        ref = table_ref(table)
        present = await self.describe(table)
        config = replace(present.config, ttl_ms=ttl_ms)
        return await send(
            self._control,
            lambda command_id: UpdateTableConfig(
                command_id=command_id,
                scope=ref.scope,
                table=ref.table,
                incarnation=present.incarnation,
                config=config,
            ),
            **how,
        )

    async def seal(self, table: str, **how: Unpack[Sending]) -> Operation:
        """Make the table read-only for ever. Raises TableNotFound.

        ::

            await client.tables.seal("plant/latest")
        """
        ref = table_ref(table)
        return await send(
            self._control,
            lambda command_id: SealTable(command_id=command_id, scope=ref.scope, table=ref.table),
            **how,
        )

    async def delete(self, table: str, **how: Unpack[Sending]) -> Operation:
        """Delete the table with all its entries, whatever its state. Raises TableNotFound.

        ::

            await client.tables.delete("plant/latest")
        """
        ref = table_ref(table)
        return await send(
            self._control,
            lambda command_id: DeleteTable(command_id=command_id, scope=ref.scope, table=ref.table),
            **how,
        )

    # --- asking ---------------------------------------------------------------------------

    async def describe(self, table: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> TableDescription:
        """State, configuration and partitions. Raises TableNotFound, ScopeNotFound.

        ::

            print((await client.tables.describe("plant/latest")).config.ttl_ms)
        """
        ref = table_ref(table)
        query = DescribeKeyValueTable(scope=ref.scope, table=ref.table)
        return await self._control.query(
            "describe_table", query, TableDescription, timeout_s=timeout_s
        )

    async def list(self, scope: str) -> AsyncIterator[str]:
        """The names of the scope's tables in order, fetched page by page. Raises ScopeNotFound.

        ::

            names = [name async for name in client.tables.list("plant")]
        """
        token = ""
        while True:
            page = await self.page(scope, token)
            for name in page.tables:
                yield name
            if not (token := page.next_page_token):
                return

    async def page(
        self, scope: str, page_token: str = "", page_size: int = PAGE_SIZE_MAX
    ) -> TableList:
        """One page of the names, from the start or from an earlier page's token.

        ::

            first = await client.tables.page("plant", page_size=10)
        """
        query = ListTables(scope=scope_name(scope), page_token=page_token, page_size=page_size)
        return await self._control.query("list_tables", query, TableList, timeout_s=QUERY_TIMEOUT_S)
