"""What is refused of the times that writers note, and a page of what is known. Pure."""

from typing import NamedTuple, NoReturn

from anabranch.common.contracts.writer_times import WriterMark
from anabranch.common.errors import InvalidRequest, Overloaded
from anabranch.common.model.names import StreamRef


class MarkPage(NamedTuple):
    """Marks by writer id, as of `now_ms` of the clock that they were noted by. `following`: the
    last writer id that was looked at, where more follow; else empty."""

    now_ms: int
    marks: tuple[WriterMark, ...]
    following: str


def refuse_earlier(writer_id: str, timestamp_ms: int, noted_ms: int) -> NoReturn:
    """A writer's time goes forward or stays."""
    raise InvalidRequest(
        "the writer's time is lower than its last one",
        remedy="note increasing times, or use a new writer",
        writer=writer_id,
        timestamp_ms=timestamp_ms,
        noted_ms=noted_ms,
    )


def refuse_lower(writer_id: str, segment: int, offset: int, noted: int) -> NoReturn:
    """A writer's position in a segment goes forward or stays, whatever the time."""
    raise InvalidRequest(
        "the writer's position is lower than its last one",
        remedy="note increasing positions of acknowledged events, or use a new writer",
        writer=writer_id,
        segment=segment,
        offset=offset,
        noted_offset=noted,
    )


def refuse_more_writers(stream: StreamRef, writers_max: int) -> NoReturn:
    """What is kept of a stream is bounded."""
    raise Overloaded(
        "too many writers of the stream note times",
        remedy="remove unused writers, or wait a day until they expire",
        stream=str(stream),
        limit=writers_max,
    )
