"""What a store counts. Plain numbers, added to on the event loop's thread and read when asked.

Only three things are measured by histograms, each at most once per frame, group commit or flush:
a value told to a histogram costs some microseconds, which no append shall pay.
"""

from collections import Counter
from collections.abc import Callable

from anabranch.common.runtime.metrics import Metrics, silent_metrics

PREFIX = "anabranch_segstore_"


class StoreMetrics:
    """The metrics of one store. What holds a number of its own is added by `watch`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.appends = 0
        self.append_bytes = 0
        self.append_events = 0
        self.duplicates = 0
        self.refused: Counter[tuple[str, ...]] = Counter()
        self.reads = 0
        self.read_bytes = 0
        self.commits = 0
        self.commit_bytes = 0
        self.flushes = 0
        self.flush_bytes = 0
        self.flush_failures = 0
        self.segment_loads = 0
        self.segment_evictions = 0
        self.residency_exceeded = 0
        self._count_appends()
        self._count_the_rest()
        self._count_residency()
        histogram = metrics.histogram
        self.append_seconds = histogram(
            f"{PREFIX}append_seconds",
            "From accepting the first operation of a frame to answering it",
        )
        self.sync_seconds = histogram(
            f"{PREFIX}journal_sync_seconds", "Writing and syncing a group commit"
        )
        self.flush_seconds = histogram(
            f"{PREFIX}flush_seconds", "A flush of one container to tier 2"
        )

    def _count_appends(self) -> None:
        count = self._metrics.counter
        count(f"{PREFIX}appends_total", "Appends accepted", lambda: self.appends)
        count(
            f"{PREFIX}append_bytes_total",
            "Bytes of the appends accepted",
            lambda: self.append_bytes,
        )
        count(
            f"{PREFIX}append_events_total",
            "Events of the appends accepted",
            lambda: self.append_events,
        )
        count(
            f"{PREFIX}duplicates_total",
            "Appends that were stored before",
            lambda: self.duplicates,
        )
        count(
            f"{PREFIX}refused_total",
            "Appends and control requests refused by a container",
            lambda: self.refused,
            ("code",),
        )

    def _count_the_rest(self) -> None:
        count = self._metrics.counter
        count(f"{PREFIX}reads_total", "Reads answered", lambda: self.reads)
        count(f"{PREFIX}read_bytes_total", "Bytes returned by reads", lambda: self.read_bytes)
        count(f"{PREFIX}commits_total", "Group commits of the journal", lambda: self.commits)
        count(
            f"{PREFIX}commit_bytes_total",
            "Bytes written by group commits",
            lambda: self.commit_bytes,
        )
        count(f"{PREFIX}flushes_total", "Flushes to tier 2", lambda: self.flushes)
        count(f"{PREFIX}flush_bytes_total", "Bytes moved to tier 2", lambda: self.flush_bytes)
        count(
            f"{PREFIX}flush_failures_total",
            "Flushes that failed and are repeated",
            lambda: self.flush_failures,
        )

    def _count_residency(self) -> None:
        count = self._metrics.counter
        count(
            f"{PREFIX}segment_loads_total",
            "Segments and tombstones looked up in tier 2",
            lambda: self.segment_loads,
        )
        count(
            f"{PREFIX}segment_evictions_total",
            "Segments and tombstones that left the memory for tier 2",
            lambda: self.segment_evictions,
        )
        count(
            f"{PREFIX}residency_exceeded_total",
            "Times that more segments were in use than are to be in memory",
            lambda: self.residency_exceeded,
        )

    def watch(
        self,
        *,
        pending: Callable[[], int],
        untiered: Callable[[], int],
        cached: Callable[[], int],
        containers: Callable[[], int],
        resident: Callable[[], int],
        connections: Callable[[], int],
    ) -> None:
        """Add what the store's parts know at any moment; once."""
        gauge = self._metrics.gauge
        gauge(f"{PREFIX}pending_bytes", "Bytes waiting for the journal", pending)
        gauge(f"{PREFIX}untiered_bytes", "Bytes that only the journal holds", untiered)
        gauge(f"{PREFIX}cache_bytes", "Bytes kept in memory for reads", cached)
        gauge(f"{PREFIX}containers_open", "Containers served", containers)
        gauge(f"{PREFIX}segments_resident", "Segments and tombstones in memory", resident)
        gauge(f"{PREFIX}connections", "TCP connections open", connections)

    def refuse(self, code: str) -> None:
        """A container refused a request."""
        self.refused[code,] += 1

    def flushed(self, size: int, seconds: float) -> None:
        """A flush moved `size` bytes."""
        self.flushes += 1
        self.flush_bytes += size
        self.flush_seconds.record(seconds)


def uncounted() -> StoreMetrics:
    """For containers that no store counts."""
    return StoreMetrics(silent_metrics())
