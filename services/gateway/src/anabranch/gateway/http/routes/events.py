"""Append and read events: plain routes without a model per event.

POST answers when every event of the body is durable. GET answers with events and, in the header
`Next-Position`, with the position to continue from. With server-sent events, the ids of the
messages are these positions. With `time_window=true`, headers or `window` messages give the window
of event time.
"""

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.client import TimeWindow
from anabranch.client.transactions.part import PartReport
from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    InvalidRequest,
    NotAcceptable,
)
from anabranch.gateway.events.appends import Idempotency
from anabranch.gateway.events.bodies import (
    BINARY,
    JSON,
    NDJSON,
    Keys,
    binary_frames,
    ndjson_line,
    parse_events,
)
from anabranch.gateway.events.following import Following
from anabranch.gateway.events.reads import ReadEvents, ReadRequest
from anabranch.gateway.http.edge.event_stream import (
    NDJSON_ACCEPTED,
    SSE,
    EventStream,
    Form,
    Message,
    fields_of,
)
from anabranch.gateway.http.edge.problem import document_of
from anabranch.gateway.http.models.answers import stream_at
from anabranch.gateway.http.routes.parts import Parts, parts_of

PATH = "/v1/scopes/{scope}/streams/{stream}/events"
EVENTS_COUNT_DEFAULT = 1000
EVENTS_COUNT_LIMIT = 10_000
IDEMPOTENCY_KEY_LENGTH_MAX = 255
START_LENGTH_MAX = 65_536


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A GET's query."""

    start: str
    events_max: int
    wait_s: float
    binary: bool
    window: bool


def routes() -> list[Route]:
    return [Route(PATH, events, methods=["GET", "POST"])]


async def events(request: Request) -> Response | EventStream:
    """POST appends, GET reads."""
    if request.method == "POST":
        return await append_events(request)
    return await read_events(request)


async def append_events(request: Request) -> Response:
    """200 {events, stream} when all are durable; see `problem` for errors."""
    stream = _stream(request)
    count, _ = await append_to(stream, request)
    answer = {"stream": stream, "events": count}
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def append_to(destination: str, request: Request) -> tuple[int, PartReport | None]:
    """Store a request's events; returns their number, and the report of a part's writer."""
    parts = parts_of(request)
    media_type = _header(request, "content-type").partition(";")[0].strip().lower() or JSON
    keys = Keys(_optional(request, "routing-key"), request.query_params.get("key_field"))
    payload = await request.body()
    body = parse_events(payload, media_type, keys, parts.settings.body_events_max)
    idempotency = _idempotency(request, media_type, keys, payload)
    report = await parts.appends.append(destination, body, idempotency)
    parts.metrics.events_in += len(body.payloads)
    return len(body.payloads), report


async def read_events(request: Request) -> Response | EventStream:
    """200 with the events, if any; see `problem` for errors."""
    parts = parts_of(request)
    stream = _stream(request)
    if _wants(SSE, request):
        return await follow_events(request, parts, stream)
    wanted = _wanted(request, parts)
    found = await parts.reads.read(
        ReadRequest(stream, wanted.start, wanted.events_max, wanted.wait_s, wanted.window)
    )
    body = binary_frames(found.payloads) if wanted.binary else _lines(found, stream)
    parts.metrics.events_out += len(found.payloads)
    headers = {"next-position": found.next_position(stream), "cache-control": "no-store"}
    headers |= {name: str(at_ms) for name, at_ms in _bounds(found.window) if at_ms is not None}
    if found.ended:
        headers["end-of-stream"] = "true"
    return Response(body, headers=headers, media_type=BINARY if wanted.binary else NDJSON)


async def follow_events(request: Request, parts: Parts, stream: str) -> EventStream:
    """200, then server-sent events from a position, for as long as the caller listens."""
    start = request.headers.get("last-event-id") or _from(request)
    with_windows = _wants_window(request)
    following = await parts.reads.follow(stream, start)
    form = Form(sse=True)
    return EventStream(
        _followed(parts, following, form, request.url.path, with_windows=with_windows),
        form,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=following.close,
    )


