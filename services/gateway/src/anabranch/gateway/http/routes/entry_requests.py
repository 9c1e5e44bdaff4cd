"""What a request for entries asks for: its key, bounds, time to live and conditions.

Keys are bytes. In the path and in the query they are percent-encoded, and a slash separates the
primary key from the secondary one, so that a slash within a key is ``%2F``. With
`key_encoding=base64url`, every key of the request is URL-safe base64 instead, which no proxy
rewrites.

The ETag of an entry is its version in quotes. Conditions follow RFC 9110:

    writes   If-None-Match: *          the key has no entry
             If-Match: "version"       the entry has this version
    reads    If-None-Match, If-Match   one ETag, several, or *
"""

import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request

from anabranch.client import Version
from anabranch.common.errors import InvalidKey, InvalidRequest, NotAcceptable
from anabranch.common.model.table import TTL_MS_MAX
from anabranch.gateway.events.bodies import JSON, NDJSON, NDJSON_TYPES
from anabranch.gateway.events.records import Encoding
from anabranch.gateway.http.models.answers import table_at
from anabranch.gateway.http.routes.event_queries import encoding_of
from anabranch.gateway.http.routes.plain_requests import idempotency_of, media_type_of
from anabranch.gateway.tables.keys import EntryKey, EntryRange
from anabranch.gateway.tables.records import ENTRY_ENCODINGS
from anabranch.gateway.tables.updates import UpdateRequest

