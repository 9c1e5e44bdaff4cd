"""Spans that a service continues, by the API of OpenTelemetry, which costs nothing if not set up.

`trace_context` says how a context travels. Only sampled spans cross processes. Only the gateway and
programs that use the client begin traces; the services behind them continue these.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from anabranch.common.contracts.envelope import TRACE_PARENT
from anabranch.common.errors import AnabranchError

_PROPAGATOR = TraceContextTextMapPropagator()


def remote_context(trace_parent: str) -> Context:
    """The context in which a span continues that trace; empty if the text is not valid."""
    if not trace_parent:
        return Context()
    return _PROPAGATOR.extract({TRACE_PARENT: trace_parent}, Context())


def is_sampled(trace_parent: str) -> bool:
    """Whether the text is well-formed and its sender records the trace."""
    if not trace_parent:
        return False
    span = trace.get_current_span(remote_context(trace_parent))
    return bool(span.get_span_context().trace_flags.sampled)


def current_trace_id() -> str:
    """The id of the current trace as 32 hexadecimal digits; empty without a trace."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


@contextmanager
def continued(
    tracer: Tracer | None, name: str, trace_parent: str, **attributes: str | int
) -> Iterator[None]:
    """Run the block in a span that continues `trace_parent`; in none if it is unsampled."""
    if tracer is None or not is_sampled(trace_parent):
        yield
        return
    with tracer.start_as_current_span(
        name,
        remote_context(trace_parent),
        SpanKind.SERVER,
        attributes,
        record_exception=False,
    ):
        yield


def mark_failed(span: Span, error: AnabranchError) -> None:
    """Record in a span the error of its work."""
    span.set_attribute("error.type", error.code)
    span.set_status(Status(StatusCode.ERROR, error.message))


def end_failed(span: Span, error: AnabranchError) -> None:
    """Record the error in a span and end the span."""
    mark_failed(span, error)
    span.end()
