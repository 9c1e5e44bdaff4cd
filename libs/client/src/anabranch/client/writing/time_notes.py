"""A writer's notes of time: the end of its events in each segment at the time of the note.

A note names each segment that the writer has written to, even sealed ones, as long as readers may
not have passed them: at most `SEGMENT_COUNT_MAX`, without the oldest. If an acknowledgement was
lost, the segment's present length replaces it; it is never too low.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.client.writing.appender import SegmentAppender
from anabranch.common.contracts.writer_times import (
    NoteTime,
    RemoveWriter,
    TimeNoted,
    WriterRemoved,
)
from anabranch.common.errors import AnabranchError, InvalidRequest, SegmentNotFound
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, SegmentOffset

LengthOf = Callable[[str], Awaitable[int]]
"""A segment's present length. Raises SegmentNotFound."""


class TimeNotes:
    """The notes of one writer. `incarnation` is the stream's when the writer was opened."""

    def __init__(
        self, control: ControlPlane, stream: StreamRef, writer_id: bytes, length_of: LengthOf
    ) -> None:
        self.incarnation: int | None = None
        self._control = control
        self._stream = stream
        self._writer_id = writer_id.hex()
        self._length_of = length_of
        self._reached: dict[str, int | None] = {}
        self._noted = False

    def saw(self, appender: SegmentAppender) -> None:
        """Note the appender's acknowledged events; call it before the appender is replaced."""
        if not appender.outbox.acknowledged:
            return
        self._reached.pop(appender.segment, None)
        self._reached[appender.segment] = appender.length
        while len(self._reached) > SEGMENT_COUNT_MAX:
            del self._reached[next(iter(self._reached))]

    async def note(self, timestamp_ms: int) -> None:
        """Send the note to the controller. Raises its error, InvalidRequest for an invalid time."""
        if type(timestamp_ms) is not int:
            raise InvalidRequest(
                "a time must be a whole number of milliseconds", type=type(timestamp_ms).__name__
            )
        positions: list[SegmentOffset] = []
        for segment, length in tuple(self._reached.items()):
            with suppress(SegmentNotFound):  # truncated: every reader is beyond it
                reached = await self._length_of(segment) if length is None else length
                positions.append(SegmentOffset(parse_segment_name(segment)[1], reached))
        scope, stream = self._stream.scope, self._stream.stream
        try:
            query = NoteTime(
                scope=scope, stream=stream, incarnation=self.incarnation,
                writer_id=self._writer_id, timestamp_ms=timestamp_ms,
                positions=tuple(sorted(positions)),
            )  # fmt: skip
        except ValueError as error:
            raise InvalidRequest(
                "a noted time must lie between 1970 and 2^53 ms", timestamp_ms=timestamp_ms
            ) from error
        self._noted = True
        await self._control.query("note_time", query, TimeNoted, timeout_s=QUERY_TIMEOUT_S)

    def by_commit(self) -> str:
        """The writer id under which a commit notes a time, so that the note is the writer's."""
        self._noted = True
        return self._writer_id

    async def end(self) -> None:
        """Report that the writer is gone for good; if this fails, its mark expires."""
        if not self._noted:
            return
        query = RemoveWriter(
            scope=self._stream.scope,
            stream=self._stream.stream,
            incarnation=self.incarnation,
            writer_id=self._writer_id,
        )
        with suppress(AnabranchError):
            await self._control.query(
                "remove_writer", query, WriterRemoved, timeout_s=QUERY_TIMEOUT_S
            )
