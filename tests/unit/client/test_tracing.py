"""Appends belong to the traces of those who write; without a tracer nobody notices anything."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan

from anabranch.client import StreamSealed
from anabranch.client.block_spans import SPAN_NAME, SPANS_MAX
from anabranch.client.tracing import tracer_for
from anabranch.client.wire.control import SegmentDirectory
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.runtime.trace_context import trace_parent_of
from anabranch.common.runtime.tracing import current_trace_id
from anabranch.common.wire.messages import Append
from kit.client_bench import STREAM, WRITER, Bench, bench
from kit.fake_segstore import Fault
from kit.spans import RecordedSpans, UntouchableTracer


def sent(b: Bench) -> list[Append]:
    return [request for request in b.store.requests if isinstance(request, Append)]


def ids_of(span: ReadableSpan) -> str:
    """The W3C text of an ended span."""
    assert span.context is not None
    return trace_parent_of(NonRecordingSpan(span.context))


async def test_a_write_inside_a_span_is_a_span_below_it_that_the_store_can_continue() -> None:
    spans = RecordedSpans()
    async with bench(tracer=spans.tracer) as b, b.client.writer(STREAM, WRITER) as writer:
        with spans.tracer.start_as_current_span("work"):
            writer.write(b"one", key="k")
            writer.write_batch([b"two", b"three"])
            await writer.flush()

    (append,) = spans.named(SPAN_NAME)
    assert spans.parents()[SPAN_NAME] == "work"
    assert [request.trace_parent for request in sent(b)] == [ids_of(append)]
    assert append.attributes is not None
    assert append.attributes["anabranch.events"] == 3


async def test_callers_who_share_a_block_keep_their_own_traces_linked_to_the_first() -> None:
    spans = RecordedSpans()

    async def work(number: int) -> None:
        with spans.tracer.start_as_current_span(f"work {number}"):
            writer.write(b"event")
            await writer.flush()

    async with (
        bench(tracer=spans.tracer) as b,
        b.client.writer(STREAM, WRITER) as writer,
        asyncio.TaskGroup() as group,
    ):
        for number in range(SPANS_MAX + 2):
            group.create_task(work(number))

    first, *others = sorted(spans.named(SPAN_NAME), key=lambda span: span.start_time or 0)
    assert len(others) == SPANS_MAX - 1
    assert sent(b)[0].trace_parent == ids_of(first)
    assert [span.links[0].context.span_id for span in others if span.context] == [
        first.context.span_id for _ in others if first.context
    ]
    assert len({span.context.trace_id for span in (first, *others) if span.context}) == SPANS_MAX


async def test_without_a_span_around_it_a_write_makes_none() -> None:
    tracer = UntouchableTracer()
    async with bench(tracer=tracer) as b, b.client.writer(STREAM, WRITER) as writer:
        await writer.append(b"one")

    assert [request.trace_parent for request in sent(b)] == [""]


async def test_a_span_that_is_not_sampled_is_not_continued() -> None:
    unsampled = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("test")
    async with bench(tracer=UntouchableTracer()) as b, b.client.writer(STREAM, WRITER) as writer:
        with unsampled.start_as_current_span("work") as span:
            await writer.append(b"one")

    assert trace_parent_of(span) == ""
    assert [request.trace_parent for request in sent(b)] == [""]


async def test_without_a_tracer_a_traced_caller_costs_nothing() -> None:
    spans = RecordedSpans()
    async with bench() as b, b.client.writer(STREAM, WRITER) as writer:
        with spans.tracer.start_as_current_span("work"):
            await writer.append(b"one")

    assert spans.named(SPAN_NAME) == []
    assert [request.trace_parent for request in sent(b)] == [""]


async def test_a_resent_block_keeps_its_span_which_ends_with_the_acknowledgement() -> None:
    spans = RecordedSpans()
    async with bench(tracer=spans.tracer) as b, b.client.writer(STREAM, WRITER) as writer:
        drops = iter([Fault.DROP])
        b.store.fault = lambda way, message: (
            next(drops, None) if way == "in" and isinstance(message, Append) else None
        )
        with spans.tracer.start_as_current_span("work"):
            await writer.append(b"one")

    (append,) = spans.named(SPAN_NAME)
    assert [request.trace_parent for request in sent(b)] == [ids_of(append)] * len(sent(b))
    assert append.status.is_unset


async def test_what_was_not_stored_is_told_by_its_span() -> None:
    spans = RecordedSpans()
    async with bench(tracer=spans.tracer) as b:
        writer = await b.client.writer(STREAM, WRITER).__aenter__()
        b.seal()
        with spans.tracer.start_as_current_span("work"), pytest.raises(StreamSealed):
            await writer.append(b"one")
        await writer.close()

    (append,) = spans.named(SPAN_NAME)
    assert not append.status.is_ok
    assert append.attributes is not None
    assert append.attributes["error.type"] == "stream-sealed"


async def test_the_work_behind_a_writer_is_no_part_of_the_span_that_opened_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spans, seen = RecordedSpans(), list[str]()
    connect = SegmentDirectory.connect

    async def watched(
        directory: SegmentDirectory, segment: str
    ) -> tuple[SegmentStoreConnection, SegmentLocation]:
        seen.append(current_trace_id())
        return await connect(directory, segment)

    monkeypatch.setattr(SegmentDirectory, "connect", watched)
    async with bench(tracer=spans.tracer) as b:
        with spans.tracer.start_as_current_span("work"):
            writer = await b.client.writer(STREAM, WRITER).__aenter__()
            await writer.append(b"one")
        await writer.close()

    assert seen == [""]


def test_a_program_that_set_up_a_tracer_is_traced_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = RecordedSpans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    tracer = tracer_for(None)

    assert tracer is not None
    tracer.start_span("work").end()
    assert spans.named("work")


def test_a_program_that_set_nothing_up_has_no_tracer() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert tracer_for(None) is None
