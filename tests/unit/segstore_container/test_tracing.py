"""Traced requests have spans down to the sync; nobody else costs a span."""

from opentelemetry.sdk.trace import ReadableSpan

from anabranch.common.errors import DiskFailed
from anabranch.common.runtime.trace_context import trace_parent_of
from anabranch.common.wire.messages import Appended, Failed
from anabranch.segstore.shell.container.tracing import HELD_SPANS_MAX, SYNC_SPAN, SYNC_SPANS_MAX
from kit.container_driver import ContainerDriver
from kit.spans import RecordedSpans, UntouchableTracer

APPEND = "segstore append"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Traced:
    """A container with an open session, and callers that are traced."""

    def __init__(self) -> None:
        self.spans = RecordedSpans()
        self.driver = ContainerDriver(tracer=self.spans.tracer)
        self.driver.create()
        self.session = self.driver.setup()
        self.driver.commit()
        self.driver.take_replies()

    def append(self, first: int, count: int = 1) -> None:
        """An append inside a trace of its own."""
        with self.spans.tracer.start_as_current_span(f"caller {first}") as caller:
            parent = trace_parent_of(caller)
        self.driver.append(self.session, first, [b"x"] * count, trace_parent=parent)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_an_append_is_a_span_below_its_caller_and_its_sync_one_below_it() -> None:
    traced = Traced()
    traced.append(1, count=3)
    assert traced.spans.named(APPEND) == []  # not before it is answered
    traced.driver.commit()

    assert traced.spans.parents() == {"caller 1": None, APPEND: "caller 1", SYNC_SPAN: APPEND}
    (append,), (sync,) = traced.spans.named(APPEND), traced.spans.named(SYNC_SPAN)
    assert attributes(append)["anabranch.events"] == 3
    assert attributes(sync) == {"anabranch.bytes": 100, "anabranch.frames": 1}
    assert traced.driver.commits.last is not None
    assert sync.end_time == traced.driver.commits.last.ended_ns


def test_a_commit_is_recorded_for_a_few_and_the_others_link_to_the_first_record() -> None:
    traced = Traced()
    for number in range(1, SYNC_SPANS_MAX + 3):
        traced.append(number)
    traced.driver.commit()

    syncs = traced.spans.named(SYNC_SPAN)
    first = syncs[0].context
    linked = [span for span in traced.spans.named(APPEND) if span.links]
    assert len(syncs) == SYNC_SPANS_MAX
    assert len(linked) == 2
    assert first is not None
    assert {span.links[0].context.span_id for span in linked} == {first.span_id}


def test_the_next_commit_is_recorded_anew() -> None:
    traced = Traced()
    for number in range(1, SYNC_SPANS_MAX + 1):
        traced.append(number)
    traced.driver.commit()
    traced.append(SYNC_SPANS_MAX + 1)
    traced.driver.commit()

    assert len(traced.spans.named(SYNC_SPAN)) == SYNC_SPANS_MAX + 1


def test_a_duplicate_of_what_is_durable_ends_at_once_without_a_sync() -> None:
    traced = Traced()
    traced.append(1)
    traced.driver.commit()
    traced.append(1)

    assert len(traced.spans.named(APPEND)) == 2
    assert len(traced.spans.named(SYNC_SPAN)) == 1


def test_a_refused_append_ends_its_span_with_the_code() -> None:
    traced = Traced()
    traced.append(5)

    (append,) = traced.spans.named(APPEND)
    assert attributes(append)["error.type"] == "writer-expired"
    assert not append.status.is_ok


def test_a_failing_log_ends_every_span_as_failed() -> None:
    traced = Traced()
    traced.append(1)
    traced.driver.container.log_failed(DiskFailed("the disk is gone"))

    (append,) = traced.spans.named(APPEND)
    assert attributes(append)["error.type"] == "disk-failed"


def test_a_control_request_is_traced_like_an_append() -> None:
    spans = RecordedSpans()
    driver = ContainerDriver(tracer=spans.tracer)
    with spans.tracer.start_as_current_span("caller") as caller:
        driver.create(trace_parent=trace_parent_of(caller))
    driver.commit()

    assert spans.parents()[SYNC_SPAN] == "segstore create segment"


def test_more_traced_requests_than_are_held_are_served_without_a_span() -> None:
    traced = Traced()
    for number in range(1, HELD_SPANS_MAX + 2):
        traced.append(number)
    traced.driver.commit()

    assert len(traced.spans.named(APPEND)) == HELD_SPANS_MAX
    (ack,) = traced.driver.take_replies()
    assert isinstance(ack, Appended)
    assert ack.last_event_number == HELD_SPANS_MAX + 1


def test_what_is_not_traced_or_not_sampled_makes_no_span() -> None:
    driver = ContainerDriver(tracer=UntouchableTracer())
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"x"])
    driver.append(session, 2, [b"x"], trace_parent=UNSAMPLED)
    driver.append(session, 3, [b"x"], trace_parent="nonsense")
    driver.commit()

    assert not [reply for reply in driver.take_replies() if isinstance(reply, Failed)]


def test_without_a_tracer_a_traced_append_is_only_an_append() -> None:
    spans = RecordedSpans()
    driver = ContainerDriver()
    driver.create()
    with spans.tracer.start_as_current_span("caller") as caller:
        driver.append(driver.setup(), 1, [b"x"], trace_parent=trace_parent_of(caller))
    driver.commit()

    assert [span.name for span in spans.ended] == ["caller"]


def test_appends_are_counted_by_what_became_of_them() -> None:
    traced = Traced()
    metrics, before = traced.driver.metrics, traced.driver.metrics.append_bytes
    block = traced.driver.append(traced.session, 1, [b"x", b"y"])
    traced.driver.append(traced.session, 1, [b"x", b"y"])
    traced.driver.append(traced.session, 7, [b"gap"])

    assert (metrics.appends, metrics.append_events, metrics.duplicates) == (1, 2, 1)
    assert metrics.append_bytes - before == len(block)
    assert dict(metrics.refused) == {("event-gap",): 1}
