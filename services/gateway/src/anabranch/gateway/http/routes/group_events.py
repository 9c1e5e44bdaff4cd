"""Events of a reader group as a stream of server-sent events or JSON lines.

The gateway joins the group on behalf of its caller. An event is processed when the caller
acknowledges it. The caller does so when it connects again with the event's id (`Last-Event-ID`,
which browsers send by themselves, or `?ack=`), or with a POST to the reader's `acks`. Named
messages carry everything else. `reader` comes first. `truncated`: events were deleted unread.
`unreadable`: the group's position in a segment is at no event. `problem`: the error that ends the
answer. `end`: the reason why the answer ends.
"""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.routing import Route

from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    InvalidPosition,
    InvalidRequest,
)
from anabranch.gateway.events.delivery import Delivered, parse_token
from anabranch.gateway.events.held_reader import Feed, FeedEnd
from anabranch.gateway.events.records import Encoding, record_of
from anabranch.gateway.http.edge.event_stream import (
    EventStream,
    Form,
    Message,
    wanted_form,
)
from anabranch.gateway.http.edge.problem import document_of
from anabranch.gateway.http.models.answers import group_at
from anabranch.gateway.http.routes.event_queries import record_encoding_of
from anabranch.gateway.http.routes.parts import Parts, parts_of

PATH = "/v1/scopes/{scope}/readergroups/{group}/events"
READER_ID_LENGTH_MAX = 255


def routes() -> list[Route]:
    route = Route(PATH, stream_events, methods=["GET"])
    assert route.methods is not None
    route.methods.discard("HEAD")  # a HEAD request must not join the group
    return [route]


async def stream_events(request: Request) -> EventStream:
    """200, then messages for as long as the caller listens; see `problem` for errors."""
    parts = parts_of(request)
    group = str(group_at(request.path_params["scope"], request.path_params["group"]))
    form = wanted_form(request.headers.get("accept", ""))
    encoding = record_encoding_of(request.query_params)
    reader_id = request.query_params.get("reader")
    if reader_id is not None and not 1 <= len(reader_id) <= READER_ID_LENGTH_MAX:
        raise InvalidRequest("the reader's id is empty or too long")
    said = request.headers.get("last-event-id") or request.query_params.get("ack")
    token = parse_token(said) if said else None
    feed, is_known = await parts.group_readers.connect(group, reader_id, token)

    async def closed() -> None:
        feed.close()

    return EventStream(
        _pieces(parts, feed, form, path=request.url.path, encoding=encoding, is_known=is_known),
        form,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=closed,
        headers={"reader-id": feed.held.reader_id},
    )


async def _pieces(
    parts: Parts, feed: Feed, form: Form, *, path: str, encoding: Encoding, is_known: bool
) -> AsyncGenerator[bytes, None]:
    held = feed.held
    try:
        yield form.opening(_reader(feed, is_known=is_known))
        while True:
            try:
                found = await feed.next()
            except (EventsTruncated, InvalidPosition) as error:
                name = "truncated" if isinstance(error, EventsTruncated) else "unreadable"
                yield form.of([Message(document_of(error, path), name=name)])
                continue
            if isinstance(found, FeedEnd):
                if found.reason == "end":
                    await parts.group_readers.drop(held)
                yield form.of([Message({"reason": found.reason}, name="end")])
                return
            parts.metrics.events_out += len(found)
            yield (form.of(_event(feed, event, encoding) for event in found) or form.sign_of_life)
    except AnabranchError as error:
        await parts.group_readers.drop(held)
        yield form.of([Message(document_of(error, path), name="problem")])


def _reader(feed: Feed, *, is_known: bool) -> Message:
    """The first message. Its id acknowledges nothing, and finds the reader again."""
    held, delivery = feed.held, feed.held.delivery
    told = {"group": held.group, "reader": held.reader_id, "resumed": is_known}
    return Message(told, delivery.token(delivery.acknowledged), "reader")


def _event(feed: Feed, delivered: Delivered, encoding: Encoding) -> Message:
    record = record_of(delivered.event, encoding)
    return Message(record, feed.held.delivery.token(delivered.number))
