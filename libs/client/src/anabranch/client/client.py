"""`Client`: administration, and the way to writers and readers.

A client owns a connection to NATS or to a gateway, one connection per segment store, and a task
group in which its writers and readers work; leaving the client ends them all. Administration
commands return when the operation is complete and raise the controller's errors. Each takes
`timeout_s`, after which it raises OutcomeUnknown with the operation's id.
"""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar, overload

from opentelemetry.trace import Tracer

from anabranch.client.admin.cluster import Cluster, Controllers, Stores
from anabranch.client.admin.containers import Containers
from anabranch.client.admin.operations import Operations
from anabranch.client.admin.parked import Parked
from anabranch.client.admin.scopes import Scopes
from anabranch.client.admin.streams import Streams
from anabranch.client.groups.access import GroupAccess
from anabranch.client.groups.admin import ReaderGroups
from anabranch.client.groups.group import ReaderGroup
from anabranch.client.groups.parts import ClientGroupParts
from anabranch.client.one_segment.byte_stream import ByteStream
from anabranch.client.one_segment.revisioned_stream import RevisionedStream
from anabranch.client.one_segment.synchronizer import S, StateCodec, StateSynchronizer, U
from anabranch.client.reading.batch import BatchClient
from anabranch.client.reading.bounds import Start
from anabranch.client.reading.events import Event
from anabranch.client.reading.places import Places
from anabranch.client.reading.pointers import EventPointer, fetch_event
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.reader import EventReader
from anabranch.client.runtime import Runtime, failures_to_close
from anabranch.client.serializers import Serializer
from anabranch.client.settings import (
    ByteStreamSettings,
    ConnectionSettings,
    OneSegmentSettings,
    ReaderSettings,
    WriterSettings,
)
from anabranch.client.transactions.admin import Transactions
from anabranch.client.transactions.begin import Openings
from anabranch.client.transactions.pings import Pings
from anabranch.client.wire.control import (
    ConnectionPool,
    ControlPlane,
    SegmentDirectory,
)
from anabranch.client.writer import EventWriter
from anabranch.common.adapters.store_connection import Dial, dial_tcp
from anabranch.common.errors import Closed, InvalidRequest
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.reader_group import GroupRef, group_ref
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng

T = TypeVar("T")


