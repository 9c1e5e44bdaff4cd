"""Commands through the Python client: administration over NATS, events over TCP."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from anabranch.cli.client_admin import ClientAdmin
from anabranch.cli.client_groups import ClientGroups
from anabranch.cli.client_sink import ClientSink
from anabranch.cli.client_transactions import ClientTransactions
from anabranch.cli.events import Events
from anabranch.cli.session_port import (
    HEAD,
    TAIL,
    Compression,
    EventBatch,
    GroupReadRequest,
    ReadRequest,
)
from anabranch.client import Client, WriterSettings
from anabranch.common.errors import InvalidRequest


class ClientSession:
    """A `Session` on an open client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def admin(self) -> ClientAdmin:
        return ClientAdmin(self._client)

    @property
    def groups(self) -> ClientGroups:
        return ClientGroups(self._client)

    @property
    def transactions(self) -> ClientTransactions:
        return ClientTransactions(self._client)

    async def create_scope(self, scope: str) -> None:
        await self._client.scopes.create(scope)

    def list_scopes(self) -> AsyncIterator[str]:
        return self._client.scopes.list()

    async def describe_scope(self, scope: str) -> Mapping[str, object]:
        found = await self._client.scopes.describe(scope)
        return found.model_dump(mode="json", exclude={"ok"})

    async def describe_stream(self, stream: str) -> Mapping[str, object]:
        found = await self._client.streams.describe(stream)
        return found.model_dump(mode="json", exclude={"ok"})

    @asynccontextmanager
    async def writer(
        self,
        stream: str,
        key_field: str | None,  # noqa: ARG002 - a block has a column of keys
        compress: Compression | None = None,
    ) -> AsyncIterator[ClientSink]:
        async with self._client.writer(stream, WriterSettings(compression=compress)) as writer:
            yield ClientSink(writer)

    async def read(self, stream: str, request: ReadRequest) -> AsyncGenerator[EventBatch, None]:
        start = _start(request.start)
        async with self._client.reader(stream, start, until_tail=not request.follow) as reader:
            left = request.count
            while left is None or left > 0:
                batch = await reader.next_batch()
                if batch is None:
                    return
                left = None if left is None else left - len(batch)
                yield batch

    async def read_group(self, request: GroupReadRequest) -> AsyncGenerator[EventBatch, None]:
        reading = self._client.reader_group(request.group).reader(request.reader_id)
        async with reading as reader:
            if request.count is None:
                while (batch := await reader.next_batch()) is not None:
                    yield batch
                return
            for _ in range(request.count):
                event = await anext(reader, None)
                if event is None:
                    return
                yield Events([event])


def _start(start: str) -> Literal["head", "tail"]:
    if start == HEAD:
        return "head"
    if start == TAIL:
        return "tail"
    raise InvalidRequest(
        "a position is a token of the HTTP gateway, which the client cannot read",
        remedy="read with --http, or --from head or tail",
    )
