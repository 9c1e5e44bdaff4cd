"""The controller's metrics: counts of commands, queries and steps, and gauges of its parts."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.histograms import Histogram
from anabranch.common.runtime.metrics import Metrics, silent_metrics
from anabranch.controller.domain.transaction.ages import TransactionAges

PREFIX = "anabranch_controller_"


@dataclass(slots=True)
class RetentionCounts:
    """Counts of retention since the start of the process.

    Truncations and their bytes count by rule, when the truncation begins. `refused`: the number
    of streams whose last truncation a store refused, as of the last round.
    """

    looks: int = 0
    truncations: Counter[tuple[str, ...]] = field(default_factory=Counter)
    released_bytes: Counter[tuple[str, ...]] = field(default_factory=Counter)
    failures: int = 0
    refused: int = 0


@dataclass(slots=True)
class FailOverCounts:
    """Counts of fail-overs since the start of the process.

    `fail_overs` count by reason: the store is `dead`, or the container `failed` on it. `elections`
    count those with a winner, which may be the former leader.
    """

    sessions_ended: int = 0
    elections: int = 0
    fail_overs: Counter[tuple[str, ...]] = field(default_factory=Counter)


@dataclass(slots=True)
class WatermarkCounts:
    """Counts of watermarks since the start. As of the last round: `held` streams by reason, and
    `oldest_s`, the longest time since which a stream with writers has no new watermark."""

    looks: int = 0
    advanced: int = 0
    overtaken: int = 0
    failures: int = 0
    held: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    oldest_s: float = 0.0


class ControllerMetrics:
    """Counters and histograms. Labels are kinds, outcomes and steps, never names of streams."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self.commands: Counter[tuple[str, ...]] = Counter()
        self.queries: Counter[tuple[str, ...]] = Counter()
        self.steps: Counter[tuple[str, ...]] = Counter()
        self.load_reports: Counter[tuple[str, ...]] = Counter()
        self.transactions: Counter[tuple[str, ...]] = Counter()
        self.scaling: Counter[tuple[str, ...]] = Counter()
        metrics.counter(
            f"{PREFIX}commands_total",
            "Commands from the work queue",
            lambda: self.commands,
            ("kind", "outcome"),
        )
        metrics.counter(
            f"{PREFIX}queries_total", "Queries", lambda: self.queries, ("query", "outcome")
        )
        metrics.counter(
            f"{PREFIX}steps_total",
            "Steps of workflows performed",
            lambda: self.steps,
            ("step", "outcome"),
        )
        metrics.counter(
            f"{PREFIX}load_reports_total",
            "Load reports of segment stores",
            lambda: self.load_reports,
            ("outcome",),
        )
        metrics.counter(
            f"{PREFIX}transactions_total",
            "Transactions of owned buckets that reached an outcome",
            lambda: self.transactions,
            ("outcome",),
        )
        self._scaling_seconds = self._define_scaling(metrics)
        self._fail_over_seconds = metrics.histogram(
            f"{PREFIX}fail_over_seconds",
            "From when a store was judged dead to when its container was open elsewhere",
        )
        self._expiry_seconds = metrics.histogram(
            f"{PREFIX}transaction_expiry_seconds",
            "From a transaction's deadline to its abort",
        )
        self._job_late_seconds = metrics.histogram(
            f"{PREFIX}job_late_seconds",
            "From when a round of a periodic job was due to when it began",
            ("job",),
        )
        self._job_seconds = metrics.histogram(
            f"{PREFIX}job_seconds", "Duration of a round of a periodic job", ("job",)
        )
        self._command_seconds = metrics.histogram(
            f"{PREFIX}command_seconds", "Deciding and answering a command", ("kind",)
        )
        self._query_seconds = metrics.histogram(
            f"{PREFIX}query_seconds", "Answering a query", ("query",)
        )

    def _define_scaling(self, metrics: Metrics) -> Histogram:
        metrics.counter(
            f"{PREFIX}scaling_decisions_total",
            "Decisions of auto-scaling",
            lambda: self.scaling,
            ("action", "outcome"),
        )
        return metrics.histogram(
            f"{PREFIX}scaling_seconds",
            "From when a segment was seen hot, or cold, to the accepted scale",
            ("action",),
        )

    def watch(
        self,
        *,
        active: Callable[[], int],
        failing: Callable[[], int],
        folds: Callable[[], int],
    ) -> None:
        """Register the gauges of workflows and of the mirror; call once."""
        self._metrics.gauge(
            f"{PREFIX}workflows_active", "Scopes and streams with active workflows", active
        )
        self._metrics.gauge(
            f"{PREFIX}workflows_failing", "Scopes and streams whose next step fails", failing
        )
        self._metrics.counter(
            f"{PREFIX}mirror_folds_total", "Messages folded into the mirror", folds
        )

    def watch_defects(
        self,
        *,
        defects: Callable[[], Mapping[tuple[str, ...], int]],
        parked: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """Register the metrics of contained defects; call once."""
        self._metrics.counter(
            f"{PREFIX}defects_total", "Unexpected errors, contained", defects, ("part",)
        )
        self._metrics.gauge(
            f"{PREFIX}parked", "Aggregates parked because of defects", parked,
            ("part",),
        )  # fmt: skip

    def watch_buckets(
        self,
        *,
        owned: Callable[[], int],
        by_rendezvous: Callable[[], int],
        changes: Callable[[], Mapping[tuple[str, ...], int]],
        parked: Callable[[], int],
    ) -> None:
        """Register the metrics of buckets and of parked commands; call once."""
        self._metrics.gauge(f"{PREFIX}buckets_owned", "Buckets that this controller owns", owned)
        self._metrics.gauge(
            f"{PREFIX}buckets_by_rendezvous",
            "1 while controllers share buckets by rendezvous, without leases",
            by_rendezvous,
        )
        self._metrics.counter(
            f"{PREFIX}bucket_changes_total", "Buckets taken and lost", changes, ("change",)
        )
        self._metrics.counter(
            f"{PREFIX}commands_parked_total",
            "Commands parked because their handling fails",
            parked,
        )

    def watch_scaling(self, verdicts: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Register the gauge of auto-scaling's verdicts; call once."""
        self._metrics.gauge(
            f"{PREFIX}scaling_segments",
            "Segments of owned streams with a scaling policy, by verdict",
            verdicts,
            ("verdict",),
        )

    def watch_cluster(
        self,
        *,
        members: Callable[[], Mapping[tuple[str, ...], float]],
        holds: Callable[[], Mapping[tuple[str, ...], float]],
        leads: Callable[[], int],
    ) -> None:
        """Register the gauges of this controller's view of the cluster; call once."""
        self._metrics.gauge(
            f"{PREFIX}members",
            "Controllers and segment stores, as this controller sees them",
            members,
            ("kind", "state"),
        )
        self._metrics.gauge(f"{PREFIX}holds", "1 while the controller holds", holds, ("reason",))
        self._metrics.gauge(f"{PREFIX}leads", "1 on the controller that leads", leads)

    def watch_containers(
        self,
        *,
        containers: Callable[[], Mapping[tuple[str, ...], float]],
        counts: FailOverCounts,
    ) -> None:
        """Register the metrics of containers and of fail-overs; call once."""
        self._metrics.gauge(
            f"{PREFIX}containers",
            "Containers by state, as this controller sees them",
            containers,
            ("state",),
        )
        self._metrics.counter(
            f"{PREFIX}sessions_ended_total",
            "Sessions of dead segment stores that this controller ended",
            lambda: counts.sessions_ended,
        )
        self._metrics.counter(
            f"{PREFIX}fail_overs_total",
            "Containers that this controller placed on another store that shares their log",
            lambda: counts.fail_overs,
            ("reason",),
        )
        self._metrics.counter(
            f"{PREFIX}elections_total",
            "Elections of leaders of replicated logs that this controller decided",
            lambda: counts.elections,
        )

    def watch_objects(
        self,
        *,
        spus: Callable[[], Mapping[tuple[str, ...], float]],
        topics: Callable[[], Mapping[tuple[str, ...], float]],
        partitions: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """Register the gauges of SPUs, topics and partitions; call once."""
        gauge = self._metrics.gauge
        gauge(f"{PREFIX}spus", "Registered SPUs by resolution", spus, ("resolution",))
        gauge(f"{PREFIX}topics", "Topics by resolution", topics, ("resolution",))
        gauge(
            f"{PREFIX}partitions",
            "Partitions of topics by resolution",
            partitions,
            ("resolution",),
        )

    def watch_transactions(
        self, *, ages: Callable[[], TransactionAges], purged: Callable[[], int]
    ) -> None:
        """Register the metrics of transactions; call once."""
        self._metrics.gauge(
            f"{PREFIX}transactions",
            "Transactions that have not ended, of all buckets",
            lambda: _by_state(ages()),
            ("state",),
        )
        self._metrics.gauge(
            f"{PREFIX}transactions_oldest_seconds",
            "Age of the oldest transaction in a state",
            lambda: _oldest_s(ages(), self._clock.now_ms()),
            ("state",),
        )
        self._metrics.counter(
            f"{PREFIX}transaction_slots_purged_total",
            "Slots of ended transactions deleted",
            purged,
        )

    def watch_retention(self, counts: RetentionCounts) -> None:
        """Register the counts of retention; call once."""
        self._metrics.counter(
            f"{PREFIX}retention_looks_total",
            "Looks at streams with a retention policy",
            lambda: counts.looks,
        )
        self._metrics.counter(
            f"{PREFIX}retention_truncations_total",
            "Truncations that retention began",
            lambda: counts.truncations,
            ("rule",),
        )
        self._metrics.counter(
            f"{PREFIX}retention_released_bytes_total",
            "Bytes of streams that these truncations give up",
            lambda: counts.released_bytes,
            ("rule",),
        )
        self._metrics.counter(
            f"{PREFIX}retention_failures_total",
            "Looks at streams with a retention policy that failed",
            lambda: counts.failures,
        )
        self._metrics.gauge(
            f"{PREFIX}retention_refused",
            "Streams whose last truncation by retention a store refused",
            lambda: counts.refused,
        )

    def watch_watermarks(self, counts: WatermarkCounts) -> None:
        """Add the counts of watermarks; once."""
        self._metrics.counter(
            f"{PREFIX}watermark_looks_total",
            "Looks at the marks of streams",
            lambda: counts.looks,
        )
        self._metrics.counter(
            f"{PREFIX}watermarks_total", "Watermarks appended", lambda: counts.advanced
        )
        self._metrics.counter(
            f"{PREFIX}watermarks_overtaken_total",
            "Watermarks that another controller was faster to append",
            lambda: counts.overtaken,
        )
        self._metrics.counter(
            f"{PREFIX}watermark_failures_total",
            "Looks at the marks of streams that failed",
            lambda: counts.failures,
        )
        self._metrics.gauge(
            f"{PREFIX}watermarks_held",
            "Streams whose watermark is held back, by reason",
            lambda: counts.held,
            ("reason",),
        )
        self._metrics.gauge(
            f"{PREFIX}watermark_oldest_seconds",
            "The longest time since which a stream with writers has no new watermark",
            lambda: counts.oldest_s,
        )

    def now_s(self) -> float:
        """The monotonic time, from which durations are measured."""
        return self._clock.monotonic()

    def commanded(self, kind: str, outcome: str, began_s: float) -> None:
        """Count a handled command. Outcomes: accepted, rejected, or left for another try."""
        self.commands[kind, outcome] += 1
        self._command_seconds.record(self.now_s() - began_s, {"kind": kind})

    def decided(self, outcome: str) -> None:
        """Count a decided transaction. Outcomes: committed, or the reason of its abort."""
        self.transactions[(outcome,)] += 1

    def scaled(self, action: str, outcome: str, waited_s: float | None = None) -> None:
        """Count a decision of auto-scaling. `waited_s`: from observation to accepted scale."""
        self.scaling[action, outcome] += 1
        if waited_s is not None:
            self._scaling_seconds.record(waited_s, {"action": action})

    def failed_over(self, took_s: float) -> None:
        """Record the time from the judgement of a store to the opening of its container
        elsewhere."""
        self._fail_over_seconds.record(took_s)

    def expired(self, late_s: float) -> None:
        """Record how long after its deadline a transaction was aborted."""
        self._expiry_seconds.record(late_s)

    def job_ended(self, job: str, late_s: float, took_s: float) -> None:
        """Record how late a round of a periodic job began, and how long it took."""
        self._job_late_seconds.record(late_s, {"job": job})
        self._job_seconds.record(took_s, {"job": job})

    def asked(self, query: str, outcome: str, began_s: float) -> None:
        """Count an answered query. If it failed, the outcome is the error's code."""
        self.queries[query, outcome] += 1
        self._query_seconds.record(self.now_s() - began_s, {"query": query})


def _by_state(found: TransactionAges) -> Mapping[tuple[str, ...], float]:
    return {
        ("open",): found.open_count,
        ("committing",): found.committing_count,
        ("aborting",): found.aborting_count,
    }


def _oldest_s(found: TransactionAges, now_ms: int) -> Mapping[tuple[str, ...], float]:
    since_ms = {"open": found.opened_ms, "committing": found.committing_ms}
    return {
        (state,): max(0, now_ms - at_ms) / 1000 if at_ms else 0.0
        for state, at_ms in since_ms.items()
    }


def uncounted() -> ControllerMetrics:
    """Metrics that no endpoint serves, for parts that run outside a controller."""
    return ControllerMetrics(silent_metrics(), SystemClock())
