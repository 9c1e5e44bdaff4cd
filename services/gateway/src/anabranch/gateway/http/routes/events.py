"""Append and read events: plain routes without a model per event.

POST answers when every event of the body is durable. GET answers with events and, in the header
`Next-Position`, with the position to continue from: as lines, after their sizes, or a single one as
its bytes. With server-sent events, the ids of the messages are these positions. With
`time_window=true`, headers or `window` messages give the window of event time.
"""

import base64
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import lru_cache, partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.client import Event, TimeWindow
from anabranch.client.transactions.part import PartReport
from anabranch.common.errors import AnabranchError, EventsTruncated
from anabranch.gateway.bounds.changes import Idempotency
from anabranch.gateway.events.bodies import (
    BINARY,
    JSON,
    NDJSON,
    EventsBody,
    Keys,
    binary_frames,
    parse_events,
)
from anabranch.gateway.events.following import Following
from anabranch.gateway.events.reads import ReadEvents
from anabranch.gateway.events.records import Encoding, lines_of, record_of
from anabranch.gateway.http.edge.event_stream import SSE, EventStream, Form, Message
from anabranch.gateway.http.edge.intake import body_of
from anabranch.gateway.http.edge.problem import document_of
from anabranch.gateway.http.models.answers import stream_at
from anabranch.gateway.http.routes.event_queries import (
    Wanted,
    form_of,
    page_of,
    query_of,
    record_encoding_of,
    start_of,
    wants_transaction,
    wants_window,
)
from anabranch.gateway.http.routes.parts import Parts, parts_of
from anabranch.gateway.http.routes.plain_requests import (
    header,
    idempotency_of,
    media_type_of,
    optional_header,
)

PATH = "/v1/scopes/{scope}/streams/{stream}/events"
ANSWERS_KEPT = 1024


def routes() -> list[Route]:
    return [Route(PATH, events, methods=["GET", "POST"])]


async def events(request: Request) -> Response | EventStream:
    """POST appends, GET reads."""
    if request.method == "POST":
        return await append_events(request)
    return await read_events(request)


async def append_events(request: Request) -> Response:
    """200 {events, stream} when all are durable; see `problem` for errors. With `transaction=true`
    all are one transaction, which is committed."""
    stream = _stream(request)
    if wants_transaction(query_of(request)):
        count = await transact(stream, request)
    else:
        count, _ = await append_to(stream, request)
    return _stored(stream, count)


@lru_cache(ANSWERS_KEPT)
def _stored(stream: str, count: int) -> Response:
    return Response(msgspec.json.encode({"stream": stream, "events": count}), media_type=JSON)


async def append_to(destination: str, request: Request) -> tuple[int, PartReport | None]:
    """Store a request's events; returns their number, and the report of a part's writer."""
    parts = parts_of(request)
    body, idempotency = _given(request)
    report = await parts.appends.append(destination, body, idempotency)
    parts.metrics.events_in += len(body.payloads)
    return len(body.payloads), report


async def transact(stream: str, request: Request) -> int:
    """Store a request's events as one transaction; returns their number."""
    parts = parts_of(request)
    body, idempotency = _given(request, "transaction")
    await parts.appends.transact(stream, body, idempotency)
    parts.metrics.events_in += len(body.payloads)
    return len(body.payloads)


def _given(request: Request, *told: str) -> tuple[EventsBody, Idempotency | None]:
    """The events of a request, and its idempotency; `told` are further values of the request."""
    media_type = media_type_of(request, JSON)
    keys = Keys(optional_header(request, "routing-key"), query_of(request).get("key_field"))
    payload = body_of(request.scope)
    body = parse_events(payload, media_type, keys, parts_of(request).settings.body_events_max)
    values = [media_type, keys.routing_key, keys.field, *told]
    return body, idempotency_of(request, values, payload)


