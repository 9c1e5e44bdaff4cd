"""The OpenAPI document: FastAPI describes its own routes; this module adds the plain ones."""

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI

from anabranch.common.contracts import tunnel
from anabranch.gateway.events.bodies import BINARY, JSON, LINES, NDJSON
from anabranch.gateway.events.records import RECORD_ENCODINGS, Encoding
from anabranch.gateway.http.edge.event_stream import SSE
from anabranch.gateway.http.edge.problem import PROBLEM
from anabranch.gateway.http.edge.read_your_writes import READ_TOKEN
from anabranch.gateway.http.openapi_entries import entry_paths, parameter
from anabranch.gateway.http.openapi_records import record_paths
from anabranch.gateway.http.routes import (
    docs_page,
    event_queries,
    events,
    group_events,
    health,
    transaction_events,
    welcome,
)

Document = dict[str, Any]

TAGS = {
    "about": "This gateway",
    "scopes": "Namespaces of streams, reader groups and tables",
    "streams": "Streams and their configuration",
    "events": "Writing and reading events",
    "transactions": "Events that become readable together, or never",
    "reader groups": "Readers that share the segments of streams",
    "tables": "Key-value tables",
    "topics": "Topics with partitions, and their records",
    "SPUs": "Registered segment stores, and groups of managed ones",
    "scaling": "Splitting and merging segments, by hand and by load",
    "segments": "Segments and cuts of a stream",
    "policies": "Retention and watermarks",
    "writers": "The times that writers note",
    "operations": "Changes that continue, and work that is stopped",
    "cluster": "Controllers, segment stores and containers",
    "control": "Requests to the cluster by their names",
    "stores": "Tunnels to segment stores",
    "health": "For probes and for Prometheus",
}
"""The groups of routes, in the order in which a page shows them."""

