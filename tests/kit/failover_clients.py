"""Clients of stores that fail over: writers with sessions, and readers that ask for the present.

Clients locate a segment through any controller, keep what they know until it fails them, and
sometimes ask a store that they have no reason to ask. So an owner that was replaced is asked too.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.common.errors import AnabranchError, ConnectionLost, Fenced, Retry, Unknown
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendSetup,
    CreateSegment,
    Done,
    Failed,
    FlushContainer,
    GetSegmentInfo,
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    SegmentInfo,
    SegmentRead,
    SetupAppend,
    Stamp,
    error_of,
)
from kit.failover_connection import Connection, Reply, Serving
from kit.failover_referee import Referee, Seen
from kit.history import HistoryViolation, make_event
from kit.processes import Process
from kit.rng import Random
from kit.ways import Way

ASK_S_MAX = 3.0
SILENT_S_MAX = 3.0
"""A writer without an acknowledgement for so long sets up again, elsewhere if it is told so."""
WINDOW = 4
READ_SIZE_BYTES = 4000
EXPECTED = (Retry, Fenced, Unknown)


class Cluster(Protocol):
    """What clients reach."""

    @property
    def now_s(self) -> float:
        """The world's time."""
        ...

    def locate(self, segment: str, hear: Callable[[str], None]) -> None:
        """Ask some controller for the store of a segment; `hear` may never be called."""
        ...

    def serving(self) -> Mapping[str, Serving]:
        """The stores' present processes, by node id."""
        ...

    def ways_to(self, process: Process) -> tuple[Way, Way]:
        """Fresh ways from the clients to a process, and back."""
        ...


@dataclass(slots=True)
class Clients:
    """What the clients of one run share."""

    process: Process
    cluster: Cluster
    referee: Referee
    rng: Random
    acknowledged_s: dict[bytes, float] = field(default_factory=dict)
    """When each writer last heard an acknowledgement of new events."""
    calm: bool = False
    """Whether clients ask nothing but the store that serves a segment."""
    _located: dict[str, str] = field(default_factory=dict)

    async def locate(self, segment: str, *, again: bool) -> str:
        """The node id of the segment's store, as far as known. Raises ConnectionLost."""
        if again or segment not in self._located:
            told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            def hear(node: str) -> None:
                if not told.done():
                    told.set_result(node)

            self.cluster.locate(segment, hear)
            try:
                async with asyncio.timeout(1.0):
                    self._located[segment] = await told
            except TimeoutError:
                raise ConnectionLost("no controller answered") from None
        return self._located[segment]

    async def connect(
        self, segment: str, heard: Callable[[Reply], None] = lambda _: None, *, again: bool = False
    ) -> Connection:
        """A connection to the segment's store, or to any other. Raises ConnectionLost."""
        stores = self.cluster.serving()
        if not self.calm and stores and self.rng.random() < 0.3:
            node = self.rng.choice(sorted(stores))
        else:
            node = await self.locate(segment, again=again)
        serving = self.cluster.serving().get(node)
        if serving is None or serving.process.dead:
            raise ConnectionLost("nothing listens there")
        return Connection(self.process, serving, self.cluster.ways_to(serving.process), heard)


