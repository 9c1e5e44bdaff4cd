"""Trace contexts, for programs that may or may not have loaded OpenTelemetry.

OpenTelemetry is an optional package of the client. A program that traces has loaded it, so this
module looks at the loaded modules alone: while `opentelemetry.trace` is not among them there is no
span, and no request belongs to a trace.

A context travels as one W3C `traceparent` text: as a header of HTTP and of NATS messages, and in
the field `trace_parent` of packets. Code that traces holds a `Tracer | None`; None means that
tracing is off, and the code then creates no span. `tracing` has the services' half.
"""

import contextvars
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_API = "opentelemetry.trace"


def may_have_spans() -> bool:
    """Whether this program has loaded OpenTelemetry; without it there is no span."""
    return _API in sys.modules


def trace_parent_of(span: "Span") -> str:
    """The text that makes `span` the parent of spans elsewhere; empty unless it is sampled."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return ""
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def current_trace_parent() -> str:
    """`trace_parent_of` the current span; empty without a span."""
    if not may_have_spans():
        return ""
    from opentelemetry.trace import get_current_span

    return trace_parent_of(get_current_span())


def outside_of_spans() -> contextvars.Context:
    """The present context without a current span, for tasks that outlive it."""
    present = contextvars.copy_context()
    if may_have_spans():
        from opentelemetry.context import attach
        from opentelemetry.trace import INVALID_SPAN, set_span_in_context

        present.run(attach, set_span_in_context(INVALID_SPAN))
    return present


@contextmanager
def asking(tracer: "Tracer | None", name: str, **attributes: str | int) -> Iterator[None]:
    """Run the block, a request to another process, in a child span if the current is sampled."""
    if tracer is None or not current_trace_parent():
        yield
        return
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False
    ):
        yield