class Client:
    """A connection to a cluster, made by `connect`: an async context manager. See the module.

    ::

        async with connect("nats://127.0.0.1:4222") as client:
            await client.streams.create("plant/sensors", segments=4)
    """

    def __init__(
        self,
        control: ControlPlane,
        *,
        clock: Clock,
        ids: IdSource,
        rng: Rng,
        connections: ConnectionSettings | None = None,
        tracer: Tracer | None = None,
        dial: Dial = dial_tcp,
    ) -> None:
        """`dial` opens the connections to segment stores."""
        self._control = control
        self._tracer = tracer
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._pool = ConnectionPool(connections or ConnectionSettings(), dial)
        self._directory = SegmentDirectory(control, self._pool)
        self._tasks = asyncio.TaskGroup()
        self._runtime: Runtime | None = None
        self._pings: Pings | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._runtime = Runtime(self._clock, self._ids, self._rng, self._tasks, self._tracer)
        self._pings = Pings(self._control, self._runtime)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runtime is not None
        open_parts, self._runtime = self._runtime.open_parts.newest_first(), None
        try:
            async with AsyncExitStack() as ending:
                ending.push_async_exit(self._tasks)
                failures = await failures_to_close(open_parts)
                # The group would wrap the body's own error in an ExceptionGroup: it must only see
                # the cancellation that one of its tasks may have caused.
                if isinstance(error, asyncio.CancelledError):
                    raise error
        finally:
            await self.close()
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Close the connections of a client that was never entered; repeatable.

        ::

            client = await connect("nats://127.0.0.1:4222")
            await client.close()
        """
        self._closed = True
        await self._pool.close()
        await self._control.close()

    @property
    def control_plane(self) -> ControlPlane:
        """The port behind all administration, for programs such as gateways that forward requests.

        ::

            answer = await client.control_plane.query("locate", query, Located, timeout_s=10)
        """
        return self._control

    # --- administration -------------------------------------------------------------------

    @property
    def scopes(self) -> Scopes:
        """Create, delete, describe and list scopes."""
        return Scopes(self._control)

    @property
    def streams(self) -> Streams:
        """Create, change, scale, truncate, seal, delete and describe streams."""
        return Streams(self._control, self.ranges())

    @property
    def reader_groups(self) -> ReaderGroups:
        """Create, reset, delete and describe reader groups."""
        return ReaderGroups(self._control, Places(self.ranges()))

    @property
    def operations(self) -> Operations:
        """Operations: the states and outcomes of commands."""
        return Operations(self._control, self._clock)

    @property
    def cluster(self) -> Cluster:
        """The cluster as a whole: an overview, lost members, flushing to tier 2."""
        return Cluster(self._control, self._pool, self._clock)

    @property
    def controllers(self) -> Controllers:
        """Controllers: which are alive, and which one leads."""
        return Controllers(self._control)

    @property
    def stores(self) -> Stores:
        """Segment stores: which are alive, and where each listens."""
        return Stores(self._control)

    @property
    def containers(self) -> Containers:
        """Containers: the store of each, and moving and enabling them."""
        return Containers(self._control)

    @property
    def parked(self) -> Parked:
        """Commands and work that a service put aside because its handler failed."""
        return Parked(self._control)

    # --- data -----------------------------------------------------------------------------

    @overload
    def writer(
        self, stream: str | StreamRef, settings: WriterSettings | None = None
    ) -> EventWriter: ...

    @overload
    def writer(
        self,
        stream: str | StreamRef,
        settings: WriterSettings | None = None,
        *,
        serializer: Serializer[T],
    ) -> EventWriter[T]: ...

    def writer(
        self,
        stream: str | StreamRef,
        settings: WriterSettings | None = None,
        *,
        serializer: Serializer[T] | None = None,
    ) -> EventWriter[T]:
        """A writer of events; enter it with `async with`. Raises InvalidName.

        It takes values of its `serializer`; without one, bytes and text.

        ::

            async with client.writer("plant/sensors") as writer:
                writer.write(b"21.5", key="boiler")
        """
        return EventWriter(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or WriterSettings(),
            pings=self._entered_pings(),
            serializer=serializer,
        )

    def transactions(self, stream: str | StreamRef) -> Transactions:
        """Begin, resume, inspect, commit and abort the transactions of a stream.

        Raises InvalidName. To write a single transaction, use `EventWriter.transaction`.

        ::

            async for one in client.transactions("plant/sensors").list():
                print(one.transaction_id, one.state)
        """
        runtime = self._entered()
        time_writer_id = runtime.ids.new_id()
        return Transactions(
            Openings(
                _ref(stream),
                control=self._control,
                directory=self._directory,
                runtime=runtime,
                pings=self._entered_pings(),
                noting=lambda: time_writer_id,
            )
        )

    @overload
    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        end: Start | None = None,
        settings: ReaderSettings | None = None,
    ) -> EventReader: ...

    @overload
    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        end: Start | None = None,
        settings: ReaderSettings | None = None,
        serializer: Serializer[T],
    ) -> EventReader[T]: ...

    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        end: Start | None = None,
        settings: ReaderSettings | None = None,
        serializer: Serializer[T] | None = None,
    ) -> EventReader[T]:
        """A reader of all segments: from the head, the tail, a time, or from `positions()`.

        A time is a `datetime` with a zone or Unix ms; `Streams.cut_at` finds its place.

        With `until_tail`, it ends at the length that each segment has when reading starts; with
        `end`, at that cut, in any form of `start`: a reader that starts there continues with the
        very next event. Otherwise it waits for more until the stream is sealed. The payloads are
        the values of its `serializer`; without one, bytes. Raises InvalidName, and InvalidRequest
        for both ends at once.

        ::

            async with client.reader("plant/sensors", until_tail=True) as reader:
                async for event in reader:
                    print(event.key, event.payload)
        """
        if until_tail and end is not None:
            raise InvalidRequest("a reader ends at the tail or at a cut", remedy="give one of them")
        return EventReader(
            _ref(stream),
            start=start,
            until_tail=until_tail,
            end=end,
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or ReaderSettings(),
            serializer=serializer,
        )

    def reader_group(self, group: str | GroupRef) -> ReaderGroup:
        """A reader group by its name ``scope/group``: its readers, checkpoints, cuts and status.

        Create it with `reader_groups.create` first. Raises InvalidName.

        ::

            async with client.reader_group("plant/readers").reader() as reader:
                async for event in reader:
                    print(event.payload)
        """
        ref = group if isinstance(group, GroupRef) else group_ref(group)
        runtime = self._entered()
        parts = ClientGroupParts(self._control, self._directory, runtime)
        access = GroupAccess(ref, self._control, parts)
        return ReaderGroup(access, parts, runtime.clock, runtime.ids)

    def revisioned_stream(
        self, stream: str | StreamRef, settings: OneSegmentSettings | None = None
    ) -> RevisionedStream:
        """A log with conditional appends, on a stream with one segment. Raises InvalidName.

        ::

            async with client.revisioned_stream("plant/log") as log:
                await log.append([b"entry"])
        """
        return RevisionedStream(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or OneSegmentSettings(),
        )

    def byte_stream(
        self, stream: str | StreamRef, settings: ByteStreamSettings | None = None
    ) -> ByteStream:
        """A stream with one segment, written and read as a file. Raises InvalidName.

        ::

            async with client.byte_stream("plant/file") as file:
                await file.write(b"bytes")
        """
        return ByteStream(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or ByteStreamSettings(),
        )

    def state_synchronizer(
        self,
        stream: str | StreamRef,
        codec: StateCodec[S, U],
        settings: OneSegmentSettings | None = None,
    ) -> StateSynchronizer[S, U]:
        """State that all processes share over one stream, of one segment. Raises InvalidName.

        ::

            async with client.state_synchronizer("plant/counter", codec) as shared:
                await shared.initialize(0)
        """
        runtime = self._entered()
        settings = settings or OneSegmentSettings()
        return StateSynchronizer(
            self.revisioned_stream(stream, settings),
            codec,
            runtime=runtime,
            retry_timeout_s=settings.retry_timeout_s,
        )

    async def fetch(self, pointer: str | EventPointer) -> Event:
        """Read one event again by its pointer; it reads only the event's block.

        Works on a client that is not entered. Raises InvalidRequest for a malformed pointer,
        EventNotFound if the event was truncated or deleted or never existed, CorruptBlock, and
        CodecMissing; Unavailable if no store answers for 60 s.

        ::

            event = await client.fetch(pointer)
        """
        found = EventPointer.parse(pointer) if isinstance(pointer, str) else pointer
        return await fetch_event(self.ranges().calls(found.segment), found)

    @property
    def batch(self) -> BatchClient:
        """Ranges and cuts of streams, for programs that divide the reading themselves.

        ::

            ranges = await client.batch.segment_ranges("plant/sensors")
        """
        runtime = self._entered()
        return BatchClient(self._control, self._directory, runtime, ReaderSettings())

    def ranges(self) -> SegmentRanges:
        """Stored bytes of segments, for bulk readers; works on a client that is not entered.

        ::

            info = await client.ranges().info(segment)
        """
        return SegmentRanges(self._control, self._directory, clock=self._clock, rng=self._rng)

    def _entered_pings(self) -> Pings:
        self._entered()
        assert self._pings is not None
        return self._pings

    def _entered(self) -> Runtime:
        if self._closed:
            raise Closed("the client is closed", remedy="connect again")
        if self._runtime is None:
            raise InvalidRequest(
                "the client is not open", remedy="use it as `async with connect(…) as client`"
            )
        return self._runtime


def _ref(stream: str | StreamRef) -> StreamRef:
    return stream if isinstance(stream, StreamRef) else stream_ref(stream)
