"""`Client`: the way to writers and readers, to `keyed` data, and to `administration`.

A client owns a connection to NATS or to a gateway, one connection per segment store, and a task
group in which its writers and readers work; leaving the client ends them all.

A client makes its parts by their public names (`public`) or imports them where it makes them, so
that a program loads only the parts that it uses: administration alone needs no writer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, overload

import anabranch.client as public
from anabranch.client.keyed import KeyedData
from anabranch.client.runtime import Runtime, failures_to_close
from anabranch.client.settings import (
    ByteStreamSettings,
    ConnectionSettings,
    OneSegmentSettings,
    ReaderSettings,
    WriterSettings,
)
from anabranch.client.wire.control import ConnectionPool, ControlPlane
from anabranch.common.adapters.store_connection import Dial, dial_tcp
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.reader_group import GroupRef, group_ref
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from anabranch.client.one_segment.synchronizer import S, U
    from anabranch.client.reading.bounds import Start
    from anabranch.client.transactions.pings import Pings
    from anabranch.client.transactions.submissions import Submissions

T = TypeVar("T")

SUBMISSIONS_MAX = 256
"""The streams for which a client remembers the pens of its short transactions."""


class Client(KeyedData):
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
        pool = ConnectionPool(connections or ConnectionSettings(), dial)
        super().__init__(control, pool, clock, rng)
        self._tracer = tracer
        self._ids = ids
        self._tasks = asyncio.TaskGroup()
        self._pings: Pings | None = None
        self._submissions: OrderedDict[StreamRef, Submissions] = OrderedDict()
        """Of the streams that were used last, at most `SUBMISSIONS_MAX`."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._runtime = Runtime(self._clock, self._ids, self._rng, self._tasks, self._tracer)
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

    # --- data -----------------------------------------------------------------------------

    @property
    def topics(self) -> public.Topics:
        """Topics: create, change, delete and describe them, produce and consume."""
        return public.Topics(
            self._control,
            self._directory,
            clock=self._clock,
            ids=self._ids,
            rng=self._rng,
            entered=self._entered,
        )

    @overload
    def writer(
        self, stream: str | StreamRef, settings: WriterSettings | None = None
    ) -> public.EventWriter: ...

    @overload
    def writer(
        self,
        stream: str | StreamRef,
        settings: WriterSettings | None = None,
        *,
        serializer: public.Serializer[T],
    ) -> public.EventWriter[T]: ...

    def writer(
        self,
        stream: str | StreamRef,
        settings: WriterSettings | None = None,
        *,
        serializer: public.Serializer[T] | None = None,
    ) -> public.EventWriter[T]:
        """A writer of events; enter it with `async with`. Raises InvalidName.

        It takes values of its `serializer`; without one, bytes and text.

        ::

            async with client.writer("plant/sensors") as writer:
                writer.write(b"21.5", key="boiler")
        """
        ref = _ref(stream)
        return public.EventWriter(
            ref,
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or WriterSettings(),
            pings=self._entered_pings(),
            submissions=self._submissions_to(ref),
            serializer=serializer,
        )

    def transactions(self, stream: str | StreamRef) -> public.Transactions:
        """Begin, resume, inspect, commit and abort the transactions of a stream.

        Raises InvalidName. To write a single transaction, use `EventWriter.transaction`.

        ::

            async for one in client.transactions("plant/sensors").list():
                print(one.transaction_id, one.state)
        """
        from anabranch.client.transactions.begin import Openings

        ref, runtime = _ref(stream), self._entered()
        time_writer_id = runtime.ids.new_id()
        return public.Transactions(
            Openings(
                self._submissions_to(ref),
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
    ) -> public.EventReader: ...

    @overload
    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        end: Start | None = None,
        settings: ReaderSettings | None = None,
        serializer: public.Serializer[T],
    ) -> public.EventReader[T]: ...

    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        end: Start | None = None,
        settings: ReaderSettings | None = None,
        serializer: public.Serializer[T] | None = None,
    ) -> public.EventReader[T]:
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
        return public.EventReader(
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

    def reader_group(self, group: str | GroupRef) -> public.ReaderGroup:
        """A reader group by its name ``scope/group``: its readers, checkpoints, cuts and status.

        Create it with `reader_groups.create` first. Raises InvalidName.

        ::

            async with client.reader_group("plant/readers").reader() as reader:
                async for event in reader:
                    print(event.payload)
        """
        from anabranch.client.groups.parts import ClientGroupParts

        ref = group if isinstance(group, GroupRef) else group_ref(group)
        return ClientGroupParts(self._control, self._directory, self._entered()).group(ref)

    def revisioned_stream(
        self, stream: str | StreamRef, settings: OneSegmentSettings | None = None
    ) -> public.RevisionedStream:
        """A log with conditional appends, on a stream with one segment. Raises InvalidName.

        ::

            async with client.revisioned_stream("plant/log") as log:
                await log.append([b"entry"])
        """
        return public.RevisionedStream(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or OneSegmentSettings(),
        )

    def byte_stream(
        self, stream: str | StreamRef, settings: ByteStreamSettings | None = None
    ) -> public.ByteStream:
        """A stream with one segment, written and read as a file. Raises InvalidName.

        ::

            async with client.byte_stream("plant/file") as file:
                await file.write(b"bytes")
        """
        return public.ByteStream(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or ByteStreamSettings(),
        )

    def state_synchronizer(
        self,
        stream: str | StreamRef,
        codec: public.StateCodec[S, U],
        settings: OneSegmentSettings | None = None,
    ) -> public.StateSynchronizer[S, U]:
        """State that all processes share over one stream, of one segment. Raises InvalidName.

        ::

            async with client.state_synchronizer("plant/counter", codec) as shared:
                await shared.initialize(0)
        """
        runtime = self._entered()
        settings = settings or OneSegmentSettings()
        return public.StateSynchronizer(
            self.revisioned_stream(stream, settings),
            codec,
            runtime=runtime,
            retry_timeout_s=settings.retry_timeout_s,
        )

    async def fetch(self, pointer: str | public.EventPointer) -> public.Event:
        """Read one event again by its pointer; it reads only the event's block.

        Works on a client that is not entered. Raises InvalidRequest for a malformed pointer,
        EventNotFound if the event was truncated or deleted or never existed, CorruptBlock, and
        CodecMissing; Unavailable if no store answers for 60 s.

        ::

            event = await client.fetch(pointer)
        """
        from anabranch.client.reading.pointers import fetch_event

        found = public.EventPointer.parse(pointer) if isinstance(pointer, str) else pointer
        return await fetch_event(self.ranges().calls(found.segment), found)

    @property
    def batch(self) -> public.BatchClient:
        """Ranges and cuts of streams, for programs that divide the reading themselves.

        ::

            ranges = await client.batch.segment_ranges("plant/sensors")
        """
        runtime = self._entered()
        return public.BatchClient(self._control, self._directory, runtime, ReaderSettings())

    def _entered_pings(self) -> Pings:
        runtime = self._entered()
        if self._pings is None:
            from anabranch.client.transactions.pings import Pings

            self._pings = Pings(self._control, runtime)
        return self._pings

    def _submissions_to(self, stream: StreamRef) -> Submissions:
        found = self._submissions.get(stream)
        if found is None:
            from anabranch.client.transactions.committing import Committing
            from anabranch.client.transactions.submissions import Submissions

            shared = Committing(
                stream,
                control=self._control,
                directory=self._directory,
                runtime=self._entered(),
            )
            found = self._submissions[stream] = Submissions(shared)
        self._submissions.move_to_end(stream)
        if len(self._submissions) > SUBMISSIONS_MAX:
            self._submissions.popitem(last=False)
        return found


def _ref(stream: str | StreamRef) -> StreamRef:
    return stream if isinstance(stream, StreamRef) else stream_ref(stream)