async def _followed(
    parts: Parts, following: Following, form: Form, path: str, *, with_windows: bool
) -> AsyncGenerator[bytes, None]:
    position = following.position()
    yield form.opening(Message({"position": position}, position, "position"))
    window: TimeWindow | None = None
    try:
        while not parts.reads.stopping():
            if with_windows and (present := await following.time_window()) != window:
                window = present
                yield form.of([_window_message(window)])
            try:
                found = await following.next(parts.settings.heartbeat_s, parts.reads.stopping)
            except EventsTruncated as error:
                yield form.of([Message(document_of(error, path), name="truncated")])
                continue
            if found is None:
                yield form.of([Message({"reason": "end"}, name="end")])
                return
            parts.metrics.events_out += len(found)
            yield (
                form.of(Message(fields_of(event), token) for token, event in found)
                or form.sign_of_life
            )
        yield form.of([Message({"reason": "stopping"}, name="end")])
    except AnabranchError as error:
        yield form.of([Message(document_of(error, path), name="problem")])


def _window_message(window: TimeWindow) -> Message:
    """The window of the events that follow it."""
    return Message({"lowerMs": window.lower_ms, "upperMs": window.upper_ms}, name="window")


def _lines(found: ReadEvents, stream: str) -> bytes:
    """The events as lines, up to the first event that is not JSON.

    Raises NotAcceptable if the very first event is not JSON.
    """
    lines: list[bytes] = []
    for payload in found.payloads:
        line = ndjson_line(payload)
        if line is None:
            break
        lines.append(line)
    if len(lines) < len(found.payloads):
        if not lines:
            raise NotAcceptable("the next event is not JSON", stream=stream)
        found.keep_first(len(lines))
    return b"".join(part for line in lines for part in (line, b"\n"))


def _stream(request: Request) -> str:
    return str(stream_at(request.path_params["scope"], request.path_params["stream"]))


def _wanted(request: Request, parts: Parts) -> _Wanted:
    query = request.query_params
    return _Wanted(
        start=_from(request),
        events_max=int(
            _number(query.get("max_events", str(EVENTS_COUNT_DEFAULT)), "max_events", 1)
        ),
        wait_s=_number(query.get("wait", "0"), "wait", 0, parts.settings.wait_s_max),
        binary=_wants(BINARY, request),
        window=_wants_window(request),
    )


def _wants_window(request: Request) -> bool:
    """Whether the window of event time is requested. Raises InvalidRequest."""
    text = request.query_params.get("time_window", "false")
    if text not in ("true", "false"):
        raise InvalidRequest("time_window is neither true nor false", name="time_window")
    return text == "true"


def _bounds(window: TimeWindow) -> tuple[tuple[str, int | None], ...]:
    """The window as headers."""
    return (("time-lower-ms", window.lower_ms), ("time-upper-ms", window.upper_ms))


def _number(text: str, name: str, least: int, most: float = EVENTS_COUNT_LIMIT) -> float:
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


def _from(request: Request) -> str:
    start = request.query_params.get("from", "head")
    if not start or len(start) > START_LENGTH_MAX:
        raise InvalidRequest(
            "from is empty or too long", remedy="send head, tail, a time or a position"
        )
    return start


def _wants(form: str, request: Request) -> bool:
    """Whether this is the first supported form in the Accept header. Raises NotAcceptable."""
    accept = _header(request, "accept")
    if not accept.strip():
        return form == NDJSON
    for item in accept.split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in (BINARY, SSE):
            return form == media_type
        if media_type in NDJSON_ACCEPTED:
            return form == NDJSON
    raise NotAcceptable(
        "events are not available in this form", remedy=f"accept {NDJSON}, {BINARY} or {SSE}"
    )


def _idempotency(
    request: Request, media_type: str, keys: Keys, payload: bytes
) -> Idempotency | None:
    key = _optional(request, "idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        raise InvalidRequest(
            "the Idempotency-Key is empty or too long",
            remedy=f"send 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} characters",
        )
    digest = hashlib.sha256(msgspec.json.encode([media_type, keys.routing_key, keys.field]))
    digest.update(payload)
    return Idempotency(key, digest.digest())


def _optional(request: Request, name: str) -> str | None:
    return _header(request, name) if name in request.headers else None


def _header(request: Request, name: str) -> str:
    """A header as UTF-8 text; empty if absent. Raises InvalidRequest."""
    try:
        return request.headers.get(name, "").encode("latin-1").decode()
    except UnicodeError as error:
        raise InvalidRequest("a header is not UTF-8", header=name) from error
