"""The records of topics in the OpenAPI document."""

from typing import Any

from anabranch.common.model.topics import PARTITION_COUNT_MAX
from anabranch.gateway.events.bodies import BINARY, JSON, LINES, NDJSON
from anabranch.gateway.http.edge.event_stream import SSE
from anabranch.gateway.http.openapi_entries import parameter
from anabranch.gateway.http.routes import event_queries, records
from anabranch.gateway.topics.bodies import RecordEncoding

Document = dict[str, Any]

_TEXT: Document = {"type": "string"}
_COUNT: Document = {"type": "integer"}
_LINES: Document = {"schema": _TEXT}
_BYTES: Document = {"schema": {"type": "string", "format": "binary"}}
_PARTITION: Document = {"type": "integer", "minimum": 0, "maximum": PARTITION_COUNT_MAX - 1}
_NEXT: Document = {"Next-Offset": {"schema": _COUNT}}


def record_paths() -> dict[str, Document]:
    """The path of records, by its template."""
    return {records.PATH: {"post": _produce(), "get": _read()}}


def _produce() -> Document:
    place = _object(partition=_COUNT, offset=_COUNT)
    answer = _object(topic=_TEXT, records={"type": "array", "items": place})
    return {
        "tags": ["topics"],
        "summary": "Produce records; the answer comes when all are durable, with their places",
        "parameters": [
            parameter("partition", "query", _PARTITION),
            parameter("key_field", "query", _TEXT),
            parameter(
                "encoding", "query", {**_TEXT, "enum": ["value", "record"], "default": "value"}
            ),
            parameter("Routing-Key", "header", _TEXT),
            parameter("Idempotency-Key", "header", {**_TEXT, "maxLength": 255}),
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {}},
                NDJSON: _LINES,
                LINES: {"schema": {**_TEXT, "minLength": 1}},
                BINARY: _BYTES,
            },
        },
        "responses": {
            "200": {
                "description": "All records are durable; their places, in their order",
                "content": {JSON: {"schema": answer}},
            }
        },
    }


def _read() -> Document:
    most = event_queries.EVENTS_COUNT_LIMIT
    encodings = [str(each) for each in RecordEncoding]
    raw: Document = {
        "Partition": {"schema": _COUNT},
        "Offset": {"schema": _COUNT},
        "Timestamp-Ms": {"schema": _COUNT},
        "Routing-Key": {"schema": _TEXT},
        "Routing-Key-Base64": {"schema": _TEXT},
    }
    return {
        "tags": ["topics"],
        "summary": "Read a partition from a record number on; continue at Next-Offset",
        "parameters": [
            parameter("partition", "query", _PARTITION),
            parameter("from", "query", {**_TEXT, "default": "beginning"}),
            parameter("max_records", "query", {"type": "integer", "minimum": 1, "maximum": most}),
            parameter("wait", "query", {"type": "number", "minimum": 0}),
            parameter("encoding", "query", {**_TEXT, "enum": encodings, "default": encodings[0]}),
            parameter("Last-Event-ID", "header", _TEXT),
        ],
        "responses": {
            "200": {
                "description": "Records, possibly none; a raw one has its place, time and key",
                "headers": {**_NEXT, **raw},
                "content": {NDJSON: _LINES, BINARY: _BYTES, SSE: _LINES},
            },
            "204": {"description": "No raw record yet", "headers": _NEXT},
        },
    }


def _object(**properties: Document) -> Document:
    return {"type": "object", "required": list(properties), "properties": properties}
