"""The intake of the application: bounds, deadlines and counts, before and around every route.

The intake receives a whole body before the route runs, within a size, a time and a total over all
requests. Routes therefore get only complete bodies, and a slow sender occupies nothing but the
memory of its bytes. The gateway answers requests for health and metrics even when it is full. A
streaming answer calls `without_deadline` when it begins.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.common.contracts.envelope import AUTHORIZATION, Envelope, bearer
from anabranch.common.errors import (
    AnabranchError,
    BodyTooLarge,
    BodyTooSlow,
    InvalidRequest,
    OutcomeUnknown,
    Overloaded,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.speaking import speaking_as
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.http.edge.problem import problem_of, unexpected

ALWAYS_OPEN = ("/ping", "/healthz", "/readyz", "/metrics", "/v1/health")
_DEADLINE = "anabranch.deadline"
_BODY = "anabranch.body"
_HEADERS = "anabranch.headers"
_AUTHORIZATION = AUTHORIZATION.encode()
_SPEAKING_AS_BEFORE = nullcontext()
LATE = "the request was not answered in time"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    body_size_bytes_max: int
    bodies_size_bytes_max: int
    """The total size of the bodies of all open requests."""
    body_timeout_s: float
    answer_timeout_s: float
    """The outer deadline; routes have shorter deadlines of their own."""
    requests_max: int


class _Exchange:
    """One request: the state of its answer, and the bytes that it holds."""

    __slots__ = ("_send", "answered", "held_bytes", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.answered = False
        """Whether the server has the whole answer."""
        self.held_bytes = 0

    async def send(self, message: Message) -> None:
        """Send the message; keep its status, and whether it was the last one."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._send(message)
            return
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.answered = True


class Intake:
    """See the module. `route_of` names the route template of a scope for the counts."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: IntakeLimits,
        clock: Clock,
        metrics: GatewayMetrics,
        route_of: Callable[[Scope], str],
    ) -> None:
        self._app = app
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._route_of = route_of
        self._requests = 0
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(send)
        began_s = self._clock.monotonic()
        self._requests += 1
        self._metrics.in_flight += 1
        try:
            await self._answer(exchange, scope, receive)
        finally:
            self._requests -= 1
            self._held_bytes -= exchange.held_bytes
            self._metrics.in_flight -= 1
            self._count(scope, exchange, self._clock.monotonic() - began_s)

    async def _answer(self, exchange: _Exchange, scope: Scope, receive: Receive) -> None:
        path = scope["path"]
        headers = dict(reversed(scope["headers"]))  # of a repeated one, the first
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        limits = self._limits
        first_s = limits.body_timeout_s if has_body else limits.answer_timeout_s
        body = None if has_body else b""
        scope[_HEADERS] = headers
        try:
            async with asyncio.timeout(first_s) as deadline:
                scope[_DEADLINE] = deadline
                if self._requests > limits.requests_max and not path.startswith(ALWAYS_OPEN):
                    raise Overloaded("too many requests at once", limit=limits.requests_max)
                if body is None:
                    body = await self._receive_body(exchange, headers, receive)
                    deadline.reschedule(asyncio.get_running_loop().time() + limits.answer_timeout_s)
                scope[_BODY] = body
                token = bearer(headers.get(_AUTHORIZATION, b"").decode("latin-1"))
                with speaking_as(token) if token else _SPEAKING_AS_BEFORE:
                    await self._app(scope, _replay(body, receive), exchange.send)
        except AnabranchError as error:
            await self._refuse(exchange, problem_of(error, path), scope, receive)
        except TimeoutError:
            late = self._too_slow() if body is None else OutcomeUnknown(LATE)
            await self._refuse(exchange, problem_of(late, path), scope, receive)
        except Exception as error:
            # The framework answers a defect by the handler and then raises it nevertheless. If
            # it comes in the middle of an answer, the server cuts the answer off.
            if not exchange.answered:
                if exchange.status:
                    raise
                await self._refuse(exchange, unexpected(error, path), scope, receive)

    async def _refuse(
        self, exchange: _Exchange, response: ASGIApp, scope: Scope, receive: Receive
    ) -> None:
        if not exchange.status:
            await response(scope, receive, exchange.send)

    async def _receive_body(
        self, exchange: _Exchange, headers: Mapping[bytes, bytes], receive: Receive
    ) -> bytes:
        """Receive the body. Raises BodyTooLarge, Overloaded, InvalidRequest."""
        announced = headers.get(b"content-length", b"")
        if announced.isdigit():
            self._check_size(int(announced))
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the caller disconnected before the end of the body")
            self._hold(exchange, chunk := message.get("body", b""))
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_slow(self) -> BodyTooSlow:
        seconds = self._limits.body_timeout_s
        return BodyTooSlow("the body did not arrive in time", seconds=seconds)

    def _hold(self, exchange: _Exchange, chunk: bytes) -> None:
        self._check_size(exchange.held_bytes + len(chunk))
        limit = self._limits.bodies_size_bytes_max
        if self._held_bytes + len(chunk) > limit:
            raise Overloaded("too many bytes of bodies at once", limit=limit)
        exchange.held_bytes += len(chunk)
        self._held_bytes += len(chunk)
        self._metrics.body_bytes += len(chunk)

    def _check_size(self, size: int) -> None:
        limit = self._limits.body_size_bytes_max
        if size > limit:
            raise BodyTooLarge("the body exceeds the limit", size=size, limit=limit)

    def _count(self, scope: Scope, exchange: _Exchange, seconds: float) -> None:
        route = self._route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.answered(method, route, exchange.status or 499, seconds)


def body_of(scope: Scope) -> bytes:
    """The body of a request."""
    found: bytes = scope[_BODY]
    return found


def headers_of(scope: Scope) -> Mapping[bytes, bytes]:
    """The headers of a request by name, in lower case; of a repeated one, the first."""
    found: Mapping[bytes, bytes] = scope[_HEADERS]
    return found


def envelope_of(scope: Scope) -> Envelope:
    """The envelope of a request."""
    return Envelope.received(body_of(scope), Headers(scope=scope))


def without_deadline(scope: Scope) -> None:
    """Lift the deadline of the request: from now on its answer may take any time."""
    deadline: asyncio.Timeout | None = scope.get(_DEADLINE)
    if deadline is not None:
        deadline.reschedule(None)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body as one message, then the server's messages."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once
