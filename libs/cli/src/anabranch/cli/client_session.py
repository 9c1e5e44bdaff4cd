"""The needs of a command of a cluster: administration and events, by the client.

The client is the same whether it reaches the cluster by NATS or through an HTTP gateway.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anabranch.cli.admin import Admin
from anabranch.cli.entries.keys import StoredKey
from anabranch.cli.entries.table import Entries
from anabranch.cli.events import (
    HEAD,
    TAIL,
    Compression,
    EventBatch,
    GroupBatch,
    GroupReadRequest,
    ReadRequest,
    Standpoint,
    StreamBatch,
)
from anabranch.cli.groups import Groups
from anabranch.cli.sink import EventSink, WholeSink
from anabranch.cli.tables import Tables
from anabranch.cli.transactions import Transactions
from anabranch.client import Client, EventReader, Table, WriterSettings
from anabranch.client.reading.bounds import Start
from anabranch.client.reading.position_tokens import positions_of
from anabranch.client.reading.times.instants import looks_like_time, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 64 * 1024
"""Events in an Arrow batch, if as many have arrived; the client bounds its size."""


class Session:
    """On an open client. The methods raise the errors of the client's."""

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
    def tables(self) -> Tables:
        return Tables(self._client)

    @property
    def transactions(self) -> Transactions:
        return Transactions(self._client)

    @asynccontextmanager
    async def entries(self, table: str) -> AsyncIterator[Entries]:
        """The entries of a key-value table."""
        opened: Table[StoredKey, bytes] = self._client.table(table)
        async with opened:
            yield Entries(opened)

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
        self, stream: str, compress: Compression | None = None
    ) -> AsyncIterator[EventSink]:
        """`compress`: the codec of the blocks that the events become."""
        async with self._client.writer(stream, WriterSettings(compression=compress)) as writer:
            yield EventSink(writer)

    @asynccontextmanager
    async def transaction(
        self, stream: str, compress: Compression | None = None
    ) -> AsyncIterator[EventSink]:
        """A sink whose events are one transaction: leaving it commits, or aborts on an error."""
        settings = WriterSettings(compression=compress)
        transactions = self._client.transactions(stream)
        async with transactions.begin(writer_settings=settings) as transaction:
            yield WholeSink(transaction)

    async def read(self, stream: str, request: ReadRequest) -> AsyncGenerator[EventBatch, None]:
        """Batches up to the end or the count; none if the count is below 1. To be closed by the
        caller. Raises InvalidRequest for a start or an end that belongs to another stream."""
        async with await self._reader(stream, request) as reader:
            incarnation = await self._incarnation(stream) if request.positions else 0
            left = request.count
            while left is None or left > 0:
                batch = await reader.next_batch()
                if batch is None:
                    return
                if left is not None:
                    batch = batch.before(batch.start.event_index + left)
                    left -= len(batch)
                behind = None
                if request.positions:
                    behind = Standpoint(stream, incarnation, reader.positions())
                yield StreamBatch(batch, behind)

    async def read_arrow(
        self, stream: str, request: ReadRequest
    ) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The same events as Arrow batches, as the client has them. Raises as `read`,
        CodecMissing."""
        async with await self._reader(stream, request) as reader:
            left = request.count
            while left is None or left > 0:
                batch = await reader.next_arrow(ARROW_ROWS if left is None else left)
                if batch is None:
                    return
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
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
                    yield StreamBatch(batch)
                return
            for _ in range(request.count):
                event = await anext(reader, None)
                if event is None:
                    return
                yield GroupBatch([event])

    async def _reader(self, stream: str, request: ReadRequest) -> EventReader:
        start = await self._cut(stream, request.start)
        if request.until == TAIL:
            return self._client.reader(stream, start, until_tail=not request.follow)
        return self._client.reader(stream, start, end=await self._cut(stream, request.until))

    async def _cut(self, stream: str, place: str) -> Start:
        """Where to begin or to end. Raises InvalidRequest for a position of another stream, and for
        an invalid time."""
        if place == HEAD:
            return "head"
        if place == TAIL:
            return "tail"
        if looks_like_time(place):
            return parse_time(place)
        return positions_of(stream, await self._incarnation(stream), place)

    async def _incarnation(self, stream: str) -> int:
        return (await self._client.streams.describe(stream)).incarnation
