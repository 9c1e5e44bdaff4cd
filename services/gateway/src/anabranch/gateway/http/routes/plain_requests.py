"""What the plain routes read of a request: its headers as text, and its Idempotency-Key."""

import hashlib
from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from anabranch.common.errors import InvalidRequest
from anabranch.gateway.bounds.changes import Idempotency
from anabranch.gateway.http.edge.intake import headers_of

IDEMPOTENCY_KEY_LENGTH_MAX = 255


def header(request: Request, name: str) -> str:
    """A header as UTF-8 text; empty if absent. Raises InvalidRequest."""
    return optional_header(request, name) or ""


def optional_header(request: Request, name: str) -> str | None:
    """A header as UTF-8 text, or None; `name` is in lower case. Raises InvalidRequest."""
    value = headers_of(request.scope).get(name.encode())
    try:
        return None if value is None else value.decode()
    except UnicodeError as error:
        raise InvalidRequest("a header is not UTF-8", header=name) from error


def media_type_of(request: Request, default: str) -> str:
    """The media type of the body, without its parameters. Raises InvalidRequest."""
    return header(request, "content-type").partition(";")[0].strip().lower() or default


def idempotency_of(request: Request, told: Sequence[object], payload: bytes) -> Idempotency | None:
    """The Idempotency-Key with a digest of the request: the values `told`, and the payload.

    Raises InvalidRequest.
    """
    key = optional_header(request, "idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        raise InvalidRequest(
            "the Idempotency-Key is empty or too long",
            remedy=f"send 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} characters",
        )
    digest = hashlib.sha256(msgspec.json.encode(told))
    digest.update(payload)
    return Idempotency(key, digest.digest())
