"""OpenTelemetry for one service: metrics always, traces and export when a collector is named.

    no collector    metrics for Prometheus; the tracer is None, and the code creates no spans
    a collector     spans and the same metrics also go there by OTLP over HTTP, in threads of
                    their own, through bounded queues, which drop the excess

Nothing here is global: `run_service` opens the telemetry, passes it to the service in its
`Lifetime`, and closes it last. A collector that does not answer costs a log line and, at the end,
`FLUSH_S_MAX`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector
from prometheus_client.utils import floatToGoString

from anabranch.common.runtime.histograms import Histogram
from anabranch.common.runtime.metrics import Metrics, silent_metrics
from anabranch.common.runtime.settings import TelemetryTarget

if TYPE_CHECKING:
    from anabranch.common.runtime.otlp import Collector

FLUSH_S_MAX = 2.0


class Telemetry:
    """The metrics and the tracer of a service. `tracer` is None while tracing is off."""

    def __init__(
        self,
        metrics: Metrics,
        tracer: Tracer | None = None,
        shutdowns: Sequence[Callable[[], object]] = (),
    ) -> None:
        self.metrics = metrics
        self.tracer = tracer
        self._shutdowns = tuple(shutdowns)

    def close(self, seconds_max: float = FLUSH_S_MAX) -> None:
        """Export the queued telemetry and stop; block for at most `seconds_max`."""

        def end() -> None:
            for shutdown in self._shutdowns:
                shutdown()

        if self._shutdowns:
            ending = threading.Thread(target=end, name="telemetry-end", daemon=True)
            ending.start()
            ending.join(seconds_max)


def open_telemetry(service: str, target: TelemetryTarget, instance: str) -> Telemetry:
    """Open the telemetry of a service; `instance` distinguishes its processes."""
    resource = Resource(
        {
            "service.name": f"anabranch-{service}",
            "service.version": version("anabranch-common"),
            "service.instance.id": instance,
        }
    )
    collector = _collector(target, resource) if target.otlp_endpoint else None
    histograms: list[Histogram] = []
    registry = CollectorRegistry()
    registry.register(_ShownHistograms(histograms))
    readers: list[MetricReader] = [PrometheusMetricReader(False, "", False, registry=registry)]
    if collector is not None:
        readers.append(collector.metric_reader(histograms))
    provider = MeterProvider(readers, resource, AlwaysOffExemplarFilter(), shutdown_on_exit=False)
    meter = provider.get_meter("anabranch")
    metrics = Metrics(meter, lambda: generate_latest(registry), histograms)
    if collector is None:
        return Telemetry(metrics)
    return Telemetry(metrics, collector.tracer, (collector.shutdown, provider.shutdown))


class _ShownHistograms(PrometheusCollector):
    """Histograms with values, in Prometheus' terms."""

    def __init__(self, histograms: Sequence[Histogram]) -> None:
        self._histograms = histograms

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See `prometheus_client.registry.Collector`."""
        for one in self._histograms:
            if not one.tallies:
                continue
            family = HistogramMetricFamily(one.name, one.about, labels=one.labels)
            bounds = [*map(floatToGoString, one.bounds), "+Inf"]
            for given, tally in list(one.tallies.items()):
                counts = list(accumulate(tally.counts))
                family.add_metric(given, list(zip(bounds, counts, strict=True)), tally.sum)
            yield family


def _collector(target: TelemetryTarget, resource: Resource) -> "Collector":
    # Imported here because it brings a second HTTP library, which most processes never need.
    from anabranch.common.runtime.otlp import Collector

    return Collector(target.otlp_endpoint, target.trace_ratio, resource)


def silent_telemetry() -> Telemetry:
    """Telemetry that is never exported, for parts that run outside a service."""
    return Telemetry(silent_metrics())
