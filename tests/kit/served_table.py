"""A table segment on a store, for tests of any store that serves one: the real one and the fake.

A provider is an async context manager that yields a fresh, empty `ServedTable`. Another kind of
store joins the conformance suite with a row in `PROVIDERS`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol, TypeVar

from anabranch.common.adapters.store_connection import (
    ConnectionSettings,
    SegmentStoreConnection,
    open_connection,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import (
    CreateSegment,
    DescribeTable,
    Done,
    GetEntries,
    Message,
    ReadSegment,
    Request,
    ScanEntries,
    Sealed,
    SealSegment,
    SegmentRead,
    Stamp,
    TableDescribed,
    TableRead,
    TableUpdated,
    UpdateTable,
)
from anabranch.common.wire.table import TableBlock, encode_update, parse_table_block
from anabranch.common.wire.table_columns import (
    Refusal,
    Row,
    decode_refusals,
    decode_rows,
    encode_keys,
    encode_numbers,
)
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore
from kit.fake_table_segments import FakeTable
from kit.live_store import LiveStore, World, live_store

M = TypeVar("M", bound=Message)

CLIENT = bytes(range(16))
SEGMENT = "shop/_TABLEstock/0.#epoch.0"
STREAM_SEGMENT = "shop/visits/0.#epoch.0"
START_MS = 1_700_000_000_000


class Store(Protocol):
    """The store of the segments `SEGMENT` and `STREAM_SEGMENT`, seen from outside."""

    async def connect(self) -> SegmentStoreConnection: ...

    async def seal(self, segment: str) -> None: ...

    async def restart(self) -> None:
        """End the store as a crash would, and start it again."""
        ...

    def pass_time(self, milliseconds: int) -> None:
        """Move the store's clock."""
        ...


class ServedTable:
    """The calls of one client on a connection to the store."""

    def __init__(self, store: Store, connection: SegmentStoreConnection) -> None:
        self.store = store
        self._connection = connection
        self._number = 0

    async def ask(
        self, request: Request, expected: type[M], payload: bytes = b""
    ) -> tuple[M, bytes]:
        """The reply and its payload. Raises the error that the store answers."""
        return await self._connection.request(request, expected, payload=payload)

    async def restart(self) -> None:
        """Restart the store, and connect again."""
        await self.close()
        await self.store.restart()
        self._connection = await self.store.connect()

    async def close(self) -> None:
        self._connection.close()
        await self._connection.ended

    # --- updates --------------------------------------------------------------------------

    async def update(
        self,
        entries: Sequence[tuple[bytes, bytes | None]],
        conditions: Sequence[int] = (),
        units: Sequence[int] = (),
        *,
        number: int | None = None,
        life: int = 0,
        client: bytes = CLIENT,
        ttl_ms: int = 0,
        segment: str = SEGMENT,
    ) -> tuple[TableUpdated, list[Refusal]]:
        """Send an update under the next number, or a given one → the answer, and its refusals."""
        if number is None:
            self._number += 1
            number = self._number
        request = UpdateTable(
            segment=segment, client_id=client, request_number=number,
            conditions=encode_numbers(conditions, "q"), units=encode_numbers(units, "I"),
            segment_number=life,
        )  # fmt: skip
        payload = encode_update(
            [key for key, _ in entries], [value for _, value in entries],
            client_id=client, request_number=number, ttl_ms=ttl_ms,
        )  # fmt: skip
        reply, _ = await self.ask(request, TableUpdated, payload)
        return reply, list(decode_refusals(reply.refused))

    async def put(self, key: bytes, value: bytes, *, ttl_ms: int = 0) -> int:
        """Put an entry → its version."""
        return (await self.update([(key, value)], ttl_ms=ttl_ms))[0].version

    # --- reads ----------------------------------------------------------------------------

    async def get(self, *keys: bytes) -> list[Row]:
        return decode_rows((await self.ask(GetEntries(segment=SEGMENT), TableRead,
                                           encode_keys(keys)))[1])  # fmt: skip

    async def scan(self, **bounds: object) -> tuple[list[Row], TableRead]:
        """A page of rows, and what was said about it."""
        request = ScanEntries(segment=SEGMENT, **bounds)  # type: ignore[arg-type]
        reply, data = await self.ask(request, TableRead)
        return decode_rows(data), reply

    async def everything(self) -> dict[bytes, tuple[int, bytes]]:
        """Key → (version, value), in the order of a scan of everything."""
        rows, reply = await self.scan(count_max=1_000_000, size_max=1 << 30)
        assert not reply.more
        return {row.key: (row.version, row.value) for row in rows}

    async def describe(self) -> TableDescribed:
        return (await self.ask(DescribeTable(segment=SEGMENT), TableDescribed))[0]

    async def blocks(self) -> list[TableBlock]:
        """All blocks of the segment, as it is read."""
        described = await self.describe()
        found: list[TableBlock] = []
        offset = described.start
        while offset < described.length:
            request = ReadSegment(segment=SEGMENT, offset=offset, size_max=1 << 20)
            _, data = await self.ask(request, SegmentRead)
            at = 0
            while at < len(data):
                found.append(parse_table_block(data, offset + at, at))
                at += parse_header(data, at).size
            offset += at
        return found


