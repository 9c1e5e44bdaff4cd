"""Spans across processes, by the API of OpenTelemetry alone: what is not set up costs nothing.

A context travels as one W3C `traceparent` text: as a header of HTTP and of NATS messages, and in
the field `trace_parent` of packets. Whoever may trace holds a `Tracer | None`; None means that
tracing is off, and then no span object is ever made. Only sampled spans are passed on, and only
the gateway and programs that use the client begin traces: services behind them continue theirs.
"""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, attach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from anabranch.common.contracts.envelope import TRACE_PARENT
from anabranch.common.errors import AnabranchError

_PROPAGATOR = TraceContextTextMapPropagator()


def trace_parent_of(span: Span) -> str:
    """The text that makes `span` the parent of spans elsewhere; empty unless it is sampled."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return ""
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def current_trace_parent() -> str:
    """`trace_parent_of` the current span; empty when there is none."""
    return trace_parent_of(trace.get_current_span())


def remote_context(trace_parent: str) -> Context:
    """The context in which a span continues that trace; an empty one if the text is none."""
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
    """The id of the current trace as 32 hexadecimal digits; empty when there is none."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def outside_of_spans() -> contextvars.Context:
    """The present context without a current span, for tasks that outlive it."""
    present = contextvars.copy_context()
    present.run(attach, trace.set_span_in_context(trace.INVALID_SPAN))
    return present


@contextmanager
def continued(
    tracer: Tracer | None, name: str, trace_parent: str, **attributes: str | int
) -> Iterator[None]:
    """A span around serving what came with `trace_parent`, current inside; none if unsampled."""
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


@contextmanager
def asking(tracer: Tracer | None, name: str, **attributes: str | int) -> Iterator[None]:
    """A span around asking another process, below the current one if that is sampled."""
    if tracer is None or not current_trace_parent():
        yield
        return
    with tracer.start_as_current_span(
        name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False
    ):
        yield


def mark_failed(span: Span, error: AnabranchError) -> None:
    """Say in a span how its work failed."""
    span.set_attribute("error.type", error.code)
    span.set_status(Status(StatusCode.ERROR, error.message))


def end_failed(span: Span, error: AnabranchError) -> None:
    """End a span whose work failed, saying how."""
    mark_failed(span, error)
    span.end()
