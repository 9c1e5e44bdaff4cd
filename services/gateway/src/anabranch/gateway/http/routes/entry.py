"""One entry of a key-value table: a plain route without a model.

A value is the body as it is, of any bytes. The ETag is the entry's version, and conditions on it
make a write an insertion, a replacement or a removal of that version (see `entry_requests`).
"""

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.client import Insert, Put, Remove, Replace
from anabranch.common.errors import (
    BodyTooLarge,
    InvalidRequest,
    KeyNotFound,
    VersionMismatch,
)
from anabranch.common.model.table import VALUE_SIZE_BYTES_MAX
from anabranch.gateway.events.bodies import BINARY
from anabranch.gateway.http.edge.problem import problem_of
from anabranch.gateway.http.routes.entry_requests import (
    Absent,
    conditions_of,
    etag_of,
    key_of,
    table_of,
    update_request,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.tables.keys import EntryKey
from anabranch.gateway.tables.records import EntryUpdate

PATH = "/v1/scopes/{scope}/tables/{table}/entries/{key}"
KEY_TEXT_LENGTH_MAX = 200
METHODS = ("GET", "PUT", "DELETE")


class _Key(Convertor[str]):
    """The rest of a path, with slashes and line ends: a key has any bytes."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("entry_key", _Key())


def routes() -> list[Route]:
    return [Route(PATH.replace("{key}", "{key:entry_key}"), entry, methods=METHODS)]


async def entry(request: Request) -> Response:
    """GET and HEAD read, PUT puts, DELETE removes."""
    match request.method:
        case "PUT":
            return await put_entry(request)
        case "DELETE":
            return await remove_entry(request)
    return await read_entry(request)


async def read_entry(request: Request) -> Response:
    """200 with the value; 304 and 412 by the conditions; 404 without an entry."""
    parts = parts_of(request)
    table, key, conditions = table_of(request), key_of(request), conditions_of(request.headers)
    found = await parts.entries.get(table, key)
    if found is None:
        error = KeyNotFound("the key has no entry", table=table, key=_text(key))
        return problem_of(error, request.url.path, 412 if conditions.matching else None)
    etag = etag_of(found.version)
    if conditions.is_refused(etag):
        raise VersionMismatch(
            "the entry has another version",
            table=table, key=_text(key), version=str(found.version),
        )  # fmt: skip
    headers = {"etag": etag, "cache-control": "no-cache", "x-content-type-options": "nosniff"}
    if found.expires_ms:
        headers["expires-ms"] = str(found.expires_ms)
    if conditions.is_unchanged(etag):
        return Response(status_code=304, headers=headers)
    parts.metrics.entries_out += 1
    return Response(found.value, headers=headers, media_type=BINARY)


async def put_entry(request: Request) -> Response:
    """201 for an insertion (`If-None-Match: *`), else 204, each with the new ETag; 404, 412."""
    value = await request.body()
    if len(value) > VALUE_SIZE_BYTES_MAX:
        raise BodyTooLarge(
            "the value exceeds the limit", size=len(value), limit=VALUE_SIZE_BYTES_MAX
        )
    key, condition = key_of(request), conditions_of(request.headers).of_write()
    if condition is None:
        return await _update(request, Put(key, value), value)
    if isinstance(condition, Absent):
        return await _update(request, Insert(key, value), value, status=201)
    return await _update(request, Replace(key, value, condition), value)


async def remove_entry(request: Request) -> Response:
    """204, also for a key without an entry unless If-Match requires one; 404, 412."""
    condition = conditions_of(request.headers).of_write()
    if isinstance(condition, Absent):
        raise InvalidRequest("a removal takes no If-None-Match", remedy="send If-Match, or neither")
    return await _update(request, Remove(key_of(request), condition), b"")


async def _update(
    request: Request, update: EntryUpdate, payload: bytes, status: int = 204
) -> Response:
    parts = parts_of(request)
    try:
        version = await parts.updates.update(update_request(request, payload), update)
    except KeyNotFound as error:
        return problem_of(error, request.url.path, 412)
    parts.metrics.entries_in += 1
    headers = {} if isinstance(update, Remove) else {"etag": etag_of(version)}
    return Response(status_code=status, headers=headers)


def _text(key: EntryKey) -> str:
    """The key as text for an error, perhaps cut."""
    parts = [key.primary] if key.secondary is None else [key.primary, key.secondary]
    shown = ", ".join(part.decode(errors="backslashreplace") for part in parts)
    return shown[:KEY_TEXT_LENGTH_MAX]
