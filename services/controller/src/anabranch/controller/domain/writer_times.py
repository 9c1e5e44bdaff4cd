"""Refusals of writers' time notes, and marks as they are kept. Pure."""

from typing import NamedTuple, NoReturn

from anabranch.common.contracts.writer_times import WriterMark
from anabranch.common.errors import InvalidRequest, Overloaded
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamCut


class Mark(NamedTuple):
    """A writer's last mark, noted at `noted_ms` of the clock that keeps it.

    `is_closed`: the writer was removed. Its mark counts until a watermark has reached it, and is
    listed no longer.
    """

    writer_id: str
    timestamp_ms: int
    positions: StreamCut
    noted_ms: int
    is_closed: bool = False


class KnownMarks(NamedTuple):
    """All marks of a stream. `generation`: as in `Noted`, when the last of them was read."""

    generation: int
    marks: tuple[Mark, ...]


class NotedStream(NamedTuple):
    """A life of a stream that has marks. `number` grows with each change of its marks."""

    stream: StreamRef
    incarnation: int
    number: int


class Noted(NamedTuple):
    """Streams whose marks have changed, those with lower numbers first.

    `generation`: of the numbers; they begin again when the index is lost. `last`: the highest
    number that was looked at. `has_more`: whether higher numbers follow.
    """

    generation: int
    last: int
    streams: tuple[NotedStream, ...]
    has_more: bool


class MarkPage(NamedTuple):
    """Marks by writer id, as of `now_ms` of the clock that noted them. `following`: the last
    examined writer id if more follow; else empty.
    """

    now_ms: int
    marks: tuple[WriterMark, ...]
    following: str


def refuse_earlier(writer_id: str, timestamp_ms: int, noted_ms: int) -> NoReturn:
    """Refuse a time before the writer's last one."""
    raise InvalidRequest(
        "the writer's time is lower than its last one",
        remedy="note increasing times, or use a new writer",
        writer=writer_id,
        timestamp_ms=timestamp_ms,
        noted_ms=noted_ms,
    )


def refuse_lower(writer_id: str, segment: int, offset: int, noted: int) -> NoReturn:
    """Refuse a position before the writer's last one in the segment, whatever the time."""
    raise InvalidRequest(
        "the writer's position is lower than its last one",
        remedy="note increasing positions of acknowledged events, or use a new writer",
        writer=writer_id,
        segment=segment,
        offset=offset,
        noted_offset=noted,
    )


def refuse_more_writers(stream: StreamRef, writers_max: int) -> NoReturn:
    """Refuse another writer: the number of marks per stream is bounded."""
    raise Overloaded(
        "too many writers of the stream note times",
        remedy="remove unused writers, or wait a day until they expire",
        stream=str(stream),
        limit=writers_max,
    )
