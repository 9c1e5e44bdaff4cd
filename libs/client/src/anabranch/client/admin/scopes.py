"""Scopes: create, delete, describe and list them."""

from collections.abc import AsyncIterator
from typing import Unpack

from anabranch.client.admin.operations import Operation, Sending, send
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.contracts.queries import (
    PAGE_SIZE_MAX,
    DescribeScope,
    ListScopes,
    ScopeDescription,
    ScopeList,
)
from anabranch.common.model.names import scope_name


class Scopes:
    """The scopes of a cluster; `client.scopes`.

    ::

        await client.scopes.create("plant")
        names = [name async for name in client.scopes.list()]
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def create(self, scope: str, **how: Unpack[Sending]) -> Operation:
        """Create a scope. Raises InvalidName, ScopeExists.

        ::

            await client.scopes.create("plant")
        """
        name = scope_name(scope)
        return await send(
            self._control, lambda command_id: CreateScope(command_id=command_id, scope=name), **how
        )

    async def delete(
        self, scope: str, *, recursive: bool = False, **how: Unpack[Sending]
    ) -> Operation:
        """Delete the scope; `recursive`: with everything in it, for good.

        Raises ScopeNotFound, ScopeNotEmpty.

        ::

            await client.scopes.delete("plant", recursive=True)
        """
        name = scope_name(scope)
        return await send(
            self._control,
            lambda command_id: DeleteScope(command_id=command_id, scope=name, recursive=recursive),
            **how,
        )

    async def describe(self, scope: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> ScopeDescription:
        """The scope's name and incarnation. Raises ScopeNotFound.

        ::

            print((await client.scopes.describe("plant")).incarnation)
        """
        query = DescribeScope(scope=scope_name(scope))
        return await self._control.query(
            "describe_scope", query, ScopeDescription, timeout_s=timeout_s
        )

    async def list(self) -> AsyncIterator[str]:
        """Scope names in order, fetched page by page.

        ::

            names = [name async for name in client.scopes.list()]
        """
        token = ""
        while True:
            page = await self.page(token)
            for scope in page.scopes:
                yield scope
            if not (token := page.next_page_token):
                return

    async def page(self, page_token: str = "", page_size: int = PAGE_SIZE_MAX) -> ScopeList:
        """One page of scope names, from the start or from an earlier page's token.

        ::

            first = await client.scopes.page(page_size=10)
            second = await client.scopes.page(first.next_page_token, 10)
        """
        query = ListScopes(page_token=page_token, page_size=page_size)
        return await self._control.query("list_scopes", query, ScopeList, timeout_s=QUERY_TIMEOUT_S)
