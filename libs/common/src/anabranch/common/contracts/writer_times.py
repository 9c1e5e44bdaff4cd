"""What writers say of time: up to where their events go at a time of their own.

A writer notes a *mark*: "all events that I write from now on are of `timestamp_ms` or later", and
up to where its acknowledged events lie at that moment. Readers make watermarks of the marks of
all writers of a stream. Marks are news, not history: they are kept per incarnation of the stream,
the last one of each writer, for `MARK_MS_MAX` after they were noted, and may be lost.

Queries as in `queries.py`, also those that change something; all may be repeated.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import PagedQuery, Question
from anabranch.common.contracts.stream_queries import StreamQuery
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, SegmentOffset

WRITERS_MAX = 10_000
"""Of one stream, that have a mark."""
MARK_MS_MAX = 24 * 3600 * 1000
WRITER_ID_PATTERN = r"^[0-9a-f]{32}$"
TIMESTAMP_MS_MAX = 2**53 - 1
"""What every implementation counts exactly."""


class NoteTime(StreamQuery):
    """→ TimeNoted. The writer's time goes forward or stays, and so does its position in every
    segment that its mark has: what is earlier or lower is refused.

    `incarnation`: which life of the stream is meant (None: whichever). `positions`: per segment
    that the writer has written to, sorted by id, up to which byte its acknowledged events lie.
    Raises StreamNotFound, ScopeNotFound, InvalidRequest (fields {timestamp_ms, noted_ms}: the
    time goes back; {segment, offset, noted_offset}: the position does), Overloaded (too many
    writers), Unavailable.
    """

    incarnation: int | None = None
    writer_id: str = Field(pattern=WRITER_ID_PATTERN)
    timestamp_ms: int = Field(ge=0, le=TIMESTAMP_MS_MAX)
    positions: tuple[SegmentOffset, ...] = Field(default=(), max_length=SEGMENT_COUNT_MAX)


class TimeNoted(Contract):
    ok: Literal[True] = True
    incarnation: int


class RemoveWriter(StreamQuery):
    """→ WriterRemoved: the writer is gone for good and holds no watermark back. Idempotent.

    Raises StreamNotFound, ScopeNotFound, Unavailable.
    """

    incarnation: int | None = None
    writer_id: str = Field(pattern=WRITER_ID_PATTERN)


class WriterRemoved(Contract):
    """`was_known`: whether it had a mark."""

    ok: Literal[True] = True
    was_known: bool


class ListWriterMarks(PagedQuery):
    """→ WriterMarkList of a stream, sorted by writer id; a page token is the last one given.

    Raises StreamNotFound, ScopeNotFound, Unavailable.
    """

    scope: str
    stream: str


class WriterMark(Contract):
    """A writer's last mark. `noted_ms`: when it was noted, Unix time of the server that keeps it.

    A writer that is silent for long is left out by readers, so compare `noted_ms` with
    `now_ms` of the list, which is of the same clock.
    """

    writer_id: str
    timestamp_ms: int
    positions: tuple[SegmentOffset, ...] = ()
    noted_ms: int


class WriterMarkList(Contract):
    ok: Literal[True] = True
    incarnation: int
    now_ms: int
    marks: tuple[WriterMark, ...]
    next_page_token: str = ""
    """Empty on the last page."""


QUERIES: Mapping[str, Question] = {"list_writer_marks": Question(ListWriterMarks, WriterMarkList)}

ACTIONS: Mapping[str, Question] = {
    "note_time": Question(NoteTime, TimeNoted),
    "remove_writer": Question(RemoveWriter, WriterRemoved),
}
"""By name."""
