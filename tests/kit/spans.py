"""Tracers for tests: one that keeps its spans, and one that must not be used."""

from typing import NoReturn

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Tracer


class RecordedSpans:
    """Everything that `tracer` made and ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def parents(self) -> dict[str, str | None]:
        """Name of each span → name of its parent."""
        names = {span.context.span_id: span.name for span in self.ended if span.context}
        return {
            span.name: names.get(span.parent.span_id) if span.parent else None
            for span in self.ended
        }

    def trace_ids(self) -> set[int]:
        return {span.context.trace_id for span in self.ended if span.context}


class UntouchableTracer(Tracer):
    """Fails whoever makes a span."""

    def start_span(self, name: str, *_arguments: object, **_options: object) -> Span:
        raise AssertionError(f"the span {name} was made")

    def start_as_current_span(self, name: str, *_: object, **__: object) -> NoReturn:
        raise AssertionError(f"the span {name} was made")
