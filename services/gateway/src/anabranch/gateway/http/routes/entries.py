"""Many entries of a key-value table: plain routes without a model per entry.

A page of entries is JSON. With `Accept: application/x-ndjson` the answer has every entry of the
range, a line each; if it cannot be completed, a line `{"event": "problem", …}` says why, and the
gateway closes the connection.
"""

from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.common.errors import (
    AnabranchError,
    BodyTooLarge,
    InvalidRequest,
    KeyNotFound,
    Unavailable,
    UnsupportedMediaType,
)
from anabranch.gateway.events.bodies import JSON, NDJSON, NDJSON_TYPES
from anabranch.gateway.events.records import Encoding
from anabranch.gateway.http.edge.event_stream import CutOff, EventStream, Form, Message
from anabranch.gateway.http.edge.problem import document_of, problem_of
from anabranch.gateway.http.routes.entry_requests import (
    ENTRIES_COUNT_DEFAULT,
    ENTRIES_COUNT_LIMIT,
    entry_encoding_of,
    limit_of,
    range_of,
    table_of,
    update_request,
    wants_ndjson,
    wants_values,
)
from anabranch.gateway.http.routes.parts import Parts, parts_of
from anabranch.gateway.http.routes.plain_requests import header, media_type_of
from anabranch.gateway.tables.long_reads import PIECE_COUNT_MAX, WholeScan
from anabranch.gateway.tables.reads import ScanRequest
from anabranch.gateway.tables.records import parse_batch, parse_entries, parse_look_up, record_of

PATH = "/v1/scopes/{scope}/tables/{table}/entries"
BATCH_PATH = "/v1/scopes/{scope}/tables/{table}/batch"
LOOK_UP_PATH = "/v1/scopes/{scope}/tables/{table}/look-up"
_ENCODER = msgspec.json.Encoder()
_LINES = Form(sse=False)


def routes() -> list[Route]:
    return [
        Route(PATH, entries, methods=["GET", "POST"]),
        Route(BATCH_PATH, update_batch, methods=["POST"]),
        Route(LOOK_UP_PATH, look_up, methods=["POST"]),
    ]


async def entries(request: Request) -> Response | EventStream:
    """GET scans, POST puts many."""
    if request.method == "POST":
        return await put_entries(request)
    if wants_ndjson(header(request, "accept")):
        return await scan_all(request)
    return await scan_page(request)


# --- updates ------------------------------------------------------------------------------------


async def put_entries(request: Request) -> Response:
    """200 {table, entries} when all are durable; they are not atomic together."""
    parts = parts_of(request)
    media_type = media_type_of(request, NDJSON)
    if media_type not in NDJSON_TYPES:
        raise UnsupportedMediaType(
            "entries in this form are not accepted", remedy=f"send {NDJSON}", media_type=media_type
        )
    body = await request.body()
    key_field = request.query_params.get("key_field")
    found = list(parse_entries(body, key_field, parts.settings.body_events_max))
    asked = update_request(request, body)
    count = await parts.updates.put_many(asked, found)
    parts.metrics.entries_in += count
    return _json({"table": asked.table, "entries": count})


async def update_batch(request: Request) -> Response:
    """200 {versions} when all updates are durable; otherwise none was performed: 404, 412."""
    parts = parts_of(request)
    body = await request.body()
    updates = parse_batch(body)
    if not updates:
        raise InvalidRequest("the batch contains no update")
    try:
        versions = await parts.updates.batch(update_request(request, body), updates)
    except KeyNotFound as error:
        return problem_of(error, request.url.path, 412)
    parts.metrics.entries_in += len(updates)
    return _json({"versions": [str(version) for version in versions]})


# --- reads --------------------------------------------------------------------------------------


async def look_up(request: Request) -> Response:
    """200 {entries, remaining}: an entry or null per key; the last `remaining` keys are left."""
    parts, encoding = parts_of(request), entry_encoding_of(request.query_params)
    keys = parse_look_up(await request.body())
    if len(keys) > ENTRIES_COUNT_LIMIT:
        raise BodyTooLarge("too many keys", keys=len(keys), limit=ENTRIES_COUNT_LIMIT)
    found = await parts.entries.look_up(table_of(request), keys)
    parts.metrics.entries_out += sum(entry is not None for entry in found)
    records = [None if entry is None else record_of(entry, encoding) for entry in found]
    return _json({"entries": records, "remaining": len(keys) - len(found)})


async def scan_page(request: Request) -> Response:
    """200 {entries, next_page_token}, in the order of the keys."""
    parts, query = parts_of(request), request.query_params
    encoding = entry_encoding_of(query)
    limit = limit_of(query, ENTRIES_COUNT_LIMIT) or ENTRIES_COUNT_DEFAULT
    asked = ScanRequest(table_of(request), range_of(request), limit, wants_values(query))
    page = await parts.entries.page(asked, query.get("page_token", ""))
    parts.metrics.entries_out += len(page.entries)
    records = [record_of(entry, encoding) for entry in page.entries]
    return _json({"entries": records, "next_page_token": page.next_page_token})


async def scan_all(request: Request) -> EventStream:
    """200, then a line for each entry of the range, in the order of the keys."""
    parts, query = parts_of(request), request.query_params
    if "page_token" in query:
        raise InvalidRequest("a scan of all entries has no pages", remedy="omit page_token")
    encoding, limit = entry_encoding_of(query), limit_of(query, None)
    asked = ScanRequest(table_of(request), range_of(request), limit, wants_values(query))
    scan = await parts.entries.scan(asked)
    return EventStream(
        _scanned(parts, scan, limit, path=request.url.path, encoding=encoding),
        _LINES,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=scan.close,
    )


async def _scanned(
    parts: Parts, scan: WholeScan, limit: int | None, *, path: str, encoding: Encoding
) -> AsyncGenerator[bytes, None]:
    left = limit
    try:
        while found := await scan.next(PIECE_COUNT_MAX if left is None else left):
            parts.metrics.entries_out += len(found)
            yield b"".join(_ENCODER.encode(record_of(one, encoding)) + b"\n" for one in found)
            if left is not None:
                left -= len(found)
            if parts.reads.stopping():
                raise Unavailable("the gateway is stopping")
    except AnabranchError as error:
        yield _LINES.of([Message(document_of(error, path), name="problem")])
        raise CutOff from error


def _json(told: object) -> Response:
    return Response(_ENCODER.encode(told), media_type=JSON)
