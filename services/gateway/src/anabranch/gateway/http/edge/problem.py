"""Errors as HTTP answers: problem documents (RFC 9457) for all failures.

`status_of` is the whole mapping. It maps an error by its own code if a branch of the error tree is
too coarse, otherwise by its branch, which stands for the caller's next action. The document of a
traced request carries its `trace_id`. This module logs an unexpected error and answers it without
its text.
"""

import http
import json
from collections.abc import Mapping

import msgspec
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anabranch.common.errors import (
    AnabranchError,
    Busy,
    Conflict,
    Corrupt,
    Defect,
    Fenced,
    Invalid,
    InvalidRequest,
    NotFound,
    Retry,
    Unauthorized,
    Unknown,
)
from anabranch.common.runtime.tracing import current_trace_id

PROBLEM = "application/problem+json"
RETRY_AFTER_S = 1
UNEXPECTED = "the gateway met an unexpected error"

STATUS_BY_CODE: Mapping[str, int] = {
    "scope-not-empty": 412,
    "stream-not-sealed": 412,
    "scale-refused": 412,
    "cut-refused": 412,
    "busy": 409,
    "event-too-large": 413,
    "body-too-large": 413,
    "body-too-slow": 408,
    "headers-too-slow": 408,
    "headers-too-large": 431,
    "too-many-connections": 429,
    "unsupported-media-type": 415,
    "not-acceptable": 406,
    "idempotency-mismatch": 422,
    "segment-truncated": 410,
    "events-truncated": 410,
    "generation-mismatch": 412,
    "reader-removed": 410,
    "reader-group-reset": 410,
    "too-many-readers": 429,
    "too-many-checkpoints": 429,
    "version-mismatch": 412,
    "key-exists": 412,
    "version-compacted": 410,
    "record-evicted": 410,
}
STATUS_BY_BRANCH: Mapping[type[AnabranchError], int] = {
    Retry: 503,
    Conflict: 409,
    Fenced: 503,
    Invalid: 400,
    NotFound: 404,
    Unauthorized: 403,
    Corrupt: 500,
    Unknown: 504,
}

_log = structlog.get_logger(__name__)


def status_of(error: AnabranchError) -> int:
    """The HTTP status of the answer to an error."""
    by_code = STATUS_BY_CODE.get(error.code)
    if by_code is not None:
        return by_code
    return next((s for branch, s in STATUS_BY_BRANCH.items() if isinstance(error, branch)), 500)


def document_of(
    error: AnabranchError, instance: str, status: int | None = None
) -> dict[str, object]:
    """The problem document of an error; `instance` is the path of the request. `status`: another
    one than the error's."""
    status = status or status_of(error)
    document: dict[str, object] = {
        "type": f"urn:anabranch:problem:{error.code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "instance": instance,
        "code": error.code,
        "remedy": error.remedy_for("http"),
        "fields": dict(error.fields),
        "retryable": isinstance(error, Retry | Fenced),
    }
    if trace_id := current_trace_id():
        document["trace_id"] = trace_id
    return document


def problem_of(error: AnabranchError, instance: str, status: int | None = None) -> Response:
    """The HTTP answer to an error. `status`: another one than the error's."""
    status = status or status_of(error)
    comes_later = status == 503 or isinstance(error, Busy)
    headers = {"retry-after": str(RETRY_AFTER_S)} if comes_later else None
    return Response(_encoded(document_of(error, instance, status)), status, headers, PROBLEM)


def _encoded(document: dict[str, object]) -> bytes:
    """Encode as JSON; unencodable characters in the caller's text become question marks."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        text = json.dumps(document, ensure_ascii=False)
        return text.encode(errors="replace")


def unexpected(error: Exception, instance: str) -> Response:
    """Log a defect with its traceback, and return an answer without it."""
    _log.error("a request met an unexpected error", path=instance, exc_info=error)
    told = _defect()
    return problem_of(told, instance)


def _defect() -> AnabranchError:
    return AnabranchError(UNEXPECTED, remedy="find the traceback in the gateway's log")


def add_handlers(app: FastAPI) -> None:
    """Answer all errors that routes raise with problem documents."""
    app.add_exception_handler(AnabranchError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_input)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnabranchError)
    if isinstance(error, Defect):  # already logged where it was contained
        error = _defect()
    return problem_of(error, request.url.path)


async def _on_defect(request: Request, error: Exception) -> Response:
    return unexpected(error, request.url.path)


async def _on_wrong_input(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    is_unread = where == "body" and "json" not in request.headers.get("content-type", "")
    told = InvalidRequest(
        f"the request is wrong: {str(first['msg']).lower()}",
        remedy="send JSON with the header Content-Type: application/json" if is_unread else None,
        at=where,
    )
    return problem_of(told, request.url.path)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer the framework's own refusals: unknown paths and methods, unreadable bodies."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    told = InvalidRequest(
        f"{phrase.lower()}: {request.method} {request.url.path}",
        remedy="`GET /openapi.json` describes every route, and a browser shows them at `/docs`",
    )
    response = problem_of(told, request.url.path)
    document = msgspec.json.decode(response.body)
    code = phrase.lower().replace(" ", "-")
    document |= {
        "type": f"urn:anabranch:problem:{code}",
        "title": phrase,
        "status": error.status_code,
        "code": code,
    }
    return Response(
        msgspec.json.encode(document), error.status_code, dict(error.headers or {}), PROBLEM
    )
