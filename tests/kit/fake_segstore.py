"""A segment store in memory behind a real TCP socket and the real protocol, with faults.

It keeps the rules that clients depend on: idempotent appends per (writer id, segment), one live
session per writer and segment, conditions looked at only for what is new, cumulative acks,
whole-append reads that wait at the tail, transient segments that end with their connection. What
it stores survives `restart` (a crash with everything synced).

Faults are decided by `fault`, asked once per step. A step is a request that arrived ("in") or
a reply that is about to leave ("out"); `DROP` closes the connection at that moment, an error
answers the request instead of performing it, `HOLD` keeps a reply back until `release`.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Literal, cast

import msgspec

from anabranch.common.errors import (
    AnabranchError,
    OutcomeUnknown,
    SegmentNotFound,
    SegmentSealed,
    SessionEnded,
    WrongHost,
)
from anabranch.common.model.names import transient_name
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendLarge,
    AppendOnce,
    AppendSetup,
    AppendTogether,
    AttributeValue,
    AttributeValues,
    CreateTransient,
    DeleteSegment,
    DescribeTable,
    Done,
    GetAttributes,
    GetEntries,
    GetSegmentInfo,
    Hello,
    KeepAlive,
    LocateOffset,
    LocateTime,
    MergedSegment,
    MergeSegments,
    Message,
    OffsetLocated,
    ReadSegment,
    Request,
    ScanEntries,
    Sealed,
    SealSegment,
    SegmentCreated,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    SetupAppend,
    UpdateTable,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from kit.fake_segment import FakeSegment
from kit.fake_together import append_together

Direction = Literal["in", "out"]
ACCEPT_TURNS = 4
"""Of the event loop, after which a connection that was accepted is known."""


class Fault(Enum):
    DROP = "drop"
    HOLD = "hold"


FaultRule = Callable[[Direction, Message], Fault | AnabranchError | None]


def no_faults(direction: Direction, message: Message) -> None:
    return None


class FakeSegmentStore:
    """See the module. `async with` serves it on a free port of 127.0.0.1."""

    def __init__(self, *segments: str) -> None:
        self.segments = {name: FakeSegment() for name in segments}
        self.deleted: set[str] = set()
        self.moved: set[str] = set()
        """Segments that another store serves."""
        self.merged: dict[str, MergedSegment] = {}
        self.fault: FaultRule = no_faults
        self.container_epoch = 1
        self.connections: set[FakeConnection] = set()
        self.connection_count = 0
        self.transient_count = 0
        self.keep_alive_count = 0
        self.tokens: list[str] = []
        """What connections were opened with."""
        self.requests: list[Message] = []
        self.sessions: dict[tuple[bytes, str], tuple[FakeConnection, int]] = {}
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "FakeSegmentStore":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: FakeConnection(self), "127.0.0.1", self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a crash looks from outside; what was stored stays."""
        assert self._server is not None
        for listening in self._server.sockets:
            # Closing while a connection is being accepted would leak its socket.
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for connection in list(self.connections):
            connection.drop()
        await self._server.wait_closed()
        self.sessions.clear()

    async def restart(self) -> None:
        """Crash and come back under the next container epoch on the same port."""
        await self.stop()
        self.container_epoch += 1
        for segment in self.segments.values():
            segment.restarted()
        await self.start()

    def move(self, name: str, target: "FakeSegmentStore") -> None:
        """Let another store serve the segment from now on."""
        target.segments[name] = self.segments.pop(name)
        self.moved.add(name)
        target.moved.discard(name)

    def delete(self, name: str) -> None:
        """Leaves a tombstone."""
        del self.segments[name]
        self.deleted.add(name)

    def seal(self, *names: str) -> None:
        """Seal these segments, or all."""
        for name in names or tuple(self.segments):
            self.segments[name].sealed = True

    def release(self) -> None:
        """Let go of every reply that was held back, in order."""
        for connection in list(self.connections):
            connection.release()