class Writer:
    """A writer with a session, which sends what was not acknowledged again, and then more."""

    def __init__(self, clients: Clients, segment: str, writer_id: bytes) -> None:
        self.segment = segment
        self.writer_id = writer_id
        self.acknowledged = 0
        self._clients = clients
        self._rng = clients.rng
        self._referee = clients.referee
        self._made: list[bytes] = []
        self._first_sent: dict[int, Seen] = {}
        self._sent = 0
        self._session = 0
        self._ended = asyncio.Event()
        self._progress = asyncio.Event()
        self._problem: BaseException | None = None

    async def run(self) -> None:
        """Write for ever."""
        again = False
        while True:
            try:
                await self._live(again=again)
                again = self._rng.random() < 0.5
                rest_s = 0.2 if self._clients.calm else self._rng.choice((0.2, 3.0, 6.0))
            except EXPECTED:
                again, rest_s = True, 0.2
            await asyncio.sleep(self._rng.random() * rest_s)

    async def _live(self, *, again: bool) -> None:
        """One connection, until it fails or is given up."""
        connection = await self._clients.connect(self.segment, self._heard, again=again)
        try:
            await self._set_up(connection)
            until_s = self._clients.cluster.now_s + self._rng.random() * 6
            while self._clients.cluster.now_s < until_s:
                self._send(connection)
                self._progress.clear()
                if self._sent - self.acknowledged > WINDOW:
                    async with asyncio.timeout(SILENT_S_MAX):
                        await self._progress.wait()
                if self._problem is not None:
                    raise self._problem
                if self._ended.is_set():
                    raise ConnectionLost("the session ended")
                await asyncio.sleep(self._rng.random() * 0.5)
        except TimeoutError as error:
            raise ConnectionLost("no acknowledgement") from error
        finally:
            connection.close()

    async def _set_up(self, connection: Connection) -> None:
        self._session += 1
        self._ended.clear()
        asked = self._referee.begin(self.segment, self.writer_id)
        request = SetupAppend(segment=self.segment, writer_id=self.writer_id, session=self._session)
        reply = await connection.ask(request, seconds_max=ASK_S_MAX)
        message = checked(reply, self._referee, self.segment)
        assert isinstance(message, AppendSetup)
        last = message.last_event_number
        self._referee.set_up(self.segment, self.writer_id, last, reply.container_epoch, asked)
        self._note(last)
        self._sent = last

    def _send(self, connection: Connection) -> None:
        """Send the next events as a block: those that were sent before, or new ones."""
        first, count = self._sent + 1, self._rng.randint(1, 3)
        while len(self._made) < self._sent + count:
            size = self._rng.choice((0, 10, 100, 300))
            self._made.append(make_event(self.writer_id, len(self._made) + 1, size))
        events = self._made[self._sent : self._sent + count]
        block = encode_block(
            events, writer_id=self.writer_id, first_event_number=first, base_timestamp_ms=0
        )
        history = self._referee.history
        if first + count - 1 > len(history.attempted.get((self.segment, self.writer_id), [])):
            history.attempt(self.segment, self.writer_id, first, events)
        seen = self._referee.begin(self.segment, self.writer_id)
        for number in range(first, first + count):
            self._first_sent.setdefault(number, seen)
        self._sent += count
        append = Append(session=self._session, first_event_number=first, count=count)
        connection.send(append, block)

    def _heard(self, reply: Reply) -> None:
        message = reply.message
        if isinstance(message, Failed) and message.session in (0, self._session):
            self._ended.set()
            self._progress.set()
        if not isinstance(message, Appended) or message.session != self._session:
            return
        last = message.last_event_number
        try:
            sent = self._first_sent[last]
            self._referee.appended(
                self.segment,
                self.writer_id,
                last,
                length=message.length,
                epoch=reply.container_epoch,
                sent=sent,
            )
        except HistoryViolation as violation:
            self._problem = violation
        self._note(last)
        self._progress.set()

    def _note(self, last: int) -> None:
        if last > self.acknowledged:
            self.acknowledged = last
            self._clients.acknowledged_s[self.writer_id] = self._clients.cluster.now_s


class Reader:
    """A client that asks for the present: tails, lengths, and bytes in between."""

    def __init__(self, clients: Clients, segments: tuple[str, ...]) -> None:
        self._clients = clients
        self._rng = clients.rng
        self._referee = clients.referee
        self._segments = segments
        self._connections: dict[str, Connection] = {}

    async def run(self) -> None:
        """Ask for ever. A connection is kept until it fails, or for a while."""
        while True:
            segment = self._rng.choice(self._segments)
            connection = self._connections.get(segment)
            try:
                if connection is None or connection.lost:
                    again = self._rng.random() < 0.7
                    connection = await self._clients.connect(segment, again=again)
                    self._connections[segment] = connection
                await self._ask(connection, segment)
            except EXPECTED:
                self._forget(segment)
                await asyncio.sleep(self._rng.random() * 0.3)
            if self._rng.random() < 0.05:
                self._forget(segment)
            await asyncio.sleep(self._rng.random() * 0.2)

    def _forget(self, segment: str) -> None:
        connection = self._connections.pop(segment, None)
        if connection is not None:
            connection.close()

    async def _ask(self, connection: Connection, segment: str) -> None:
        asked = self._referee.begin(segment)
        draw = self._rng.random()
        if draw < 0.4:
            reply = await connection.ask(GetSegmentInfo(segment=segment), seconds_max=ASK_S_MAX)
            message = checked(reply, self._referee, segment)
            assert isinstance(message, SegmentInfo)
            self._referee.told_length(segment, message.length, asked)
        elif draw < 0.8:
            await self._read(connection, segment, asked.length, asked)
        else:
            offset = int(asked.length * self._rng.random())
            start = await boundary(connection, segment, offset, self._referee, asked)
            await read_all(connection, segment, self._referee, start)

    async def _read(self, connection: Connection, segment: str, offset: int, asked: Seen) -> None:
        wait_ms = self._rng.choice((0, 0, 500))
        request = ReadSegment(
            segment=segment, offset=offset, size_max=READ_SIZE_BYTES, wait_ms=wait_ms
        )
        reply = await connection.ask(request, seconds_max=ASK_S_MAX)
        if is_beyond(reply):
            self._referee.refused_beyond(segment, offset, asked)
        message = checked(reply, self._referee, segment)
        assert isinstance(message, SegmentRead)
        self._referee.read(segment, offset, reply.data, at_tail=message.at_tail, asked=asked)


