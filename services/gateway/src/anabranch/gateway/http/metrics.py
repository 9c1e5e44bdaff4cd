"""What the gateway counts, for Prometheus; one registry per application."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The gateway's counters. A route is its template, so that their number is bounded."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "anabranch_gateway_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "anabranch_gateway_request_seconds",
            "Time to answer, body included",
            ["route"],
            buckets=_LATENCY_S,
            registry=self._registry,
        )
        self.events_in = Counter(
            "anabranch_gateway_events_in", "Events stored", registry=self._registry
        )
        self.events_out = Counter(
            "anabranch_gateway_events_out", "Events returned", registry=self._registry
        )
        self.in_flight = Gauge(
            "anabranch_gateway_requests_in_flight",
            "Requests being answered",
            registry=self._registry,
        )

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)