_METHODS = ("get", "put", "post", "patch", "delete")
_PROBLEM_SCHEMA: Document = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "remedy", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
        "remedy": {"type": "string"},
        "fields": {"type": "object"},
        "retryable": {"type": "boolean"},
        "trace_id": {"type": "string"},
    },
}
_PROBLEM: Document = {
    "description": "A problem document (RFC 9457)",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def describe(api: FastAPI) -> None:
    """Make `api.openapi()`, and so /openapi.json, describe all routes."""
    own = api.openapi

    def whole() -> Document:
        if (
            api.openapi_schema is None
            or "Problem" not in api.openapi_schema["components"]["schemas"]
        ):
            api.openapi_schema = _completed(own())
        return api.openapi_schema

    api.openapi = whole  # type: ignore[method-assign]


def _completed(document: Document) -> Document:
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    schemas = document["components"]["schemas"]
    schemas["Problem"] = _PROBLEM_SCHEMA
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    paths = document["paths"]
    paths[events.PATH] = {"post": _post_events_of_stream(), "get": _get_events()}
    paths[transaction_events.PATH] = {"post": _post_transaction_events()}
    paths[transaction_events.PART_PATH] = {"post": _post_transaction_events("part", "lengths")}
    paths[group_events.PATH] = {"get": _get_group_events()}
    paths |= entry_paths()
    paths |= record_paths()
    paths[tunnel.PATH] = {"get": _open_tunnel()}
    for path in welcome.PATHS:
        paths[path] = {"get": _get_welcome()}
    paths[docs_page.PATH] = {"get": _get_page("The interface as a page", welcome.HTML)}
    asset_types = sorted({*docs_page.BUNDLED.values(), *docs_page.OWN.values()})
    paths[docs_page.ASSET_PATH] = {"get": _get_page("A file of this page", *asset_types)}
    for path in [route.path for route in health.routes()]:
        paths[path] = {"get": {"tags": ["health"], "responses": {"200": {"description": "OK"}}}}
    for path, item in paths.items():
        for method in _METHODS:
            if method in item:
                _complete_operation(path, method, item[method])
    return document


def _complete_operation(path: str, method: str, operation: Document) -> None:
    """Name the path's parameters, and make a problem document the default response."""
    operation.setdefault("operationId", f"{method} {path}")
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = _PROBLEM
    if path.startswith("/v1/") and path != events.PATH:
        _add_read_token(operation)
    named = {p["name"] for p in operation.get("parameters", [])}
    for part in path.split("/"):
        name = part[1:-1]
        if part.startswith("{") and name not in named:
            operation.setdefault("parameters", []).append(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            )


def _add_read_token(operation: Document) -> None:
    operation.setdefault("parameters", []).append(
        parameter(READ_TOKEN, "header", {"type": "string"})
    )
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response.setdefault("headers", {})[READ_TOKEN] = {"schema": {"type": "string"}}


def _post_events() -> Document:
    anything: Document = {}
    return {
        "tags": ["events"],
        "summary": "Append events; the answer comes when all are durable",
        "parameters": [
            parameter("Routing-Key", "header", {"type": "string"}),
            parameter("Idempotency-Key", "header", {"type": "string", "maxLength": 255}),
            parameter("key_field", "query", {"type": "string"}),
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": anything},
                NDJSON: {"schema": {"type": "string"}},
                LINES: {"schema": {"type": "string", "minLength": 1}},
                BINARY: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": {
            "200": {
                "description": "All events are durable",
                "content": {
                    JSON: {
                        "schema": {
                            "type": "object",
                            "required": ["stream", "events"],
                            "properties": {
                                "stream": {"type": "string"},
                                "events": {"type": "integer"},
                            },
                        }
                    }
                },
            }
        },
    }


def _post_events_of_stream() -> Document:
    """As `_post_events`, also as one transaction."""
    described = _post_events()
    described["parameters"].append(parameter("transaction", "query", {"type": "boolean"}))
    return described


def _post_transaction_events(*of_part: str) -> Document:
    """As `_post_events`, with the ids and, for a part, the lengths by segment id."""
    described = _post_events()
    described["tags"] = ["transactions"]
    described["summary"] = (
        "Append events to it; the answer comes when all are durable and part of the commit"
    )
    schema = described["responses"]["200"]["content"][JSON]["schema"]
    kinds: Document = {
        "transactionId": {"type": "string"},
        "part": {"type": "string"},
        "lengths": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    for name in ("transactionId", *of_part):
        schema["properties"][name] = kinds[name]
        schema["required"].append(name)
    return described


def _get_events() -> Document:
    most = event_queries.EVENTS_COUNT_LIMIT
    at_ms: Document = {"schema": {"type": "integer"}}
    text: Document = {"schema": {"type": "string"}}
    end: Document = {"Next-Position": text, "End-Of-Stream": text}
    return {
        "tags": ["events"],
        "summary": "Read events from a position; continue at Next-Position, or at an event's id",
        "parameters": [
            parameter("from", "query", {"type": "string", "default": "head"}),
            parameter("max_events", "query", {"type": "integer", "minimum": 1, "maximum": most}),
            parameter("wait", "query", {"type": "number", "minimum": 0}),
            parameter("encoding", "query", _enum(Encoding, Encoding.JSON)),
            parameter("time_window", "query", {"type": "boolean", "default": False}),
            parameter("Last-Event-ID", "header", {"type": "string"}),
        ],
        "responses": {
            "200": {
                "description": "Events, possibly none; a raw one has its place, time and key",
                "headers": {
                    **end,
                    "Time-Lower-Ms": at_ms,
                    "Time-Upper-Ms": at_ms,
                    "Event-Pointer": text,
                    "Timestamp-Ms": at_ms,
                    "Routing-Key": text,
                    "Routing-Key-Base64": text,
                },
                "content": {
                    NDJSON: {"schema": {"type": "string"}},
                    BINARY: {"schema": {"type": "string", "format": "binary"}},
                    SSE: {"schema": {"type": "string"}},
                },
            },
            "204": {"description": "No raw event yet", "headers": end},
        },
    }


def _get_group_events() -> Document:
    token: Document = {"type": "string", "maxLength": 64}
    return {
        "tags": ["reader groups"],
        "summary": "Events of a reader group as they arrive, for as long as the caller listens",
        "parameters": [
            parameter("reader", "query", {"type": "string", "minLength": 1, "maxLength": 255}),
            parameter("ack", "query", token),
            parameter("Last-Event-ID", "header", token),
            parameter("encoding", "query", _enum(RECORD_ENCODINGS, Encoding.JSON)),
        ],
        "responses": {
            "200": {
                "description": "Messages: a reader, then events; unacknowledged events come again",
                "content": {
                    SSE: {"schema": {"type": "string"}},
                    NDJSON: {"schema": {"type": "string"}},
                },
            }
        },
    }


def _get_welcome() -> Document:
    described = _get_page("What answers here, and where to continue", welcome.HTML)
    text: Document = {"type": "string"}
    fields = ("name", "version", "description")
    described["responses"]["200"]["content"][JSON] = {
        "schema": {
            "type": "object",
            "required": [*fields, "links"],
            "properties": {
                **dict.fromkeys(fields, text),
                "links": {"type": "object", "additionalProperties": text},
            },
        }
    }
    return described


def _get_page(summary: str, *media_types: str) -> Document:
    content = {media_type: {"schema": {"type": "string"}} for media_type in media_types}
    return {
        "tags": ["about"],
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _open_tunnel() -> Document:
    return {
        "tags": ["stores"],
        "summary": "A WebSocket that carries the store protocol to a segment store",
        "description": f"The subprotocol is {tunnel.SUBPROTOCOL}. Without a WebSocket: 426.",
        "responses": {"101": {"description": "The gateway has reached the store"}},
    }


def _enum(values: Iterable[Encoding], default: Encoding) -> Document:
    return {"type": "string", "enum": [str(each) for each in values], "default": str(default)}
