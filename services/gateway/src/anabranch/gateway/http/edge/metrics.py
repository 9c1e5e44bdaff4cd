"""The metrics of the gateway; one object per application."""

from collections import Counter
from collections.abc import Callable, Mapping

from anabranch.common.runtime.metrics import Metrics
from anabranch.gateway.tunnels.pump import Tunnelled


class GatewayMetrics:
    """Counts of requests and connections. The label `route` is the template of a path."""

    def __init__(
        self,
        metrics: Metrics,
        open_writers: Callable[[], int],
        open_tables: Callable[[], int],
        open_producers: Callable[[], int],
        group_readers: Callable[[], Mapping[tuple[str, ...], int]],
    ) -> None:
        self.exposition = metrics.exposition
        self.connections = 0
        self.in_flight = 0
        self.body_bytes = 0
        self.events_in = self.events_out = 0
        self.entries_in = self.entries_out = 0
        self.records_in = self.records_out = 0
        self.tunnels = Tunnelled()
        self._answered: Counter[tuple[str, ...]] = Counter()
        self._cut_off: Counter[tuple[str, ...]] = Counter()
        metrics.gauge(
            "anabranch_gateway_connections", "Open HTTP connections", lambda: self.connections
        )
        metrics.counter(
            "anabranch_gateway_connections_cut_off_total",
            "Connections refused, or ended because their headers were too slow or too large",
            lambda: self._cut_off,
            ("reason",),
        )
        metrics.counter(
            "anabranch_gateway_requests_total",
            "Requests answered",
            lambda: self._answered,
            ("method", "route", "status"),
        )
        self._seconds = metrics.histogram(
            "anabranch_gateway_request_seconds", "Time to answer, body included", ("route",)
        )
        metrics.gauge(
            "anabranch_gateway_requests_in_flight",
            "Requests being answered",
            lambda: self.in_flight,
        )
        metrics.counter(
            "anabranch_gateway_body_bytes_total",
            "Bytes of request bodies received",
            lambda: self.body_bytes,
        )
        self._define_events(metrics, open_writers)
        self._define_tables(metrics, open_tables)
        self._define_topics(metrics, open_producers)
        self._define_tunnels(metrics)
        metrics.gauge(
            "anabranch_gateway_group_readers",
            "Readers of groups held for callers",
            group_readers,
            ("state",),
        )

    def _define_events(self, metrics: Metrics, open_writers: Callable[[], int]) -> None:
        metrics.counter(
            "anabranch_gateway_events_in_total", "Events stored", lambda: self.events_in
        )
        metrics.counter(
            "anabranch_gateway_events_out_total", "Events returned", lambda: self.events_out
        )
        metrics.gauge(
            "anabranch_gateway_open_writers",
            "Streams and transactions with an open writer",
            open_writers,
        )

    def _define_tables(self, metrics: Metrics, open_tables: Callable[[], int]) -> None:
        metrics.counter(
            "anabranch_gateway_entries_in_total",
            "Entries of tables put or removed",
            lambda: self.entries_in,
        )
        metrics.counter(
            "anabranch_gateway_entries_out_total",
            "Entries of tables and their changes returned",
            lambda: self.entries_out,
        )
        metrics.gauge("anabranch_gateway_open_tables", "Open key-value tables", open_tables)

    def _define_topics(self, metrics: Metrics, open_producers: Callable[[], int]) -> None:
        metrics.counter(
            "anabranch_gateway_records_in_total", "Records produced", lambda: self.records_in
        )
        metrics.counter(
            "anabranch_gateway_records_out_total", "Records returned", lambda: self.records_out
        )
        metrics.gauge(
            "anabranch_gateway_open_producers", "Topics with an open producer", open_producers
        )

    def _define_tunnels(self, metrics: Metrics) -> None:
        metrics.gauge(
            "anabranch_gateway_tunnels",
            "Connections of clients to segment stores through the gateway",
            lambda: self.tunnels.open,
        )
        metrics.counter(
            "anabranch_gateway_tunnel_bytes_total",
            "Bytes that tunnels carried",
            lambda: {
                ("to_store",): self.tunnels.to_stores,
                ("from_store",): self.tunnels.from_stores,
            },
            ("direction",),
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._answered[method, route, str(status)] += 1
        self._seconds.record(seconds, {"route": route})

    def cut_off(self, reason: str) -> None:
        """Count a connection that was refused or ended; the reason is an error's code."""
        self._cut_off[(reason,)] += 1
