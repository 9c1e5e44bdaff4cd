"""A span around every request: the same for FastAPI's routes and for the plain ones.

It continues the trace that the request names in `traceparent`, or begins one. The framework's own
telemetry is off, because it would trace the same requests a second time. The repeated requests of
probes are not traced.
"""

from collections.abc import Callable

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.common.contracts.envelope import TRACE_PARENT
from anabranch.common.runtime.tracing import remote_context
from anabranch.gateway.http.edge.intake import ALWAYS_OPEN

_HEADER = TRACE_PARENT.encode()


class Tracing:
    """See the module. `route_of` names the route template of a scope that was routed."""

    def __init__(self, app: ASGIApp, tracer: Tracer, route_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._tracer = tracer
        self._route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(ALWAYS_OPEN):
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        with self._tracer.start_as_current_span(
            scope["method"],
            remote_context(given.decode("latin-1")),
            SpanKind.SERVER,
            attributes,
        ) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note_status(span, message["status"])
                await send(message)

            try:
                await self._app(scope, receive, watched)
            finally:
                route = self._route_of(scope)
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)


def _note_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
