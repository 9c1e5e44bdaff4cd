"""`RemoteStreams` of one process: it reaches the simulated servers over its way.

The servers are those of `sim_stream`. Requests without an answer end with Unavailable, late ones
are performed all the same. A read brings its messages in several answers, so a purge may happen in
between.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from anabranch.common.errors import Unavailable
from anabranch.segstore.domain.log.stream.messages import Kind
from anabranch.segstore.ports_stream import StreamFacts
from kit.sim_stream import Publication, SimServers, publish
from kit.ways import Way

T = TypeVar("T")

REQUEST_S_MAX = 5.0
READ_COUNT_MAX = 16


class ProcessStreams:
    """The streams as one process reaches them."""

    def __init__(self, servers: SimServers, way: Way, message_size_max: int) -> None:
        self.servers = servers
        self.way = way
        self.message_size_max = message_size_max

    def stream(self, log_id: str) -> "ProcessStream":
        return ProcessStream(self, log_id)

    async def create(self, log_id: str) -> None:
        await self.ask(lambda: self.servers.create(log_id))

    async def delete(self, log_id: str) -> None:
        await self.ask(lambda: self.servers.streams.pop(log_id, None))

    async def check_synced(self, peers: tuple[str, ...]) -> None:
        assert peers

    async def ask(self, work: Callable[[], T]) -> T:
        """Let the servers do the work. Raises Unavailable."""
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                return await self.way.ask(work)
        except TimeoutError as error:
            raise Unavailable("the servers did not answer") from error


class ProcessStream:
    """`RemoteStream` of one log for one process."""

    def __init__(self, streams: ProcessStreams, log_id: str) -> None:
        self._streams = streams
        self._servers = streams.servers
        self._way = streams.way
        self._log_id = log_id

    @property
    def message_size_max(self) -> int:
        return self._streams.message_size_max

    async def describe(self) -> StreamFacts | None:
        return await self._streams.ask(lambda: self._servers.facts(self._log_id))

    def publish(self, kind: Kind, data: bytes, expected_last: int | None) -> asyncio.Future[int]:
        message = Publication(self._log_id, kind, data, expected_last)
        way = self._way
        return publish(self._servers, message, send=way.send, send_back=way.send_back)

    async def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        at = first
        while at <= last:
            end = min(last, at + READ_COUNT_MAX - 1)
            found = await self._streams.ask(lambda at=at, end=end: self._read(at, end))  # type: ignore[misc]
            for place, data in found:
                yield place, data
            at = end + 1

    def _read(self, first: int, last: int) -> list[tuple[int, bytes]]:
        stream = self._servers.streams.get(self._log_id)
        if stream is None:
            raise Unavailable("no such stream")
        found = ((place, stream.messages.get(place)) for place in range(first, last + 1))
        return [(place, message[1]) for place, message in found if message is not None]

    async def get(self, place: int) -> bytes | None:
        found = await self._streams.ask(lambda: self._read(place, place))
        return found[0][1] if found else None

    async def newest_opening(self) -> bytes | None:
        return await self._streams.ask(lambda: self._servers.newest_opening(self._log_id))

    async def purge_below(self, *, frames: int, openings: int) -> None:
        for kind, below in ((Kind.FRAME, frames), (Kind.OPENING, openings)):
            await self._streams.ask(lambda kind=kind, below=below: self._purge(kind, below))  # type: ignore[misc]

    def _purge(self, kind: Kind, below: int) -> None:
        if self._servers.happens(self._servers.faults.purge_failed):
            self._servers.counts["purges failed"] += 1
            raise Unavailable("the purge was not confirmed")
        self._servers.purge(self._log_id, kind, below)