class FakeConnection(asyncio.Protocol):
    def __init__(self, store: FakeSegmentStore) -> None:
        self._store = store
        self._parser = PacketParser()
        self._sessions: dict[int, tuple[bytes, str]] = {}
        self._transients: list[str] = []
        self._held: list[list[bytes | memoryview]] = []
        self._waiting: set[asyncio.TimerHandle] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._store.connections.add(self)
        self._store.connection_count += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._store.connections.discard(self)
        for name in self._transients:
            self._store.segments.pop(name, None)
        for handle in self._waiting:
            handle.cancel()

    def drop(self) -> None:
        self._transport.abort()

    def _write(self, packet: list[bytes | memoryview]) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(packet)

    def release(self) -> None:
        for packet in self._held:
            self._write(packet)
        self._held.clear()

    def data_received(self, data: bytes) -> None:
        for packet in self._parser.feed(data):
            if self._transport.is_closing():
                return
            self._handle(decode_message(packet), packet.request_id, packet.payload)

    def _handle(self, message: Message, request_id: int, payload: bytes) -> None:
        if isinstance(message, KeepAlive):
            self._store.keep_alive_count += 1
            return
        self._store.requests.append(message)
        fault = self._store.fault("in", message)
        if fault is Fault.DROP:
            self.drop()
            return
        session = message.session if isinstance(message, Append) else 0
        try:
            if isinstance(fault, AnabranchError):
                raise fault
            self._perform(message, request_id, payload)
        except AnabranchError as error:
            if session:
                self._sessions.pop(session, None)
            self._reply(failed(error, session), request_id)

    def _perform(self, message: Message, request_id: int, payload: bytes) -> None:
        match message:
            case Hello():
                self._store.tokens.append(message.token)
                self._reply(Hello(node_id="fake"), request_id)
            case SetupAppend():
                self._reply(self._set_up(message), request_id)
            case Append():
                self._reply(self._append(message, payload), request_id)
            case AppendOnce():
                self._reply(self._append_once(message, payload), request_id)
            case AppendTogether():
                together = append_together(message, payload, partial(self._named, message))
                self._reply(together, request_id)
            case GetAttributes():
                self._reply(self._attributes(message), request_id)
            case GetSegmentInfo():
                self._reply(self._info(message), request_id)
            case ReadSegment():
                self._read(message, request_id)
            case UpdateTable() | GetEntries() | ScanEntries() | DescribeTable():
                reply, data = self._segment(message).answer(message, payload)
                self._reply(reply, request_id, data)
            case _:
                self._reply(self._controlled(message), request_id)

    def _controlled(self, message: Message) -> Message:
        match message:
            case CreateTransient():
                return self._create_transient(message)
            case SealSegment():
                sealed = self._segment(message)
                sealed.sealed = True
                return Sealed(length=len(sealed.data))
            case MergeSegments():
                return self._merge(message)
            case DeleteSegment():
                self._store.segments.pop(message.segment, None)
            case LocateOffset():
                return OffsetLocated(offset=self._segment(message).boundary(message.offset))
            case LocateTime():
                return OffsetLocated(offset=self._segment(message).boundary_at(message.time_ms))
        return Done()

    def _segment(self, request: Request) -> FakeSegment:
        if request.container_epoch not in (0, self._store.container_epoch):
            raise WrongHost("another container epoch is served")
        if request.segment in self._store.moved:
            raise WrongHost("another store serves the container")
        segment = self._store.segments.get(request.segment)
        if segment is None:
            raise SegmentNotFound("no such segment", segment=request.segment)
        return segment

    def _named(self, request: Request, name: str) -> FakeSegment:
        if name in self._store.deleted:
            raise OutcomeUnknown("the segment was deleted; what was in flight may be stored")
        return self._segment(msgspec.structs.replace(request, segment=name))

    def _set_up(self, setup: SetupAppend) -> AppendSetup:
        if setup.segment in self._store.deleted:
            raise OutcomeUnknown("the segment was deleted; what was in flight may be stored")
        segment = self._segment(setup)
        writer = (setup.writer_id, setup.segment)
        self._store.sessions[writer] = (self, setup.session)
        self._sessions[setup.session] = writer
        last = segment.last_numbers.get(setup.writer_id, 0)
        return AppendSetup(session=setup.session, last_event_number=last, sealed=segment.sealed)

    def _append(self, append: Append, payload: bytes) -> Appended:
        writer = self._sessions.get(append.session)
        if writer is None or self._store.sessions.get(writer) != (self, append.session):
            raise SessionEnded("the session is over", session=append.session)
        segment = self._store.segments.get(writer[1])
        if segment is None:
            raise SegmentNotFound("no such segment", segment=writer[1])
        first, count = append.first_event_number, append.count
        if isinstance(append, AppendLarge) and not segment.judge(writer[0], first, count):
            self._put_parts(segment, append.parts)
        last = segment.append(writer[0], append, payload)
        return Appended(session=append.session, last_event_number=last, length=len(segment.data))

    def _put_parts(self, segment: FakeSegment, name: str) -> None:
        """Merge a transient segment. Raises SessionEnded."""
        source = self._store.segments.pop(name, None)
        if source is None or not source.sealed:
            raise SessionEnded("the parts of the large event are gone")
        self._store.merged[name] = MergedSegment(name, segment.absorb(source), len(source.data))

    def _append_once(self, request: AppendOnce, payload: bytes) -> Appended:
        if request.segment in self._store.deleted:
            raise OutcomeUnknown("the segment was deleted; what was in flight may be stored")
        segment = self._segment(request)
        last = segment.append(request.writer_id, request, payload)
        return Appended(session=0, last_event_number=last, length=len(segment.data))

    def _attributes(self, request: GetAttributes) -> AttributeValues:
        found = self._segment(request).attributes
        ids = sorted(set(request.attributes or found) & found.keys())
        return AttributeValues(values=tuple(AttributeValue(each, found[each]) for each in ids))

    def _create_transient(self, request: CreateTransient) -> SegmentCreated:
        if self._segment(request).sealed:
            raise SegmentSealed("the parent is sealed")
        store = self._store
        store.transient_count += 1
        name = transient_name(request.segment, store.transient_count.to_bytes(16, "big"))
        store.segments[name] = FakeSegment()
        self._transients.append(name)
        return SegmentCreated(segment=name)

    def _merge(self, request: MergeSegments) -> SegmentsMerged:
        for name in request.sources:
            if name in self._store.merged:
                continue
            target, source = self._segment(request), self._store.segments.get(name)
            if source is None:
                raise SegmentNotFound("no such segment", segment=name)
            offset = target.absorb(source)
            self._store.merged[name] = MergedSegment(name, offset, len(source.data))
            del self._store.segments[name]
        return SegmentsMerged(merged=tuple(self._store.merged[name] for name in request.sources))

    def _info(self, request: GetSegmentInfo) -> SegmentInfo:
        segment = self._segment(request)
        return SegmentInfo(
            segment=request.segment, start=segment.start, length=len(segment.data), tiered_length=0,
            sealed=segment.sealed, event_count=segment.event_count, container=0,
            container_epoch=self._store.container_epoch,
        )  # fmt: skip

    def _read(self, request: ReadSegment, request_id: int) -> None:
        """Answer now, or look again each time that something may have changed."""
        segment = self._segment(request)
        end = len(segment.data)
        if request.offset != end or segment.sealed or request.wait_ms <= 0:
            data = segment.read(
                request.offset, request.size_max, whole_appends=request.whole_appends
            )
            tail = request.offset + len(data) == end
            reply = SegmentRead(
                offset=request.offset,
                at_tail=tail and not segment.sealed,
                end_of_segment=tail and segment.sealed,
            )
            self._reply(reply, request_id, data)
            return
        step_ms = min(request.wait_ms, 2)
        later = msgspec.structs.replace(request, wait_ms=request.wait_ms - step_ms)
        loop = asyncio.get_running_loop()
        self._waiting.add(loop.call_later(step_ms / 1000, self._read_again, later, request_id))

    def _read_again(self, request: ReadSegment, request_id: int) -> None:
        try:
            self._read(request, request_id)
        except AnabranchError as error:
            self._reply(failed(error, 0), request_id)

    def _reply(self, message: Message, request_id: int, payload: bytes = b"") -> None:
        if self._transport.is_closing():
            return
        fault = self._store.fault("out", message)
        if fault is Fault.DROP:
            self.drop()
            return
        packet = encode_message(message, request_id, payload)
        if fault is Fault.HOLD or self._held:
            self._held.append(packet)
        else:
            self._write(packet)
