"""What a request for events asks for: its query, and the form that it accepts.

Two parameters decide about the form. `Accept` selects lines of JSON, bytes, or server-sent events;
`encoding` says how an event appears in it (see `Encoding`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from starlette.datastructures import QueryParams
from starlette.requests import Request

from anabranch.common.errors import InvalidRequest, NotAcceptable
from anabranch.gateway.events.bodies import BINARY, NDJSON
from anabranch.gateway.events.reads import ReadRequest
from anabranch.gateway.events.records import RECORD_ENCODINGS, Encoding
from anabranch.gateway.http.edge.event_stream import NDJSON_ACCEPTED, SSE

EVENTS_COUNT_DEFAULT = 1000
EVENTS_COUNT_LIMIT = 10_000
START_LENGTH_MAX = 65_536
QUERIES_KEPT = 128
"""The queries whose meaning is remembered: programs repeat them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page of events. `wait_s`: how long to wait for the first one. `framed`: bytes, each event
    after its size."""

    request: ReadRequest
    wait_s: float
    encoding: Encoding
    framed: bool


def query_of(request: Request) -> QueryParams:
    """The parameters of the request."""
    return _parsed(request.scope["query_string"])


@lru_cache(QUERIES_KEPT)
def _parsed(query_string: bytes) -> QueryParams:
    return QueryParams(query_string)


@lru_cache(QUERIES_KEPT)
def page_of(stream: str, query_string: bytes, form: str, wait_s_max: float) -> Wanted:
    """The page that a query asks for. Raises InvalidRequest, NotAcceptable."""
    query = _parsed(query_string)
    encoding = encoding_of(query)
    framed = form == BINARY and encoding is not Encoding.RAW
    if framed and encoding is not Encoding.JSON:
        raise NotAcceptable(
            "records are JSON, not bytes",
            remedy=f"accept {NDJSON}, or omit encoding",
            encoding=encoding.value,
        )
    events_max, window = _events_max(query, encoding), wants_window(query)
    return Wanted(
        ReadRequest(stream, start_of(query), events_max, window),
        number_of(query.get("wait", "0"), "wait", 0, wait_s_max),
        encoding,
        framed,
    )


def _events_max(query: QueryParams, encoding: Encoding) -> int:
    is_raw = encoding is Encoding.RAW
    text = query.get("max_events", "1" if is_raw else str(EVENTS_COUNT_DEFAULT))
    count = int(number_of(text, "max_events", 1))
    if is_raw and count != 1:
        raise InvalidRequest(
            "a raw answer holds a single event",
            remedy="omit max_events, or send another encoding",
            max_events=count,
        )
    return count


def encoding_of(query: QueryParams, allowed: Iterable[Encoding] = Encoding) -> Encoding:
    """The encoding of events; JSON by default. Raises InvalidRequest."""
    name = query.get("encoding", Encoding.JSON)
    for encoding in allowed:
        if encoding == name:
            return encoding
    raise InvalidRequest(
        "events are not available in this encoding",
        remedy=f"send one of {', '.join(allowed)}",
        name="encoding",
    )


def record_encoding_of(query: QueryParams) -> Encoding:
    """The encoding of the events of an unfinished answer. Raises InvalidRequest."""
    return encoding_of(query, RECORD_ENCODINGS)


def wants_window(query: QueryParams) -> bool:
    """Whether the window of event time is requested. Raises InvalidRequest."""
    return _is_true(query, "time_window")


def wants_transaction(query: QueryParams) -> bool:
    """Whether the events are one transaction. Raises InvalidRequest."""
    return _is_true(query, "transaction")


def _is_true(query: QueryParams, name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} is neither true nor false", name=name)
    return text == "true"


def number_of(text: str, name: str, least: int, most: float = EVENTS_COUNT_LIMIT) -> float:
    """A number in [least, most]; whole if `least` is 1. Raises InvalidRequest."""
    try:
        value = float(int(text)) if least else float(text)
    except (ValueError, OverflowError):
        value = -1.0
    if not least <= value <= most:  # also false for NaN
        raise InvalidRequest(
            f"{name} is out of range", remedy=f"send a number from {least} to {most:g}", name=name
        )
    return value


def start_of(query: QueryParams) -> str:
    """Raises InvalidRequest."""
    start = query.get("from", "head")
    if not start or len(start) > START_LENGTH_MAX:
        raise InvalidRequest(
            "from is empty or too long", remedy="send head, tail, a time or a position"
        )
    return start


def form_of(accept: str) -> str:
    """The first supported form in an Accept header, lines by default. Raises NotAcceptable."""
    if not accept.strip():
        return NDJSON
    for item in accept.split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in (BINARY, SSE):
            return media_type
        if media_type in NDJSON_ACCEPTED:
            return NDJSON
    raise NotAcceptable(
        "events are not available in this form", remedy=f"accept {NDJSON}, {BINARY} or {SSE}"
    )
