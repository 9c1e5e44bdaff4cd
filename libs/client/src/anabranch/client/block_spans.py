"""The spans that an append adds to the traces of its callers.

A block may hold events of many callers. Each caller that is inside a sampled span gets a span of
its own, from its first event in the block to the block's acknowledgement: at most `SPANS_MAX` per
block, so that a crowd of callers costs no more. The store can continue only one trace, because a
packet has one `trace_parent`: the first caller's. The others' spans link to that one.

Only `tracing` imports this module, and only for programs that trace.
"""

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.trace_context import trace_parent_of
from anabranch.common.runtime.tracing import end_failed

SPANS_MAX = 8
SPAN_NAME = "client append"


class BlockSpans:
    """The spans of one block on its way. Owned by the outbox that holds the block."""

    __slots__ = ("_callers", "_spans", "_tracer")

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._callers: list[Span] = []
        self._spans: list[Span] = []

    @property
    def trace_parent(self) -> str:
        """The trace parent of the block's packet; empty once the spans have ended."""
        return trace_parent_of(self._spans[0]) if self._spans else ""

    def add(self, caller: Span) -> None:
        """Events written inside `caller` are in the block."""
        if caller in self._callers or len(self._spans) >= SPANS_MAX:
            return
        links = [Link(span.get_span_context()) for span in self._spans[:1]]
        context = trace.set_span_in_context(caller)
        self._callers.append(caller)
        self._spans.append(
            self._tracer.start_span(SPAN_NAME, context, SpanKind.CLIENT, links=links)
        )

    def sent(self, segment: str, count: int, size: int) -> None:
        """The block of `count` events and `size` bytes leaves for its segment."""
        for span in self._spans:
            span.set_attributes(
                {
                    "anabranch.segment": segment,
                    "anabranch.events": count,
                    "anabranch.bytes": size,
                }
            )

    def acknowledged(self) -> None:
        """All of the block is durable."""
        spans, self._spans = self._spans, []
        for span in spans:
            span.end()

    def failed(self, error: AnabranchError) -> None:
        """The block's outcome will not be known here."""
        spans, self._spans = self._spans, []
        for span in spans:
            end_failed(span, error)


def joined(spans: BlockSpans | None, tracer: Tracer) -> BlockSpans | None:
    """`spans` with the current span among the callers, if that one is sampled."""
    caller = trace.get_current_span()
    context = caller.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return spans
    spans = spans or BlockSpans(tracer)
    spans.add(caller)
    return spans