class FakeStore:
    """`Store`, as a fake in the same process. Its clock stands still by itself."""

    def __init__(self, fake: FakeSegmentStore) -> None:
        self._fake = fake

    async def connect(self) -> SegmentStoreConnection:
        endpoint = Endpoint("127.0.0.1", self._fake.port)
        return await open_connection(endpoint, ConnectionSettings(request_timeout_s=5.0))

    async def seal(self, segment: str) -> None:
        self._fake.seal(segment)

    async def restart(self) -> None:
        await self._fake.restart()

    def pass_time(self, milliseconds: int) -> None:
        for segment in self._fake.segments.values():
            segment.now_ms += milliseconds


@asynccontextmanager
async def fake_table() -> AsyncIterator[ServedTable]:
    """The provider of the fake."""
    async with FakeSegmentStore() as fake:
        fake.segments[SEGMENT] = FakeTable(number=17, now_ms=START_MS)
        fake.segments[STREAM_SEGMENT] = FakeSegment(now_ms=START_MS)
        store = FakeStore(fake)
        served = ServedTable(store, await store.connect())
        try:
            yield served
        finally:
            await served.close()


class SetClock(SystemClock):
    """Its wall clock moves only when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_ms = START_MS

    def now_ms(self) -> int:
        return self.wall_ms


class RealStore:
    """`Store`: a segment store in the same process, behind a real door."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = SetClock()
        self._serving = AsyncExitStack()
        self._live: LiveStore | None = None

    async def start(self) -> None:
        served = live_store(self._world, clock=self._clock)
        self._live = await self._serving.enter_async_context(served)

    async def stop(self) -> None:
        await self._serving.aclose()

    async def control(self, request: Request) -> None:
        """Perform a request on a segment. Raises the error that the store answers."""
        connection = await self.connect()
        await connection.request(request, REPLIES[type(request)])
        connection.close()
        await connection.ended

    async def connect(self) -> SegmentStoreConnection:
        assert self._live is not None
        settings = ConnectionSettings(request_timeout_s=5.0)
        return await open_connection(self._live.endpoint, settings)

    async def seal(self, segment: str) -> None:
        await self.control(SealSegment(segment=segment, stamp=Stamp(1, 2)))

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def pass_time(self, milliseconds: int) -> None:
        self._clock.wall_ms += milliseconds


@asynccontextmanager
async def real_table() -> AsyncIterator[ServedTable]:
    """The provider of the real store, whose index of tables is in memory."""
    world = World()
    await world.assign(0)
    store = RealStore(world)
    await store.start()
    try:
        for segment in (SEGMENT, STREAM_SEGMENT):
            await store.control(CreateSegment(segment=segment, stamp=Stamp(1, 1)))
        served = ServedTable(store, await store.connect())
        try:
            yield served
        finally:
            await served.close()
    finally:
        await store.stop()


Provider = Callable[[], AbstractAsyncContextManager[ServedTable]]
PROVIDERS: Mapping[str, Provider] = {"fake": fake_table, "store": real_table}
REPLIES: Mapping[type[Request], type[Message]] = {CreateSegment: Done, SealSegment: Sealed}
