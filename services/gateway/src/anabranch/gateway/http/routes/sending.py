"""How a change is sent: the command's id, and the time for which the gateway waits for its end.

The caller sets the wait with `?wait=seconds` or `Prefer: wait=seconds`; the default and maximum is
the request timeout. If a change does not end in time, it continues, and the gateway answers 202
with its operation.

The command's id is a digest of the `Idempotency-Key` and the request. A repeated request therefore
gets the first one's operation, even from another gateway or after a restart. If the same key comes
with another request, only the gateway that took the first one can refuse it. Its memory is bounded
by count and age, and ends with the process.
"""

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from anabranch.client import Operation, OperationState
from anabranch.client.admin.operations import Sending
from anabranch.gateway.http.models.answers import Told
from anabranch.gateway.http.routes.parts import parts_of

KEY_LENGTH_MAX = 255
COMMAND_ID_LENGTH = 40
_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)
_ASYNC = re.compile(r"respond-async", re.IGNORECASE)


class OperationHandle(Told):
    """A change that continues; `/v1/operations/{operation}` returns its state."""

    operation: str
    state: Literal["running", "succeeded"]


async def waiting(
    request: Request,
    wait: Annotated[
        float | None,
        Query(ge=0, allow_inf_nan=False, description="seconds to wait for the end"),
    ] = None,
    prefer: Annotated[str, Header(description="wait=seconds, as in RFC 7240")] = "",
) -> float:
    """A dependency: the seconds for which the caller wants to wait for the end of its request."""
    return _wait_s(wait, prefer, parts_of(request).settings.request_timeout_s)


WaitS = Annotated[float, Depends(waiting)]


async def change(
    request: Request,
    wait_s: WaitS,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH_MAX)] = None,
) -> AsyncIterator[Sending]:
    """A dependency: the client's arguments for sending the command. Raises IdempotencyMismatch."""
    parts = parts_of(request)
    sending = Sending(
        timeout_s=parts.settings.request_timeout_s,
        wait_s=wait_s,
    )
    if idempotency_key is None:
        yield sending
        return
    target = f"{request.method} {request.url.path}"
    asked = await _fingerprint(request)
    with parts.keys.using(f"{idempotency_key} {target}", asked):
        digest = hashlib.sha256(msgspec.json.encode([idempotency_key, target, asked]))
        yield {**sending, "command_id": digest.hexdigest()[:COMMAND_ID_LENGTH]}


Sent = Annotated[Sending, Depends(change)]


def still_running(operation: Operation) -> Response | None:
    """The answer 202 for an operation that has not ended; None if it has."""
    if operation.state is OperationState.SUCCEEDED:
        return None
    told = OperationHandle(operation=operation.operation_id, state="running")
    location = f"/v1/operations/{operation.operation_id}"
    return Response(
        told.model_dump_json(by_alias=True), 202, {"location": location}, "application/json"
    )


def ended(operation: Operation) -> OperationHandle:
    """The answer for an operation that has ended."""
    return OperationHandle(operation=operation.operation_id, state="succeeded")


RUNNING: dict[int | str, dict[str, Any]] = {
    202: {
        "model": OperationHandle,
        "description": "The operation continues; Location names it",
        "headers": {"Location": {"schema": {"type": "string"}}},
    }
}
"""The additional answer of every route that makes a change."""


def _wait_s(wait: float | None, prefer: str, longest_s: float) -> float:
    """The wait in seconds; `longest_s` is the maximum and the default."""
    if wait is not None:
        return min(wait, longest_s)
    preferred = _WAIT.search(prefer)
    if preferred is not None:
        return min(float(preferred[1]), longest_s)
    return 0.0 if _ASYNC.search(prefer) else longest_s


async def _fingerprint(request: Request) -> str:
    """A digest of the request without its wait; equal JSON has equal digests."""
    body = await request.body()
    # If the body is not JSON, the route refuses it, or takes no body.
    with contextlib.suppress(ValueError, RecursionError):
        body = msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    query = sorted((k, v) for k, v in request.query_params.multi_items() if k != "wait")
    digest = hashlib.sha256(msgspec.json.encode(query))
    digest.update(body)
    return digest.hexdigest()