async def read_events(request: Request) -> Response | EventStream:
    """200 with the events, if any; 204 without the one raw event; see `problem` for errors."""
    parts = parts_of(request)
    stream = _stream(request)
    form = form_of(header(request, "accept"))
    if form == SSE:
        return await follow_events(request, parts, stream)
    query = request.scope["query_string"]
    wanted = page_of(stream, query, form, parts.settings.wait_s_max)
    found = await parts.reads.read(wanted.request, wanted.wait_s)
    parts.metrics.events_out += len(found.payloads)
    return found.once((wanted.encoding, wanted.framed), partial(_answer, wanted))


def _answer(wanted: Wanted, found: ReadEvents) -> Response:
    headers = _headers(found, wanted.request.stream)
    if wanted.encoding is Encoding.RAW:
        return _raw(found, headers)
    if wanted.framed:
        return Response(binary_frames(found.payloads), headers=headers, media_type=BINARY)
    lines = lines_of(found.taken, wanted.encoding)
    return Response(lines, headers=headers, media_type=NDJSON)


def _headers(found: ReadEvents, stream: str) -> dict[str, str]:
    """The headers of a page: the next position, the window and the end, as far as known."""
    headers = {"next-position": found.next_position(stream), "cache-control": "no-store"}
    headers |= {name: str(at_ms) for name, at_ms in _bounds(found.window) if at_ms is not None}
    if found.ended:
        headers["end-of-stream"] = "true"
    return headers


def _raw(found: ReadEvents, headers: dict[str, str]) -> Response:
    """The bytes of the one event, with its place, time and key as headers; 204 if there is none."""
    event = found.first()
    if event is None:
        return Response(status_code=204, headers=headers)
    headers |= {
        "event-pointer": event.pointer,
        "timestamp-ms": str(event.timestamp_ms),
        "x-content-type-options": "nosniff",
    }
    if event.key is not None:
        headers |= key_header(event.key)
    return Response(event.payload, headers=headers, media_type=BINARY)


def key_header(key: str) -> dict[str, str]:
    """The key as UTF-8, as a request sends it; in base64 if a header cannot hold its characters."""
    if key.isprintable() and key == key.strip():
        return {"routing-key": key.encode().decode("latin-1")}
    return {"routing-key-base64": base64.b64encode(key.encode()).decode()}


async def follow_events(request: Request, parts: Parts, stream: str) -> EventStream:
    """200, then server-sent events from a position, for as long as the caller listens."""
    query = query_of(request)
    start = request.headers.get("last-event-id") or start_of(query)
    encoding, with_windows = record_encoding_of(query), wants_window(query)
    following = await parts.reads.follow(stream, start)
    form, path = Form(sse=True), request.url.path
    return EventStream(
        _followed(parts, following, form, path=path, encoding=encoding, with_windows=with_windows),
        form,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=following.close,
    )


async def _followed(
    parts: Parts,
    following: Following,
    form: Form,
    *,
    path: str,
    encoding: Encoding,
    with_windows: bool,
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
            yield (form.of(_messages(found, encoding)) or form.sign_of_life)
        yield form.of([Message({"reason": "stopping"}, name="end")])
    except AnabranchError as error:
        yield form.of([Message(document_of(error, path), name="problem")])


def _messages(found: Iterable[tuple[str, Event]], encoding: Encoding) -> Iterator[Message]:
    for token, event in found:
        yield Message(record_of(event, encoding), token)


def _window_message(window: TimeWindow) -> Message:
    """The window of the events that follow it."""
    return Message({"lowerMs": window.lower_ms, "upperMs": window.upper_ms}, name="window")


def _stream(request: Request) -> str:
    return str(stream_at(request.path_params["scope"], request.path_params["stream"]))


def _bounds(window: TimeWindow) -> tuple[tuple[str, int | None], ...]:
    """The window as headers."""
    return (("time-lower-ms", window.lower_ms), ("time-upper-ms", window.upper_ms))