async def boundary(
    connection: Connection, segment: str, offset: int, referee: Referee, asked: Seen
) -> int:
    """The first boundary of an append at or after the offset. Raises what the store answers."""
    request = LocateOffset(segment=segment, offset=offset)
    reply = await connection.ask(request, seconds_max=ASK_S_MAX)
    if is_beyond(reply):
        referee.refused_beyond(segment, offset, asked)
    message = checked(reply, referee, segment)
    assert isinstance(message, OffsetLocated)
    return message.offset


def is_beyond(reply: Reply) -> bool:
    """Whether the store says that an offset lies beyond the segment's end."""
    return isinstance(reply.message, Failed) and reply.message.code == "invalid-request"


async def read_all(connection: Connection, segment: str, referee: Referee, start: int = 0) -> bytes:
    """Everything in the segment from `start` on. Raises what the store answers."""
    content = b""
    while True:
        asked, offset = referee.begin(segment), start + len(content)
        request = ReadSegment(segment=segment, offset=offset, size_max=READ_SIZE_BYTES)
        reply = await connection.ask(request, seconds_max=ASK_S_MAX)
        if is_beyond(reply):
            referee.refused_beyond(segment, offset, asked)
        message = checked(reply, referee, segment)
        assert isinstance(message, SegmentRead)
        referee.read(segment, offset, reply.data, at_tail=message.at_tail, asked=asked)
        content += reply.data
        if message.at_tail:
            return content


async def until_done(clients: Clients, segment: str, work: "Work") -> None:
    """Repeat the work on a connection to the segment's store until it succeeds."""
    while True:
        try:
            connection = await clients.connect(segment, again=True)
            try:
                await work(connection)
            finally:
                connection.close()
        except EXPECTED:
            await asyncio.sleep(0.1)
        else:
            return


class Work(Protocol):
    """Something to do on a connection."""

    async def __call__(self, connection: Connection) -> None: ...


async def create_segment(clients: Clients, segment: str) -> None:
    """Create a segment, however long that takes."""

    async def create(connection: Connection) -> None:
        request = CreateSegment(segment=segment, stamp=Stamp(1, 1))
        message = (await connection.ask(request, seconds_max=ASK_S_MAX)).message
        if isinstance(message, Failed):
            raise error_of(message)
        assert isinstance(message, Done)

    await until_done(clients, segment, create)


async def flush_often(clients: Clients, segment: str, container: int) -> None:
    """Ask the segment's store now and then to move its container's bytes to tier 2."""
    while True:
        await asyncio.sleep(2 + clients.rng.random() * 6)
        try:
            connection = await clients.connect(segment)
            await connection.ask(FlushContainer(container=container), seconds_max=ASK_S_MAX)
            connection.close()
        except AnabranchError:
            continue


def checked(reply: Reply, referee: Referee, segment: str) -> object:
    """The message. Raises what the store answered; an unknown segment is a violation."""
    message = reply.message
    if not isinstance(message, Failed):
        return message
    if message.code == "segment-not-found":
        referee.missing(segment)
    raise error_of(message)
