"""The open key-value tables: one per recently used name, up to a maximum.

An open table knows the life and the configuration that the table had when it was opened. If the
table is gone, the gateway opens it again, because another one may have its name by now. A changed
time to live counts when the table has reached its age.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anabranch.client import Client, Table, TableSettings
from anabranch.common.errors import TableNotFound
from anabranch.gateway.bounds.leases import Leases
from anabranch.gateway.tables.keys import EntryKey, StoredKey

T = TypeVar("T")

MIB = 1024 * 1024
OPENING = TableSettings(retry_timeout_s=20.0, read_ahead_bytes=4 * MIB)
"""Of the tables that requests share; each scan and watch reads ahead so much."""


class OpenTable:
    """An open table. `failed`: it is gone, so later requests open it again."""

    def __init__(self, table: Table[StoredKey, bytes]) -> None:
        self.table = table
        self.failed = False
        self._has_pairs = table.description.config.secondary_key_size != 0

    @property
    def life(self) -> str:
        """The table's name and incarnation."""
        return f"{self.table.table}/{self.table.description.incarnation}"

    def key(self, key: EntryKey) -> StoredKey:
        """The key as the table takes it. Raises InvalidKey."""
        return key.of_table(has_pairs=self._has_pairs)

    async def close(self) -> None:
        """Close the table; pending calls raise."""
        await self.table.close()


async def open_table(client: Client, name: str) -> OpenTable:
    """Open a table. Raises TableNotFound, ScopeNotFound, Unavailable."""
    table: Table[StoredKey, bytes] = client.table(name, OPENING)
    return OpenTable(await table.open())


class OpenTables(Leases[OpenTable]):
    """The open tables, by name."""

    def forget(self, name: str) -> None:
        """Open the table again for later requests, because it changes."""
        self.forget_where(lambda known: known == name)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[OpenTable]:
        """As `lease`; a table that turns out to be gone counts as failed."""
        async with self.lease(name) as table:
            try:
                yield table
            except TableNotFound:
                table.failed = True
                raise

    async def call(self, name: str, work: Callable[[OpenTable], Awaitable[T]]) -> T:
        """Call `work` with the open table; if that one is gone, again with a newly opened one.

        Raises the errors of opening a table, and those of `work`.
        """
        table: OpenTable | None = None
        try:
            async with self.use(name) as table:
                return await work(table)
        except TableNotFound:
            if table is None:
                raise  # it could not be opened
        async with self.use(name) as table:
            return await work(table)
