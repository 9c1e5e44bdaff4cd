"""The intake of the application: bounds, deadlines and counts, before and around every route.

The intake receives a whole body before the route runs, within a size, a time and a total over all
requests. Routes therefore get only complete bodies, and a slow sender occupies nothing but the
memory of its bytes. The gateway answers requests for health and metrics even when it is full. A
streaming answer calls `without_deadline` when it begins.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.common.contracts.envelope import Envelope
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
_ENVELOPE = "anabranch.envelope"
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


@dataclass(slots=True)
class _Exchange:
    """One request: the state of its answer, and the bytes that it holds."""

    status: int = 0
    answered: bool = False
    """Whether the server has the whole answer."""
    held_bytes: int = 0


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
        exchange = _Exchange()
        began_s = self._clock.monotonic()
        self._requests += 1
        self._metrics.in_flight += 1

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                exchange.answered = True

        try:
            await self._answer(exchange, scope, receive, watched)
        finally:
            self._requests -= 1
            self._held_bytes -= exchange.held_bytes
            self._metrics.in_flight -= 1
            self._count(scope, exchange, self._clock.monotonic() - began_s)

    async def _answer(
        self, exchange: _Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        path = scope["path"]
        try:
            backstop_s = self._limits.body_timeout_s + self._limits.answer_timeout_s
            async with asyncio.timeout(backstop_s) as deadline:
                scope[_DEADLINE] = deadline
                if self._requests > self._limits.requests_max and not path.startswith(ALWAYS_OPEN):
                    raise Overloaded("too many requests at once", limit=self._limits.requests_max)
                body = await self._receive_body(exchange, scope, receive)
                request = scope[_ENVELOPE] = Envelope.received(body, Headers(scope=scope))
                with speaking_as(request.token):
                    await self._app(scope, _replay(body, receive), send)
        except AnabranchError as error:
            await self._refuse(exchange, problem_of(error, path), scope, receive, send)
        except TimeoutError:
            late = OutcomeUnknown("the request was not answered in time")
            await self._refuse(exchange, problem_of(late, path), scope, receive, send)
        except Exception as error:
            # The framework answers a defect by the handler and then raises it nevertheless. If
            # it comes in the middle of an answer, the server cuts the answer off.
            if not exchange.answered:
                if exchange.status:
                    raise
                await self._refuse(exchange, unexpected(error, path), scope, receive, send)

    async def _refuse(
        self, exchange: _Exchange, response: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if not exchange.status:
            await response(scope, receive, send)

    async def _receive_body(self, exchange: _Exchange, scope: Scope, receive: Receive) -> bytes:
        """Receive the body. Raises BodyTooLarge, BodyTooSlow, Overloaded, InvalidRequest."""
        announced = Request(scope).headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():
            self._check_size(int(announced))
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise InvalidRequest("the caller disconnected before the end of the body")
                    self._hold(exchange, chunk := message.get("body", b""))
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError as error:
            raise BodyTooSlow(
                "the body did not arrive in time", seconds=self._limits.body_timeout_s
            ) from error

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


def envelope_of(scope: Scope) -> Envelope:
    """The envelope of a request."""
    found = scope[_ENVELOPE]
    assert isinstance(found, Envelope)
    return found


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
