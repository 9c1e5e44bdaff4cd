"""Events as the gateway takes and gives them. Pure.

A request has one form: what it says about all of its events together. Events are sent as lines
only if the gateway would store exactly their bytes under exactly their key; every other event
travels alone, as bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from anabranch.cli.records import Record
from anabranch.common.errors import InvalidRequest, UnsupportedProtocol

NDJSON = "application/x-ndjson"
BINARY = "application/octet-stream"
BATCH_EVENTS_MAX = 5_000
BATCH_SIZE_BYTES_MAX = 1024 * 1024
"""A batch ends before the event that would exceed it; a larger event is a batch of its own."""
SIZE_WIDTH_BYTES = 4

_JSON_SPACE = b" \t\r\n"


class Form(NamedTuple):
    """`key_field`: each event has its key in this field; else `routing_key` is that of all."""

    media_type: str
    routing_key: str | None = None
    key_field: str | None = None

    def headers(self) -> Mapping[str, str]:
        named = {"content-type": self.media_type}
        return named if self.routing_key is None else {**named, "routing-key": self.routing_key}

    def query(self) -> Mapping[str, str]:
        return {} if self.key_field is None else {"key_field": self.key_field}


def form_of(record: Record, key_field: str | None) -> Form:
    """The form in which an event is stored as it is. Raises InvalidRequest if there is none."""
    if _is_line(record.event):
        if key_field is not None and _key_in(record.event, key_field) == record.key:
            return Form(NDJSON, key_field=key_field)
        return Form(NDJSON, routing_key=_header_key(record.key))
    return Form(BINARY, routing_key=_header_key(record.key))


@dataclass(slots=True)
class Batch:
    """Events of one form that travel together."""

    form: Form
    events: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    def takes(self, form: Form, event: bytes) -> bool:
        """Whether one more event fits; the first one always does."""
        if not self.events:
            return form == self.form
        return (
            form == self.form
            and form.media_type == NDJSON
            and len(self.events) < BATCH_EVENTS_MAX
            and self.size_bytes + len(event) <= BATCH_SIZE_BYTES_MAX
        )

    def add(self, event: bytes) -> None:
        self.events.append(event)
        self.size_bytes += len(event) + 1

    def body(self) -> bytes:
        return b"\n".join(self.events)


def events_in(body: bytes) -> list[bytes]:
    """The events of an answer: each behind its size in four bytes, big-endian.

    Raises UnsupportedProtocol for anything else.
    """
    events: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + SIZE_WIDTH_BYTES
        at = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or at > len(body):
            raise UnsupportedProtocol("the gateway's answer ends within an event", size=len(body))
        events.append(body[start:at])
    return events


def _is_line(event: bytes) -> bool:
    """Whether the event is one line of JSON that the gateway leaves as it is."""
    if not event or event.strip(_JSON_SPACE) != event or b"\n" in event:
        return False
    try:
        event.decode()
        msgspec.json.decode(event, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class _NoKey:
    """Anything else in the field; equal to no key."""


def _key_in(event: bytes, key_field: str) -> str | _NoKey | None:
    """The key that the gateway takes from this field, if that is text or a number."""
    try:
        value = msgspec.json.decode(event)
    except (msgspec.DecodeError, RecursionError):
        return _NoKey()
    found = value.get(key_field) if isinstance(value, dict) else None
    match found:
        case None | "":
            return None
        case str() | int() | float() if not isinstance(found, bool):
            return str(found)
    return _NoKey()


def _header_key(key: str | None) -> str | None:
    """The key, if a header carries it unchanged. Raises InvalidRequest."""
    if key is not None and (key != key.strip() or not key.isprintable()):
        raise InvalidRequest(
            "over HTTP this routing key requires events that are lines of JSON",
            remedy="send the line as compact JSON, or write through NATS (--nats)",
            key=key,
        )
    return key
