"""The entries of key-value tables in the OpenAPI document."""

from typing import Any

from anabranch.common.model.table import TTL_MS_MAX
from anabranch.gateway.events.bodies import BINARY, JSON, NDJSON
from anabranch.gateway.http.edge.event_stream import SSE
from anabranch.gateway.http.routes import entries, entry, entry_requests, table_changes

Document = dict[str, Any]

_TEXT: Document = {"type": "string"}
_FLAG: Document = {"type": "boolean"}
_COUNT: Document = {"type": "integer"}
_BYTES: Document = {"schema": {"type": "string", "format": "binary"}}
_LINES: Document = {"schema": _TEXT}
_ETAG: Document = {"ETag": {"schema": _TEXT}}
_EXPIRY: Document = {"Expires-Ms": {"schema": _COUNT}}
_KEY: Document = {
    "key": _TEXT,
    "key_base64": _TEXT,
    "secondary_key": _TEXT,
    "secondary_key_base64": _TEXT,
}
_ENTRY: Document = {
    "type": "object",
    "properties": {
        **_KEY,
        "value": _TEXT,
        "value_base64": _TEXT,
        "version": _TEXT,
        "expires_ms": _COUNT,
    },
}
_UPDATE: Document = {
    "type": "object",
    "required": ["op"],
    "properties": {
        "op": {"type": "string", "enum": ["put", "insert", "replace", "remove"]},
        **_ENTRY["properties"],
    },
}


def parameter(name: str, where: str, schema: Document) -> Document:
    """An optional parameter of a request."""
    return {"name": name, "in": where, "required": False, "schema": schema}


def entry_paths() -> dict[str, Document]:
    """The paths of entries, by their templates."""
    return {
        entry.PATH: {"get": _get_entry(), "put": _put_entry(), "delete": _delete_entry()},
        entries.PATH: {"get": _scan(), "post": _put_entries()},
        entries.BATCH_PATH: {"post": _batch()},
        entries.LOOK_UP_PATH: {"post": _look_up()},
        table_changes.PATH: {"get": _follow()},
    }


def _get_entry() -> Document:
    return {
        **_about("The value of an entry, with its version as ETag"),
        "parameters": [
            _key_encoding(),
            parameter("If-Match", "header", _TEXT),
            parameter("If-None-Match", "header", _TEXT),
        ],
        "responses": {
            "200": {
                "description": "The value, as it was put",
                "headers": {**_ETAG, **_EXPIRY},
                "content": {BINARY: _BYTES},
            },
            "304": {"description": "The entry has this version", "headers": {**_ETAG, **_EXPIRY}},
        },
    }


def _put_entry() -> Document:
    return {
        **_about("Put the body as the value, under the conditions of If-Match and If-None-Match"),
        "parameters": [
            _key_encoding(),
            parameter("If-Match", "header", _TEXT),
            parameter("If-None-Match", "header", {"type": "string", "enum": ["*"]}),
            *_update_parameters(),
        ],
        "requestBody": {"content": {BINARY: _BYTES}},
        "responses": {
            "201": {"description": "The entry was inserted", "headers": _ETAG},
            "204": {"description": "The entry was put or replaced", "headers": _ETAG},
        },
    }


def _delete_entry() -> Document:
    return {
        **_about("Remove an entry; without If-Match also one that does not exist"),
        "parameters": [
            _key_encoding(),
            parameter("If-Match", "header", _TEXT),
            parameter("Idempotency-Key", "header", {**_TEXT, "maxLength": 255}),
        ],
        "responses": {"204": {"description": "The key has no entry"}},
    }


def _scan() -> Document:
    most = entry_requests.ENTRIES_COUNT_LIMIT
    page = _object(entries={"type": "array", "items": _ENTRY}, next_page_token=_TEXT)
    return {
        **_about("Entries in the order of their keys: a page as JSON, or all as lines of JSON"),
        "parameters": [
            *[parameter(name, "query", _TEXT) for name in ("start", "end", "prefix", "primary")],
            _key_encoding(),
            parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": most}),
            parameter("page_token", "query", _TEXT),
            parameter("values", "query", {**_FLAG, "default": True}),
            _encoding(),
        ],
        "responses": {
            "200": {
                "description": "A page, or a line for each entry of the range",
                "content": {JSON: {"schema": page}, NDJSON: _LINES},
            }
        },
    }


def _put_entries() -> Document:
    return {
        **_about("Put many entries; the answer comes when all are durable"),
        "parameters": [parameter("key_field", "query", _TEXT), *_update_parameters()],
        "requestBody": {"required": True, "content": {NDJSON: _LINES}},
        "responses": _answer("All entries are durable", table=_TEXT, entries=_COUNT),
    }


def _batch() -> Document:
    updates = {"type": "array", "items": _UPDATE, "minItems": 1}
    return {
        **_about("Perform all updates, whose keys share a primary key, or none"),
        "parameters": _update_parameters(),
        "requestBody": {"required": True, "content": {JSON: {"schema": _object(updates=updates)}}},
        "responses": _answer("All updates are durable", versions={"type": "array", "items": _TEXT}),
    }


def _look_up() -> Document:
    key: Document = {"oneOf": [_TEXT, {"type": "object", "properties": _KEY}]}
    keys = _object(keys={"type": "array", "items": key})
    found: Document = {"type": "array", "items": {"oneOf": [_ENTRY, {"type": "null"}]}}
    return {
        **_about("The entries of many keys, in their order; null for a key without an entry"),
        "parameters": [_encoding()],
        "requestBody": {"required": True, "content": {JSON: {"schema": keys}}},
        "responses": _answer(
            "Entries of the first keys; ask again for those that remain",
            entries=found, remaining=_COUNT,
        ),
    }  # fmt: skip


def _follow() -> Document:
    return {
        **_about("The changes of a table as they happen; continue at the id of a change"),
        "parameters": [
            parameter("from", "query", {**_TEXT, "default": "snapshot"}),
            parameter("Last-Event-ID", "header", _TEXT),
            _encoding(),
        ],
        "responses": {
            "200": {
                "description": "Messages: a position, then changes",
                "content": {SSE: _LINES, NDJSON: _LINES},
            }
        },
    }


def _about(summary: str) -> Document:
    return {"tags": ["tables"], "summary": summary}


def _object(**properties: Document) -> Document:
    return {"type": "object", "required": list(properties), "properties": properties}


def _answer(description: str, **properties: Document) -> Document:
    content = {JSON: {"schema": _object(**properties)}}
    return {"200": {"description": description, "content": content}}


def _update_parameters() -> list[Document]:
    ttl_ms = {"type": "integer", "minimum": 0, "maximum": TTL_MS_MAX}
    return [
        parameter("ttl_ms", "query", ttl_ms),
        parameter("Idempotency-Key", "header", {**_TEXT, "maxLength": 255}),
    ]


def _key_encoding() -> Document:
    names = list(entry_requests.KEY_ENCODINGS)
    return parameter("key_encoding", "query", {**_TEXT, "enum": names, "default": "text"})


def _encoding() -> Document:
    return parameter(
        "encoding", "query", {**_TEXT, "enum": ["record", "base64"], "default": "record"}
    )
