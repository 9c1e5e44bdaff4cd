"""Records as bodies of requests, and as lines of answers. Pure.

A request has values in the forms of events (see `events.bodies`), or whole records: one JSON object
per line with `value` or `value_base64`, and perhaps `key`, `partition` and `timestamp_ms`.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from anabranch.client.topics.records import Record, RecordMetadata
from anabranch.common.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from anabranch.gateway.events.bodies import (
    JSON,
    NDJSON_TYPES,
    EventsBody,
    json_lines,
    ndjson_line,
)
from anabranch.gateway.events.records import Encoding, text_field

_ENCODER = msgspec.json.Encoder()


class RecordEncoding(StrEnum):
    """The form of each record. `record`: the value with key, place and time. `base64`: the same,
    with every value in base64. `json`: a value that is JSON as it is, any other as its record.
    `raw`: the bytes of a single value."""

    RECORD = "record"
    BASE64 = "base64"
    JSON = "json"
    RAW = "raw"


STREAMED = (RecordEncoding.RECORD, RecordEncoding.BASE64)
"""The encodings of an unfinished answer."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce; without a partition, its key decides."""

    value: bytes
    key: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class _Sent(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    value: str | None = None
    value_base64: str | None = None
    key: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


_sent = msgspec.json.Decoder(_Sent)


def records_of(body: EventsBody, partition: int | None) -> list[NewRecord]:
    """The values of a body as records, all of them for the partition if it is given."""
    keys: Sequence[str | None] = body.keys or [None] * len(body.payloads)
    pairs = zip(body.payloads, keys, strict=True)
    return [NewRecord(value, key, partition) for value, key in pairs]


def whole_records(
    body: bytes, media_type: str, partition: int | None, records_max: int
) -> list[NewRecord]:
    """The records of a body of records. Raises InvalidRequest, BodyTooLarge,
    UnsupportedMediaType."""
    if media_type == JSON:
        lines = [body]
    elif media_type in NDJSON_TYPES:
        lines = json_lines(body)
    else:
        raise UnsupportedMediaType(
            "records are JSON", remedy="send application/json or application/x-ndjson",
            media_type=media_type,
        )  # fmt: skip
    if not lines:
        raise InvalidRequest("the body contains no record", remedy="send one record per line")
    if len(lines) > records_max:
        raise BodyTooLarge("too many records in one body", records=len(lines), limit=records_max)
    return [_record(line, number, partition) for number, line in enumerate(lines, 1)]


def _record(line: bytes, number: int, partition: int | None) -> NewRecord:
    try:
        sent = _sent.decode(line)
        value = None if sent.value is None else sent.value.encode()
        if sent.value_base64 is not None:
            value = base64.b64decode(sent.value_base64, validate=True) if value is None else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequest("a record is malformed", line=number, reason=str(error)) from error
    if value is None:
        raise InvalidRequest(
            "a record has one value", remedy="send value or value_base64", line=number
        )
    chosen = partition if sent.partition is None else sent.partition
    return NewRecord(value, sent.key, chosen, sent.timestamp_ms)


def placed(topic: str, places: Sequence[RecordMetadata]) -> bytes:
    """The answer to a request that produced records, in their order."""
    found = [{"partition": one.partition, "offset": one.offset} for one in places]
    return _ENCODER.encode({"topic": topic, "records": found})


def record_of(record: Record, encoding: RecordEncoding) -> dict[str, Any]:
    """The record as data; a value that is not UTF-8, or to be base64, is `value_base64`."""
    of_value = Encoding.BASE64 if encoding is RecordEncoding.BASE64 else Encoding.RECORD
    return {
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        **text_field("value", record.value, of_value),
        "timestamp_ms": record.timestamp_ms,
    }


def lines_of(records: Iterable[Record], encoding: RecordEncoding) -> bytes:
    """One line per record."""
    lines: list[bytes] = []
    for record in records:
        plain = ndjson_line(record.value) if encoding is RecordEncoding.JSON else None
        lines += (_ENCODER.encode(record_of(record, encoding)) if plain is None else plain, b"\n")
    return b"".join(lines)
