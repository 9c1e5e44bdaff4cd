"""A client of one segment that goes on after failures, as real clients do.

After a failure it connects again, sets up, and sends the events after the last one that the store
has. Each block holds one event, so that a repeated block is the same, byte for byte.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from anabranch.common.errors import AnabranchError, ConnectionLost, Fenced, Retry, Unknown
from anabranch.common.wire.messages import (
    Appended,
    AppendSetup,
    CreateSegment,
    Done,
    Failed,
    Message,
    SetupAppend,
    Stamp,
    error_of,
)
from kit.wire_client import WRITER, WireClient

DEADLINE_S = 30.0
PAUSE_S = 0.02
T = TypeVar("T")

_RETRIED = (Retry, Fenced, Unknown, ConnectionLost, OSError, TimeoutError)


class PatientClient:
    """`connect` finds the store that serves the segment now."""

    def __init__(self, connect: Callable[[], Awaitable[WireClient]], segment: str) -> None:
        self._connect = connect
        self._segment = segment
        self._client: WireClient | None = None
        self.failures: list[BaseException] = []
        """What it went on after."""

    async def create(self) -> None:
        """Create the segment, unless it exists."""
        request = CreateSegment(segment=self._segment, stamp=Stamp(1, 1))
        await self._until_done(lambda client: _answered(client, request, Done))

    async def last_event_number(self) -> int:
        """The number of the writer's last event that the store has."""
        return (await self._until_done(self._set_up)).last_event_number

    async def call(self, request: Message) -> None:
        """Perform a request that is answered by `Done`."""
        await self._until_done(lambda client: _answered(client, request, Done))

    async def write(self, first: int, events: Sequence[bytes]) -> bytes:
        """Append the events until all are acknowledged; returns their blocks."""
        blocks: dict[int, bytes] = {}
        last = first + len(events) - 1

        async def write(client: WireClient) -> None:
            begin = (await self._set_up(client)).last_event_number + 1
            for number in range(begin, last + 1):
                blocks[number] = client.append(number, [events[number - first]])
            acknowledged = begin - 1
            while acknowledged < last:
                reply, _ = await client.receive()
                if isinstance(reply, Failed):
                    raise error_of(reply)
                if isinstance(reply, Appended):
                    acknowledged = reply.last_event_number

        await self._until_done(write)
        return b"".join(blocks[number] for number in range(first, last + 1))

    async def read_all(self) -> bytes:
        """All durable bytes of the segment."""

        async def read(client: WireClient) -> bytes:
            try:
                return await client.read_all(self._segment)
            except AssertionError as error:
                raise ConnectionLost("the read was refused") from error

        return await self._until_done(read)

    async def _set_up(self, client: WireClient) -> AppendSetup:
        request = SetupAppend(segment=self._segment, writer_id=WRITER, session=1)
        return await _answered(client, request, AppendSetup)

    async def _until_done(self, work: Callable[[WireClient], Awaitable[T]]) -> T:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    if self._client is None:
                        self._client = await self._connect()
                    return await work(self._client)
                except _RETRIED as error:
                    self.failures.append(error)
                    await self.close()
                    await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.close()
            except OSError:
                return


async def _answered(client: WireClient, request: Message, kind: type[T]) -> T:
    reply = await client.call(request)
    if isinstance(reply, Failed):
        error: AnabranchError = error_of(reply)
        raise error
    assert isinstance(reply, kind), reply
    return reply
