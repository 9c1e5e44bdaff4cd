"""Segments made and filled by hand, without streams: many of them, over one connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.client.settings import ConnectionSettings
from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.adapters.store_connection import SegmentStoreConnection, open_connection
from anabranch.common.contracts.queries import Locate, Located
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendSetup,
    CreateSegment,
    Done,
    GetSegmentInfo,
    Message,
    SegmentInfo,
    SetupAppend,
    Stamp,
)

WRITER = bytes(range(16))
REQUESTS_IN_FLIGHT = 256
APPENDS_IN_FLIGHT = 128
"""What one writer of the client library has in flight, in blocks of 16 KiB."""
APPEND_SECONDS_MAX = 120.0


class SegmentsLoad:
    """`count` segments under one name; `connected` makes it."""

    def __init__(self, connection: SegmentStoreConnection, stream: str, count: int) -> None:
        self._connection = connection
        self._names = [f"{stream}/{number}.#epoch.0" for number in range(count)]
        self._sessions: list[int] = []
        self._acknowledged: dict[int, int] = {}
        self._in_flight = 0
        """Events, not appends: an acknowledgement may be of several."""
        self._room = asyncio.Event()
        self._failure: AnabranchError | None = None

    async def create(self) -> None:
        async def create(name: str) -> None:
            request = CreateSegment(segment=name, stamp=Stamp(1, 1))
            await self._connection.request(request, Done)

        await _for_all(self._names, create)

    async def set_up(self) -> None:
        """Open a session of one writer on each segment."""
        sessions = {name: self._connection.open_session(self) for name in self._names}

        async def set_up(name: str) -> None:
            request = SetupAppend(segment=name, writer_id=WRITER, session=sessions[name])
            await self._connection.request(request, AppendSetup)

        await _for_all(self._names, set_up)
        self._sessions = [sessions[name] for name in self._names]

    async def append(self, events: Sequence[bytes], blocks: int) -> None:
        """Append so many blocks of these events, to the segments in turn, until all are durable.

        Raises what the store answered.
        """
        async with asyncio.timeout(APPEND_SECONDS_MAX):
            for number in range(blocks):
                while self._in_flight >= APPENDS_IN_FLIGHT * len(events):
                    await self._wait()
                turn, session = divmod(number, len(self._sessions))
                first = turn * len(events) + 1
                block = encode_block(
                    events, writer_id=WRITER, first_event_number=first, base_timestamp_ms=0
                )
                request = Append(
                    session=self._sessions[session], first_event_number=first, count=len(events)
                )
                self._in_flight += len(events)
                self._connection.send_append(request, block)
            while self._in_flight:
                await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._room.clear()
        await self._room.wait()

    async def holds(self, events: int) -> bool:
        """Whether the segments together hold so many events."""
        counts: list[int] = []

        async def ask(name: str) -> None:
            info, _ = await self._connection.request(GetSegmentInfo(segment=name), SegmentInfo)
            counts.append(info.event_count)

        await _for_all(self._names, ask)
        return sum(counts) == events

    # --- SessionListener ----------------------------------------------------------------------

    def session_replied(self, reply: Message) -> None:
        if isinstance(reply, Appended):
            before = self._acknowledged.get(reply.session, 0)
            self._acknowledged[reply.session] = reply.last_event_number
            self._in_flight -= reply.last_event_number - before
        else:
            self._failure = Unavailable("an append was refused", reply=str(reply)[:200])
        self._room.set()

    def session_lost(self, error: AnabranchError) -> None:
        self._failure = error
        self._room.set()


async def _for_all(names: Sequence[str], ask: Callable[[str], Awaitable[None]]) -> None:
    for start in range(0, len(names), REQUESTS_IN_FLIGHT):
        async with asyncio.TaskGroup() as group:
            for name in names[start : start + REQUESTS_IN_FLIGHT]:
                group.create_task(_done(ask(name)))


async def _done(work: Awaitable[None]) -> None:
    await work


@asynccontextmanager
async def connected(endpoints_file: Path, stream: str, count: int) -> AsyncIterator[SegmentsLoad]:
    """A load on the store that serves the stream's first segment: the only store there is."""
    nats = await connect_nats(nats_target(endpoints_file), "segments-load")
    try:
        control = NatsControlPlane(nats, clock=SystemClock(), ids=SystemIds())
        name = f"{stream}/0.#epoch.0"
        located = await control.query("locate", Locate(segments=(name,)), Located, timeout_s=5.0)
        place = located.locations[0]
        endpoint = Endpoint(place.host, place.port)
        connection = await open_connection(endpoint, ConnectionSettings())
        try:
            yield SegmentsLoad(connection, stream, count)
        finally:
            connection.close()
            await connection.ended
    finally:
        await nats.close()
