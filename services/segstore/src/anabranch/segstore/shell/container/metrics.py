"""The metrics of a store: plain numbers, incremented on the event loop's thread and read on demand.

Only three values are histograms, and each is recorded at most once per frame, group commit or
flush, not for every append.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from anabranch.common.errors import Defect
from anabranch.common.runtime.metrics import Metrics, silent_metrics
from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.ports_replica import FollowerFacts, ReplicationFacts
from anabranch.segstore.shell.container.throttle import Source

PREFIX = "anabranch_segstore_"


class StoreMetrics:
    """The metrics of one store. `watch` adds the values that other objects keep."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.appends = 0
        self.append_bytes = 0
        self.append_events = 0
        self.duplicates = 0
        self.refused: Counter[tuple[str, ...]] = Counter()
        self.reads = 0
        self.read_bytes = 0
        self.corrupt_chunks = 0
        self.commits = 0
        self.commit_bytes = 0
        self.flushes = 0
        self.flush_bytes = 0
        self.flush_failures = 0
        self.rewritten_bytes = 0
        self.load_reports = 0
        self.load_report_failures = 0
        self.segment_loads = 0
        self.segment_evictions = 0
        self.residency_exceeded = 0
        self.defects = 0
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

    def count_append(self, append: AppendOperation) -> None:
        """Count one append."""
        self.appends += 1
        self.append_bytes += len(append.payload)
        self.append_events += append.event_count

    def count_group(self, appends: Sequence[AppendOperation]) -> None:
        """Count the appends of a group."""
        self.appends += len(appends)
        self.append_bytes += sum(len(append.payload) for append in appends)
        self.append_events += sum(append.event_count for append in appends)

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
            "Appends that were already stored",
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
        count(
            f"{PREFIX}corrupt_chunks_total",
            "Reads that met a damaged object in tier 2",
            lambda: self.corrupt_chunks,
        )
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
            "Flushes that failed; the store retries them",
            lambda: self.flush_failures,
        )
        count(
            f"{PREFIX}rewritten_bytes_total",
            "Live bytes copied out of mostly dead objects of tier 2",
            lambda: self.rewritten_bytes,
        )
        count(
            f"{PREFIX}defects_total",
            "Unexpected errors; each ended one container, which is opened again",
            lambda: self.defects,
        )
        count(f"{PREFIX}load_reports_total", "Load reports sent", lambda: self.load_reports)
        count(
            f"{PREFIX}load_report_failures_total",
            "Load reports that could not be sent",
            lambda: self.load_report_failures,
        )

    def _count_residency(self) -> None:
        count = self._metrics.counter
        count(
            f"{PREFIX}segment_loads_total",
            "Segments and tombstones loaded from tier 2",
            lambda: self.segment_loads,
        )
        count(
            f"{PREFIX}segment_evictions_total",
            "Segments and tombstones evicted from memory to tier 2",
            lambda: self.segment_evictions,
        )
        count(
            f"{PREFIX}residency_exceeded_total",
            "Times that the segments in use exceeded the memory setting",
            lambda: self.residency_exceeded,
        )

    def watch(
        self,
        *,
        pending: Callable[[], int],
        untiered: Callable[[], int],
        cached: Callable[[], Mapping[tuple[str, ...], int]],
        unsent: Callable[[], int],
        containers: Callable[[], int],
        states: Callable[[], Mapping[tuple[str, ...], int]],
        resident: Callable[[], int],
        connections: Callable[[], int],
        unfinished: Callable[[], int],
        granules: Callable[[], Mapping[tuple[str, ...], int]],
        dead: Callable[[], int],
    ) -> None:
        """Add the values that the store's parts keep themselves. Call it once."""
        self._metrics.counter(
            f"{PREFIX}read_ahead_total",
            "Pieces of old data: found in memory, not found, or evicted without a read",
            granules,
            ("outcome",),
        )
        gauge = self._metrics.gauge
        gauge(f"{PREFIX}pending_bytes", "Bytes waiting for the journal", pending)
        gauge(f"{PREFIX}untiered_bytes", "Bytes that only the journal holds", untiered)
        gauge(f"{PREFIX}cache_bytes", "Bytes kept in memory for reads", cached, ("kind",))
        gauge(f"{PREFIX}unsent_bytes", "Bytes of answers that clients have not taken", unsent)
        gauge(f"{PREFIX}containers_open", "Containers served", containers)
        gauge(
            f"{PREFIX}containers",
            "Containers placed on this store",
            states,
            ("state",),
        )
        gauge(f"{PREFIX}segments_resident", "Segments and tombstones in memory", resident)
        gauge(f"{PREFIX}connections", "TCP connections open", connections)
        gauge(f"{PREFIX}unfinished_bytes", "Bytes reserved for incomplete packets", unfinished)
        gauge(
            f"{PREFIX}tier2_dead_bytes",
            "Dead bytes in objects of tier 2 of which other bytes live",
            dead,
        )

    def watch_journal(
        self,
        *,
        live_size: Callable[[], int],
        outstanding_s: Callable[[], float],
        ratios: Callable[[], Mapping[Source, float]],
        refused: Counter[tuple[str, ...]],
    ) -> None:
        """Add the values that show how full the store is, by source. Call it once."""
        gauge = self._metrics.gauge
        gauge(f"{PREFIX}journal_bytes", "Bytes of journal files that a start would read", live_size)
        gauge(
            f"{PREFIX}journal_commit_outstanding_seconds",
            "Age of the group commit in progress",
            outstanding_s,
        )
        gauge(
            f"{PREFIX}throttle_ratio",
            "Share of its limit that each source of back-pressure takes",
            lambda: {(source.value,): ratio for source, ratio in ratios().items()},
            ("source",),
        )
        self._metrics.counter(
            f"{PREFIX}throttle_refused_total",
            "Operations refused because a source of back-pressure was full",
            lambda: refused,
            ("source",),
        )

    def watch_lease(self, held: Callable[[], bool]) -> None:
        """Add whether the store holds its session's lease. Call it once, if logs are shared."""
        self._metrics.gauge(
            f"{PREFIX}lease_held",
            "1 while the store holds its session's lease, which containers with shared logs need",
            lambda: int(held()),
        )

    def watch_replication(self, facts: Callable[[], Sequence[ReplicationFacts]]) -> None:
        """Add the replication of the logs that the store leads. Call it once, if it replicates.

        `facts` is called from other threads.
        """
        gauge = self._metrics.gauge
        gauge(
            f"{PREFIX}replicas",
            "Replicas of the log of a container that the store leads",
            lambda: {(str(one.container),): 1 + len(one.followers) for one in facts()},
            ("container",),
        )
        gauge(
            f"{PREFIX}replicas_in_sync",
            "Copies of the log of a container that are in sync, the leader's included",
            lambda: {(str(one.container),): len(one.isr) for one in facts()},
            ("container",),
        )
        gauge(
            f"{PREFIX}under_replicated",
            "Containers with a replica whose copy of the log is not in sync",
            lambda: sum(len(one.isr) <= len(one.followers) for one in facts()),
        )
        gauge(
            f"{PREFIX}replicas_short",
            "Containers that refuse appends, because too few copies are in sync",
            lambda: sum(len(one.isr) < one.isr_min for one in facts()),
        )
        gauge(
            f"{PREFIX}replica_lag_bytes",
            "Bytes of the log that a follower has not acknowledged",
            lambda: _lags(facts(), lambda one: one.lag_bytes),
            ("container", "replica"),
        )
        gauge(
            f"{PREFIX}replica_lag_seconds",
            "Time for which a follower has not acknowledged everything",
            lambda: _lags(facts(), lambda one: one.lag_ms / 1000),
            ("container", "replica"),
        )

    def note_defect(self, defect: Defect) -> None:  # noqa: ARG002
        """An unexpected exception ended a container, which is opened again."""
        self.defects += 1

    def refuse(self, code: str) -> None:
        """A container refused a request."""
        self.refused[code,] += 1

    def flushed(self, size: int, seconds: float) -> None:
        """A flush moved `size` bytes."""
        self.flushes += 1
        self.flush_bytes += size
        self.flush_seconds.record(seconds)


def _lags(
    facts: Sequence[ReplicationFacts], lag: Callable[[FollowerFacts], float]
) -> Mapping[tuple[str, ...], float]:
    """A lag of each follower, by container and node id."""
    return {
        (str(one.container), follower.node_id): lag(follower)
        for one in facts
        for follower in one.followers
    }


def uncounted() -> StoreMetrics:
    """For containers outside a store, whose metrics are discarded."""
    return StoreMetrics(silent_metrics())
