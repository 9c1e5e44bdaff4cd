"""What a request for records asks for: its query. Pure."""

from collections.abc import Iterable

from starlette.datastructures import QueryParams

from anabranch.client.reading.times.instants import looks_like_time, parse_time
from anabranch.client.topics.offsets import Offset
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.topics import PARTITION_COUNT_MAX
from anabranch.gateway.http.models.answers import INT63
from anabranch.gateway.http.routes.event_queries import (
    EVENTS_COUNT_DEFAULT,
    number_of,
)
from anabranch.gateway.topics.bodies import STREAMED, RecordEncoding
from anabranch.gateway.topics.reads import RECORDS_AHEAD, RecordRequest

START_LENGTH_MAX = 64


def page_of(topic: str, query: QueryParams, wait_s_max: float) -> RecordRequest:
    """The page that a query asks for. Raises InvalidRequest."""
    is_raw = encoding_of(query) is RecordEncoding.RAW
    text = query.get("max_records", "1" if is_raw else str(EVENTS_COUNT_DEFAULT))
    count = int(number_of(text, "max_records", 1))
    if is_raw and count != 1:
        raise InvalidRequest(
            "a raw answer holds a single record",
            remedy="omit max_records, or send another encoding",
            max_records=count,
        )
    wait_s = number_of(query.get("wait", "0"), "wait", 0, wait_s_max)
    start = start_of(query.get("from", "beginning"))
    return RecordRequest(topic, partition_in(query), start, count, wait_s)


def followed_of(
    topic: str, query: QueryParams, last_id: str
) -> tuple[RecordRequest, RecordEncoding]:
    """What a caller follows, and in which encoding; `last_id`: the id of its last message. Raises
    InvalidRequest."""
    start = start_of(last_id or query.get("from", "beginning"))
    request = RecordRequest(topic, partition_in(query), start, RECORDS_AHEAD)
    return request, encoding_of(query, STREAMED)


def start_of(text: str) -> Offset:
    """Where reading starts. Raises InvalidRequest."""
    if text == "beginning":
        return Offset.from_beginning()
    if text == "end":
        return Offset.from_end()
    if text.isdecimal() and text.isascii() and int(text[:20]) <= INT63:
        return Offset.absolute(int(text[:20]))
    if len(text) <= START_LENGTH_MAX and looks_like_time(text):
        return Offset.at(parse_time(text))
    raise InvalidRequest(
        "from is not a place in a partition",
        remedy="send beginning, end, a record number, or a time such as 2026-11-20T12:00",
        name="from",
    )


def partition_in(query: QueryParams) -> int | None:
    """The partition that a query names. Raises InvalidRequest."""
    text = query.get("partition")
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii()) or int(text[:9]) >= PARTITION_COUNT_MAX:
        raise InvalidRequest(
            "partition is not the index of a partition",
            remedy=f"send a number from 0 to {PARTITION_COUNT_MAX - 1}",
            name="partition",
        )
    return int(text)


def encoding_of(
    query: QueryParams, allowed: Iterable[RecordEncoding] = RecordEncoding
) -> RecordEncoding:
    """The encoding of records in an answer; `record` by default. Raises InvalidRequest."""
    name = query.get("encoding", RecordEncoding.RECORD)
    for encoding in allowed:
        if encoding == name:
            return encoding
    raise InvalidRequest(
        "records are not available in this encoding",
        remedy=f"send one of {', '.join(allowed)}",
        name="encoding",
    )


def takes_records(query: QueryParams) -> bool:
    """Whether a body holds records, and not only their values. Raises InvalidRequest."""
    name = query.get("encoding", "value")
    if name not in ("value", "record"):
        raise InvalidRequest(
            "a body holds values or records", remedy="send value or record", name="encoding"
        )
    return name == "record"
