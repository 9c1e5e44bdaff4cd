"""Events as bodies of requests and answers. Pure.

A request has one JSON event, one JSON event per line, one event of any text per line, or one event
of arbitrary bytes. JSON is validated and stored as it was sent. An answer has one JSON event per
line, or each event after its size as four bytes (big-endian).
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from anabranch.common.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType

JSON = "application/json"
NDJSON = "application/x-ndjson"
LINES = "text/plain"
BINARY = "application/octet-stream"
NDJSON_TYPES = (NDJSON, "application/ndjson", "application/jsonl")
ACCEPTED = f"{JSON}, {NDJSON}, {LINES} or {BINARY}"

_JSON_SPACE = b" \t\r\n"


class EventsBody(Struct, frozen=True):
    """Events to store together; `keys`, if any, has one item per payload."""

    payloads: list[bytes]
    keys: list[str | None] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.payloads))


class Keys(Struct, frozen=True):
    """The source of routing keys: one key for all events, or a field of each event. Not both."""

    routing_key: str | None = None
    field: str | None = None

    def __post_init__(self) -> None:
        if self.routing_key is not None and self.field is not None:
            raise InvalidRequest(
                "the request has two sources of routing keys",
                remedy="send Routing-Key or key_field, not both",
            )


def parse_events(body: bytes, media_type: str, keys: Keys, events_max: int) -> EventsBody:
    """The events of a body. Raises InvalidRequest, BodyTooLarge, UnsupportedMediaType."""
    match media_type:
        case "application/json":
            lines = [body.strip(_JSON_SPACE)]
        case _ if media_type in NDJSON_TYPES:
            lines = json_lines(body)
        case "text/plain" | "application/octet-stream":
            return _without_fields(body, media_type, keys, events_max)
        case _:
            raise UnsupportedMediaType(
                "events in this form are not accepted",
                remedy=f"send {ACCEPTED}",
                media_type=media_type,
            )
    _check_count(len(lines), events_max)
    found = [_key_in(line, number, keys.field) for number, line in enumerate(lines, 1)]
    return EventsBody(lines, found if keys.field is not None else _same_key(keys, len(lines)))


def _without_fields(body: bytes, media_type: str, keys: Keys, events_max: int) -> EventsBody:
    """The lines of a text without their ends, which are ``\\n``, or the body as one event."""
    if keys.field is not None:
        raise InvalidRequest(
            "an event of plain text or bytes has no fields",
            remedy="send the key in the header Routing-Key",
        )
    if media_type == BINARY:
        return EventsBody([body], _same_key(keys, 1))
    text = body.removesuffix(b"\n")
    count = text.count(b"\n") + 1 if body else 0
    _check_count(count, events_max)
    return EventsBody(text.split(b"\n"), _same_key(keys, count))


def _check_count(count: int, events_max: int) -> None:
    """Raises InvalidRequest, BodyTooLarge."""
    if not count:
        raise InvalidRequest("the body contains no event", remedy="send one event per line")
    if count > events_max:
        raise BodyTooLarge("too many events in one body", events=count, limit=events_max)


def json_lines(body: bytes) -> list[bytes]:
    """The lines of NDJSON without empty ones, and without the spaces around them."""
    return [line for line in map(_stripped, body.split(b"\n")) if line]


def ndjson_line(payload: bytes) -> bytes | None:
    """The event as one line without its newline; None if it is not JSON."""
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
        payload.decode()
        if b"\n" in payload or b"\r" in payload:
            return msgspec.json.format(payload, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return payload


def binary_frames(payloads: Sequence[bytes]) -> bytes:
    """Each payload after its size in four bytes, big-endian."""
    return b"".join(
        part for payload in payloads for part in (len(payload).to_bytes(4, "big"), payload)
    )


def _stripped(line: bytes) -> bytes:
    return line.strip(_JSON_SPACE)


def _same_key(keys: Keys, count: int) -> list[str | None] | None:
    return None if keys.routing_key is None else [keys.routing_key] * count


def _key_in(line: bytes, number: int, field: str | None) -> str | None:
    """The line's routing key, if `field` is given. Raises InvalidRequest if it is not JSON."""
    try:
        line.decode()
        if field is None:
            msgspec.json.decode(line, type=msgspec.Raw)
            return None
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("an event is not JSON", line=number, reason=str(error)) from error
    found = value.get(field) if isinstance(value, dict) else None
    match found:
        case None | "":
            return None
        case bool():
            return "true" if found else "false"
        case str() | int() | float():
            return str(found)
    raise InvalidRequest("a key field is neither text nor a number", line=number, key_field=field)
