"""Telemetry: what is counted is shown, what is traced is passed on, and off means off."""

import io
import json
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import trace
from prometheus_client.parser import text_string_to_metric_families

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.runtime import otlp
from anabranch.common.runtime.logs import configure_logs
from anabranch.common.runtime.otlp import Outage
from anabranch.common.runtime.settings import NO_TARGET, TelemetryTarget
from anabranch.common.runtime.speaking import enveloped
from anabranch.common.runtime.telemetry import Telemetry, open_telemetry
from anabranch.common.runtime.trace_context import asking
from anabranch.common.runtime.tracing import continued, current_trace_id, is_sampled
from kit.spans import RecordedSpans, UntouchableTracer

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-2] + "00"
THREAD_S_MAX = 30.0


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Exports give up soon, and are over before the next test: while it repeats one in the
    background the library draws from `random`, which Hypothesis takes for the doing of its test."""
    monkeypatch.setattr(otlp, "ATTEMPT_S_MAX", 0.2)
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(THREAD_S_MAX)
        assert not thread.is_alive(), thread.name


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers


@pytest.fixture
def telemetry() -> Telemetry:
    return open_telemetry("demo", NO_TARGET, "instance-1")


def shown(telemetry: Telemetry) -> dict[str, float]:
    text = telemetry.metrics.exposition().decode()
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_metric_is_shown_under_its_own_name_with_what_it_is_at_the_moment(
    telemetry: Telemetry,
) -> None:
    counted: dict[tuple[str, ...], int] = {("get", "a"): 1}
    telemetry.metrics.counter("demo_asked_total", "Asked", lambda: counted, ("verb", "of"))
    telemetry.metrics.counter("demo_sent_bytes_total", "Sent", lambda: 7)
    telemetry.metrics.gauge("demo_waiting_bytes", "Waiting", lambda: 3)
    took = telemetry.metrics.histogram("demo_took_seconds", "Took", bounds=(1.0, 2.0))

    counted["get", "a"] += 1
    took.record(1.5)

    found = shown(telemetry)
    assert found["demo_asked_total['a', 'get']"] == 2
    assert found["demo_sent_bytes_total[]"] == 7
    assert found["demo_waiting_bytes[]"] == 3
    assert found["demo_took_seconds_bucket['2.0']"] == 1
    assert found["demo_took_seconds_sum[]"] == 1.5


def test_a_process_says_which_service_it_is(telemetry: Telemetry) -> None:
    telemetry.metrics.gauge("demo_up", "Up", lambda: 1)

    text = telemetry.metrics.exposition().decode()
    assert 'service_name="anabranch-demo"' in text
    assert 'service_instance_id="instance-1"' in text


def test_a_name_is_defined_once(telemetry: Telemetry) -> None:
    telemetry.metrics.gauge("demo_up", "Up", lambda: 1)

    with pytest.raises(AssertionError, match="twice"):
        telemetry.metrics.gauge("demo_up", "Up", lambda: 1)


def test_without_a_collector_there_is_no_tracer(telemetry: Telemetry) -> None:
    assert telemetry.tracer is None


def test_a_context_travels_by_header_and_is_continued() -> None:
    spans = RecordedSpans()
    with spans.tracer.start_as_current_span("outer"), asking(spans.tracer, "ask"):
        headers = enveloped(b"question").headers()
    trace_parent = Envelope.received(b"question", headers).trace_parent
    with continued(spans.tracer, "serve", trace_parent, kind="x"):
        assert current_trace_id() != ""

    assert spans.parents() == {"outer": None, "ask": "outer", "serve": "ask"}
    assert len(spans.trace_ids()) == 1


@pytest.mark.parametrize("trace_parent", ["", "nonsense", UNSAMPLED])
def test_what_is_not_sampled_is_not_continued(trace_parent: str) -> None:
    tracer = UntouchableTracer()

    with continued(tracer, "serve", trace_parent), asking(tracer, "ask"):
        assert enveloped(b"question").headers() is None


def test_only_a_well_formed_sampled_context_counts_as_sampled() -> None:
    assert [is_sampled(text) for text in (SAMPLED, UNSAMPLED, "", "x")] == [True] + 3 * [False]


def test_a_log_line_inside_a_span_names_the_trace() -> None:
    lines = io.StringIO()
    configure_logs("demo", "info", lines)
    spans = RecordedSpans()
    with spans.tracer.start_as_current_span("outer"):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")

    inside, outside = map(json.loads, lines.getvalue().splitlines())
    assert inside["trace_id"] == f"{spans.trace_ids().pop():032x}"
    assert len(inside["span_id"]) == 16
    assert "trace_id" not in outside


def test_an_outage_is_told_when_it_begins_and_when_it_ends() -> None:
    lines = io.StringIO()
    configure_logs("demo", "info", lines)
    outage = Outage("http://collector", "traces")
    for answered in (True, False, False, False, True, True, False):
        outage.note(answered)

    told = [json.loads(line)["level"] for line in lines.getvalue().splitlines()]
    assert told == ["warning", "info", "warning"]


def test_a_collector_that_is_not_there_neither_fails_a_service_nor_keeps_it_from_ending() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        target = TelemetryTarget(f"http://127.0.0.1:{port}")
        telemetry = open_telemetry("demo", target, "instance-1")
        assert telemetry.tracer is not None
        for number in range(500):
            telemetry.tracer.start_span(f"span {number}").end()

        telemetry.close(0.01)  # returns though the collector never answers


def test_the_end_does_not_wait_for_an_export_beyond_its_deadline(telemetry: Telemetry) -> None:
    gate, ended = threading.Event(), threading.Event()

    def export() -> None:
        gate.wait(10)
        ended.set()

    Telemetry(telemetry.metrics, None, [export]).close(0.01)

    assert not ended.is_set()
    gate.set()
    assert ended.wait(10)


def test_the_ratio_decides_about_traces_that_begin_here() -> None:
    nobody = TelemetryTarget("http://127.0.0.1:9", trace_ratio=0.0)
    telemetry = open_telemetry("demo", nobody, "instance-1")
    assert telemetry.tracer is not None
    assert not telemetry.tracer.start_span("unwanted").is_recording()
    with continued(telemetry.tracer, "wanted", SAMPLED):
        assert trace.get_current_span().is_recording()
    telemetry.close(0.01)
