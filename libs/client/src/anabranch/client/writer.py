"""The event writer: it takes events without waiting and gets them acknowledged in the background.

`lane_writer` describes how events are taken. This module handles segments that change: a sealed
segment reports which events it holds, and the rest goes to its successors (`lanes`). Events of one
key are therefore stored in the order of their `write` calls, also while the stream scales. Not
thread-safe: use a writer from its event loop only. The first error that a retry cannot cure ends
the writer: every later call raises it, with the number of unacknowledged events.
"""

from types import TracebackType
from typing import Self

from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import TransactionSettings, WriterSettings
from anabranch.client.transactions.begin import Beginning, Key, Openings, wanted
from anabranch.client.transactions.pings import Pings
from anabranch.client.transactions.submissions import Submissions
from anabranch.client.wire.control import ControlPlane, SegmentDirectory, writable_segments
from anabranch.client.wire.followers import Followers
from anabranch.client.writing.appender import SegmentAppender
from anabranch.client.writing.lane_writer import LaneWriter, T
from anabranch.client.writing.time_notes import TimeNotes
from anabranch.common.errors import (
    AnabranchError,
    OutcomeUnknown,
    SegmentNotFound,
    SegmentSealed,
    StreamSealed,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.codec import require_zstd


class EventWriter(LaneWriter[T]):
    """Writes events to a stream; made by `Client.writer`. It takes the values of its `serializer`
    (T).

    An async context manager: leaving the block normally flushes, leaving it by an exception drops
    unacknowledged events.

    ::

        async with client.writer("plant/sensors") as writer:
            writer.write(b"21.5", key="boiler")
            await writer.flush()
    """

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: WriterSettings,
        pings: Pings,
        submissions: Submissions,
        serializer: Serializer[T] | None = None,
    ) -> None:
        super().__init__(
            stream, directory=directory, runtime=runtime, settings=settings, serializer=serializer
        )
        self._control = control
        self._followers = Followers(control, stream, runtime.clock, self._new_backoff)
        self._times = TimeNotes(control, stream, self.writer_id, self._length_of)
        self._openings = Openings(
            submissions,
            directory=directory,
            runtime=runtime,
            pings=pings,
            noting=self._times.by_commit,
        )

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._settings.compression is not None:
            require_zstd()
        segments = await writable_segments(self._control, self.stream)
        await self._directory.learn([segment.name for segment in segments.segments])
        self._runtime.open_parts.add(self)
        self._times.incarnation = segments.incarnation
        self._openings.submissions.shared.layout.learn(segments)
        self._lanes.open(segments.segments)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
                await self._times.end()
        finally:
            await self.close()

    # --- time -----------------------------------------------------------------------------

    async def note_time(self, timestamp_ms: int) -> None:
        """Declare that every later write is of `timestamp_ms` (Unix time) or later.

        Waits until everything written before is durable, and notes its place; readers derive
        watermarks from it. May be repeated with the same time or a later one. Raises the writer's
        failure, InvalidRequest (the time goes back or is out of range), StreamNotFound,
        Unavailable.

        ::

            await writer.note_time(1_700_000_000_000)
        """
        await self.flush()
        for appender in self._lanes.appenders:
            self._times.saw(appender)
        await self._times.note(timestamp_ms)

    # --- transactions ---------------------------------------------------------------------

    def transaction(
        self,
        settings: TransactionSettings | None = None,
        *,
        key: Key | None = None,
    ) -> Beginning[T]:
        """A transaction, whose events become visible together or never. Enter it, or await it.

        Leaving the block normally commits and waits until readers see the events; leaving it by an
        exception aborts. The transaction uses the settings and the serializer of this writer. The
        writer's own events are not part of the transaction, and it need not have written any.

        Awaiting begins it at once. A transaction that is entered keeps its events in the buffer
        until the commit, which is one request if a group can hold them: then it never has an `id`.
        Otherwise it is begun as soon as it must be.

        ::

            async with writer.transaction() as txn:
                txn.write(b"21.5", key="boiler")

        Parameters and errors are those of `Transactions.begin`. A transaction takes no large
        events.
        """
        what, own = wanted(key, parts=False), settings or TransactionSettings()
        return self._openings.entered(what, own, self._settings, self._serializer)

    # --- behind the scenes ----------------------------------------------------------------

    def _appender_ended(self, appender: SegmentAppender, error: AnabranchError) -> None:
        if self._failure is None:
            self._run(self._go_on_without(appender, error))

    async def _go_on_without(self, appender: SegmentAppender, error: AnabranchError) -> None:
        """If the segment was sealed, its successors take over; otherwise the writer ends."""
        try:
            if not isinstance(error, SegmentSealed | SegmentNotFound):
                raise error
            missing = error if isinstance(error, SegmentNotFound) else None
            successors = await self._followers.after(appender.segment, if_open=missing)
            if not appender.is_certain:
                raise OutcomeUnknown(
                    "a segment was sealed and deleted by a truncation before it acknowledged all "
                    "events"
                )
            if not successors:
                raise StreamSealed("the stream was sealed during a write")
            await self._directory.prepare(each.name for each in successors)
        except AnabranchError as final:
            final.fields = {
                **final.fields, "stream": str(self.stream), "segment": appender.segment,
            }  # fmt: skip
            self._fail(final)
            return
        if self._failure is None:
            self._times.saw(appender)
            self._lanes.replace(appender, successors)
            self._in_flight.wake()
            self._routes.clear()
            self._placing.keyless = None
