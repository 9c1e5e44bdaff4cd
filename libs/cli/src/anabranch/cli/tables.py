"""Key-value tables, for commands. Answers are fields; times are Unix milliseconds."""

from collections.abc import AsyncIterator

from anabranch.cli.admin import Fields
from anabranch.client import Client, Operation, TableConfig


class Tables:
    """Key-value tables on an open client. Raises the client's errors."""

    def __init__(self, client: Client) -> None:
        self._tables = client.tables

    async def create(self, table: str, config: TableConfig, *, wait_s: float) -> Operation:
        return await self._tables.create(table, config, wait_s=wait_s)

    async def update(self, table: str, *, ttl_ms: int, wait_s: float) -> Operation:
        return await self._tables.update(table, ttl_ms=ttl_ms, wait_s=wait_s)

    async def seal(self, table: str, *, wait_s: float) -> Operation:
        return await self._tables.seal(table, wait_s=wait_s)

    async def delete(self, table: str, *, wait_s: float) -> Operation:
        return await self._tables.delete(table, wait_s=wait_s)

    def list_names(self, scope: str) -> AsyncIterator[str]:
        return self._tables.list(scope)

    async def describe(self, table: str) -> Fields:
        """The fields of `TableDescription`."""
        found = await self._tables.describe(table)
        return found.model_dump(mode="json", exclude={"ok"})
