"""Export to a collector by OTLP over HTTP: bounded, in the background, and quiet.

OpenTelemetry's exporters log every failed attempt. This module silences them and logs once that the
collector stops answering, and once that it answers again. Telemetry beyond the queue is dropped.
"""

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as ExportedHistogram
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.histograms import Histogram
from anabranch.common.runtime.logger import get_logger

ATTEMPT_S_MAX = 3.0
"""The longest time of one export, retries included."""
SPANS_WAITING_MAX = 4096
SPANS_AT_ONCE_MAX = 512
SPANS_EVERY_S = 1.0
METRICS_EVERY_S = 15.0

_NOISY = (
    "opentelemetry.exporter.otlp",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)

_CLOCK = SystemClock()

_log = get_logger(__name__)


class Outage:
    """Logs when the collector stops answering and when it answers again, once each."""

    def __init__(self, endpoint: str, signal: str) -> None:
        self._endpoint = endpoint
        self._signal = signal
        self._lasts = False

    def note(self, answered: bool) -> None:
        """Record the result of one export."""
        if answered == (not self._lasts):
            return
        self._lasts = not answered
        if answered:
            _log.info(
                "the telemetry collector answers again",
                signal=self._signal,
                endpoint=self._endpoint,
            )
        else:
            _log.warning(
                "the telemetry collector does not answer; telemetry is dropped",
                signal=self._signal,
                endpoint=self._endpoint,
                remedy=(
                    "start the collector or correct the OTLP endpoint; the service continues "
                    "without it"
                ),
            )


class _Spans(OTLPSpanExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(f"{endpoint}/v1/traces", timeout=ATTEMPT_S_MAX)
        self._outage = Outage(endpoint, "traces")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._outage.note(result is SpanExportResult.SUCCESS)
        return result


class _Metrics(OTLPMetricExporter):
    def __init__(self, endpoint: str, histograms: Sequence[Histogram]) -> None:
        super().__init__(f"{endpoint}/v1/metrics", timeout=ATTEMPT_S_MAX)
        self._outage = Outage(endpoint, "metrics")
        self._histograms = histograms
        self._begun_ns = _CLOCK.now_ns()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: object
    ) -> MetricExportResult:
        found = exported_histograms(self._histograms, self._begun_ns, _CLOCK.now_ns())
        told = with_more(metrics_data, found)
        result = super().export(told, timeout_millis, **options)
        self._outage.note(result is MetricExportResult.SUCCESS)
        return result


def with_more(data: MetricsData, found: Sequence[Metric]) -> MetricsData:
    """The data with more metrics of the one meter of a service. The exporter sends each resource,
    and each scope in it, once. Without metrics of the meter there are no more either."""
    if not data.resource_metrics:
        return data
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    grown = ScopeMetrics(scope.scope, [*scope.metrics, *found], scope.schema_url)
    return MetricsData(
        [
            ResourceMetrics(first.resource, [grown, *scopes], first.schema_url),
            *others,
        ]
    )


def exported_histograms(
    histograms: Sequence[Histogram], begun_ns: int, now_ns: int
) -> list[Metric]:
    """The histograms that have values, in OpenTelemetry's terms; times in Unix nanoseconds."""
    return [
        Metric(
            one.name,
            one.about,
            "s",
            ExportedHistogram(
                [_point(one, given, begun_ns, now_ns) for given in list(one.tallies)],
                AggregationTemporality.CUMULATIVE,
            ),
        )
        for one in histograms
        if one.tallies
    ]


def _point(
    histogram: Histogram, given: tuple[str, ...], begun_ns: int, now_ns: int
) -> HistogramDataPoint:
    tally = histogram.tallies[given]
    counts = list(tally.counts)
    return HistogramDataPoint(
        dict(zip(histogram.labels, given, strict=True)), begun_ns, now_ns, sum(counts), tally.sum,
        counts, histogram.bounds, tally.least, tally.most,
    )  # fmt: skip


class Collector:
    """Exports to one collector. `ratio`: the recorded share of the traces that begin here."""

    def __init__(self, endpoint: str, ratio: float, resource: Resource) -> None:
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._endpoint = endpoint.rstrip("/")
        self._provider = TracerProvider(
            ParentBased(TraceIdRatioBased(ratio)), resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _Spans(self._endpoint),
                max_queue_size=SPANS_WAITING_MAX,
                schedule_delay_millis=SPANS_EVERY_S * 1000,
                max_export_batch_size=SPANS_AT_ONCE_MAX,
            )
        )

    @property
    def tracer(self) -> Tracer:
        return self._provider.get_tracer("anabranch")

    def metric_reader(self, histograms: Sequence[Histogram]) -> MetricReader:
        """A reader that exports the metrics periodically, and the histograms with them."""
        return PeriodicExportingMetricReader(
            _Metrics(self._endpoint, histograms),
            export_interval_millis=METRICS_EVERY_S * 1000,
            export_timeout_millis=ATTEMPT_S_MAX * 1000,
        )

    def shutdown(self) -> None:
        """Export the queued spans and stop; may block for `ATTEMPT_S_MAX`."""
        self._provider.shutdown()
