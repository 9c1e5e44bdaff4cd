"""Events as records of JSON, the same as those of `anabranch read --json`. Pure.

A record holds an event of any bytes with its key, time and place. Every event has one, so an event
that is not JSON neither ends nor fails an answer.
"""

import base64
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from anabranch.client import Event, EventBatch
from anabranch.gateway.events.bodies import ndjson_line

_ENCODER = msgspec.json.Encoder()


class Encoding(StrEnum):
    """The form of each event in an answer.

    `json`: an event that is JSON as it is, any other as its record. `record`: every event as its
    record. `base64`: the same, with every payload in base64. `raw`: the bytes of a single event.
    """

    JSON = "json"
    RECORD = "record"
    BASE64 = "base64"
    RAW = "raw"


RECORD_ENCODINGS = (Encoding.JSON, Encoding.RECORD, Encoding.BASE64)
"""The encodings of an unfinished answer, whose events are records."""


def record_of(event: Event, encoding: Encoding = Encoding.RECORD) -> dict[str, object]:
    """The event as data; a payload that is not UTF-8, or to be base64, is `payload_base64`."""
    return {
        **text_field("payload", event.payload, encoding),
        "key": event.key,
        "timestamp_ms": event.timestamp_ms,
        "segment": event.segment,
        "offset": event.offset,
        "index": event.event_index,
    }


def text_field(name: str, data: bytes, encoding: Encoding) -> dict[str, str]:
    """The bytes as a field; if they are not UTF-8, or to be base64, the name ends in `_base64`."""
    if encoding is not Encoding.BASE64:
        try:
            return {name: data.decode()}
        except UnicodeDecodeError:
            pass
    return {f"{name}_base64": base64.b64encode(data).decode()}


def lines_of(taken: Iterable[tuple[EventBatch, int]], encoding: Encoding) -> bytes:
    """One line per event: the first events of each batch. Raises CorruptBlock."""
    lines: list[bytes] = []
    for batch, count in taken:
        lines += _lines(batch, count, encoding)
    return b"".join(part for line in lines for part in (line, b"\n"))


def _lines(batch: EventBatch, count: int, encoding: Encoding) -> list[bytes]:
    payloads = batch.payloads[:count]
    lines = [ndjson_line(one) if encoding is Encoding.JSON else None for one in payloads]
    events: Iterable[Event] = batch.events_with(payloads) if None in lines else ()
    for number, event in enumerate(events):
        if lines[number] is None:
            lines[number] = _ENCODER.encode(record_of(event, encoding))
    return [line for line in lines if line is not None]
