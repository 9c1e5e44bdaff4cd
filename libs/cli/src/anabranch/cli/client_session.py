"""A command's access to a cluster: administration and events.

`Session` reads and writes events over the client's connections to segment stores. Over an HTTP
gateway, `http.session` replaces that part with the gateway's routes; administration remains the
same, on a client of HTTP alone.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from anabranch.cli.admin import Admin
from anabranch.cli.client_sink import ClientSink
from anabranch.cli.events import (
    HEAD,
    TAIL,
    Compression,
    EventBatch,
    Events,
    GroupReadRequest,
    ReadRequest,
)
from anabranch.cli.groups import Groups
from anabranch.cli.sink_port import EventSink
from anabranch.cli.transactions import Transactions
from anabranch.client import Client, WriterSettings
from anabranch.common.errors import InvalidRequest


class Session:
    """A session on an open client. The methods raise the client's errors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def client(self) -> Client:
        return self._client

    @property
    def admin(self) -> Admin:
        return Admin(self._client)

    @property
    def groups(self) -> Groups:
        return Groups(self._client)

    @property
    def transactions(self) -> Transactions:
        return Transactions(self._client)

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

    def writer(
        self,
        stream: str,
        key_field: str | None,  # noqa: ARG002 - a block has a column of keys
        compress: Compression | None = None,
    ) -> AbstractAsyncContextManager[EventSink]:
        """A sink for events. `key_field` is the field from which the keys came, if any; `compress`
        is the codec of the blocks.
        """
        return self._writer(stream, compress)

    @asynccontextmanager
    async def _writer(self, stream: str, compress: Compression | None) -> AsyncIterator[EventSink]:
        async with self._client.writer(stream, WriterSettings(compression=compress)) as writer:
            yield ClientSink(writer)

    async def read(self, stream: str, request: ReadRequest) -> AsyncGenerator[EventBatch, None]:
        """Batches up to the end or the count, which the last one may exceed.

        None if the count is below 1. The caller closes the generator.
        """
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
        """Batches as a reader of the group, up to the count or the group's end.

        Asking for the next batch marks the last one as processed. The caller closes the generator;
        then the reader leaves the group.
        """
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