ENTRIES_SEGMENT = 6
"""The index of ``entries`` among the segments of a path."""
ENTRIES_COUNT_DEFAULT = 1000
ENTRIES_COUNT_LIMIT = 10_000
DIGITS_MAX = 19
ANY_TAG = "*"
_TAGS = re.compile(r'\s*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
_BOUNDS = ("start", "end", "prefix", "primary")
KEY_ENCODINGS = ("text", "base64url")


def table_of(request: Request) -> str:
    """The table that the path names. Raises InvalidName, InvalidRequest."""
    return str(table_at(request.path_params["scope"], request.path_params["table"]))


# --- keys ---------------------------------------------------------------------------------------


def key_of(request: Request) -> EntryKey:
    """The key that the path names. Raises InvalidKey, InvalidRequest."""
    raw: bytes = request.scope["raw_path"]
    segments = raw.split(b"/")[ENTRIES_SEGMENT + 1 :]
    if not 1 <= len(segments) <= 2:
        raise InvalidKey(
            "the path does not name one key",
            remedy="send a key, or a primary and a secondary key; a slash within a key is %2F",
        )
    in_base64 = _is_base64(request.query_params)
    keys = [_decoded(unquote_to_bytes(each), in_base64=in_base64) for each in segments]
    return EntryKey(*keys)


def range_of(request: Request) -> EntryRange:
    """The bounds of a scan in the query. Raises InvalidKey, InvalidRequest."""
    # Latin-1 has a character for each byte, so the values are read as the bytes that they encode.
    pairs = parse_qsl(
        request.scope["query_string"].decode("latin-1"), keep_blank_values=True, encoding="latin-1"
    )
    in_base64 = _is_base64(request.query_params)
    bounds = {
        name: _decoded(value.encode("latin-1"), in_base64=in_base64)
        for name, value in pairs
        if name in _BOUNDS
    }
    return EntryRange(**bounds)


def _decoded(key: bytes, *, in_base64: bool) -> bytes:
    if not in_base64:
        return key
    try:
        return b64decode(key + b"=" * (-len(key) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise InvalidKey("the key is not URL-safe base64") from error


def _is_base64(query: QueryParams) -> bool:
    name = query.get("key_encoding", "text")
    if name not in KEY_ENCODINGS:
        raise InvalidRequest(
            "keys are not accepted in this encoding",
            remedy=f"send one of {', '.join(KEY_ENCODINGS)}",
            name="key_encoding",
        )
    return name == "base64url"


# --- numbers and words --------------------------------------------------------------------------


def ttl_of(query: QueryParams) -> int | None:
    """The time to live in milliseconds; None: the table's. Raises InvalidRequest."""
    return _whole(query, "ttl_ms", 0, TTL_MS_MAX)


def limit_of(query: QueryParams, most: int | None) -> int | None:
    """The most entries of an answer, up to `most` if it is given. Raises InvalidRequest."""
    return _whole(query, "limit", 1, most or (1 << 53))


def wants_values(query: QueryParams) -> bool:
    """Whether entries are wanted with their values. Raises InvalidRequest."""
    text = query.get("values", "true")
    if text not in ("true", "false"):
        raise InvalidRequest("values is neither true nor false", name="values")
    return text == "true"


def entry_encoding_of(query: QueryParams) -> Encoding:
    """The encoding of keys and values in records. Raises InvalidRequest."""
    if "encoding" not in query:
        return Encoding.RECORD
    return encoding_of(query, ENTRY_ENCODINGS)


def _whole(query: QueryParams, name: str, least: int, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    if not (is_number and least <= int(text) <= most):
        raise InvalidRequest(
            f"{name} is out of range", remedy=f"send a number from {least} to {most}", name=name
        )
    return int(text)


def wants_ndjson(accept: str) -> bool:
    """Whether the caller wants a line per entry and not a page; a page if it accepts both alike.

    Raises NotAcceptable.
    """
    for item in (accept or JSON).split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in (JSON, "application/*", "*/*"):
            return False
        if media_type in NDJSON_TYPES:
            return True
    raise NotAcceptable(
        "entries are not available in this form", remedy=f"accept {JSON} or {NDJSON}"
    )


# --- updates ------------------------------------------------------------------------------------


def update_request(request: Request, payload: bytes) -> UpdateRequest:
    """The table, the time to live and the Idempotency-Key of a request for updates.

    Raises InvalidName, InvalidRequest.
    """
    conditions = conditions_of(request.headers)
    told = [
        request.method,
        request.scope["raw_path"].decode("latin-1"),
        sorted(request.query_params.multi_items()),
        media_type_of(request, ""),
        conditions.matching,
        conditions.none_matching,
    ]
    idempotency = idempotency_of(request, told, payload)
    return UpdateRequest(table_of(request), ttl_of(request.query_params), idempotency)


# --- conditions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Absent:
    """The condition that the key has no entry."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The ETags of If-Match and If-None-Match, with their quotes; ``*`` alone for any entry."""

    matching: Sequence[str] = ()
    none_matching: Sequence[str] = ()

    def of_write(self) -> Version | Absent | None:
        """The condition of a write: a version, `Absent` or none. Raises InvalidRequest."""
        if self.matching and self.none_matching:
            raise InvalidRequest("If-Match and If-None-Match exclude each other", remedy="send one")
        if self.none_matching:
            if self.none_matching != (ANY_TAG,):
                raise InvalidRequest(
                    "a write takes no other If-None-Match than *", remedy="send If-Match instead"
                )
            return Absent()
        return self._version() if self.matching else None

    def _version(self) -> Version:
        tag = self.matching[0]
        if len(self.matching) > 1 or not tag.startswith('"'):
            raise InvalidRequest(
                "a write takes one strong ETag in If-Match",
                remedy="send the ETag of the entry as the gateway returned it",
            )
        return Version.parse(tag.strip('"'))

    def is_unchanged(self, etag: str) -> bool:
        """Whether a read of an entry with this ETag is answered with 304."""
        return _matches(self.none_matching, etag)

    def is_refused(self, etag: str) -> bool:
        """Whether a read of an entry with this ETag is answered with 412."""
        return bool(self.matching) and not _matches(self.matching, etag)


def conditions_of(headers: Headers) -> Conditions:
    """The conditions of a request. Raises InvalidRequest for malformed ones."""
    return Conditions(_tags(headers, "if-match"), _tags(headers, "if-none-match"))


def etag_of(version: Version) -> str:
    """The ETag of an entry."""
    return f'"{version}"'


def _tags(headers: Headers, name: str) -> tuple[str, ...]:
    text = ",".join(headers.getlist(name))
    if not text.strip() or text.strip() == ANY_TAG:
        return (ANY_TAG,) if text.strip() else ()
    found: list[str] = []
    at = 0
    while at < len(text):
        tag = _TAGS.match(text, at)
        if tag is None:
            raise InvalidRequest(
                "a condition has no list of ETags",
                remedy="send ETags with their quotes, or *",
                header=name,
            )
        found.append(tag[1])
        at = tag.end()
    return tuple(found)


def _matches(tags: Sequence[str], etag: str) -> bool:
    """Whether the list has the ETag; weak ETags count too."""
    return any(tag == ANY_TAG or tag.removeprefix("W/") == etag for tag in tags)
