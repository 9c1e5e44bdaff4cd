"""The results of a demo, which fill up while it runs: an early end leaves the part so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from anabranch.cli.demo.check import Days, RowSum, Tally, Written
from anabranch.cli.demo.group_records import GroupOutcome
from anabranch.cli.demo.report.page import Picture
from anabranch.cli.demo.source import Source

ClusterKind = Literal["journal", "jetstream", "replicated"]
"""`journal`: one store, with the logs on its disk. `jetstream`: three stores and three NATS
servers, with the logs on JetStream. `replicated`: three stores, each with a copy of every log."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a cluster that goes on without one of its three stores.

    `replication`: how many stores have a copy of each log; None: the logs are not in the stores.
    """

    described: str
    nats: int
    log: Literal["jetstream"] | None = None
    replication: int | None = None


STORES = 3
SERVERS: Mapping[ClusterKind, Servers] = {
    "jetstream": Servers("three stores and three NATS servers", nats=3, log="jetstream"),
    "replicated": Servers(
        "three stores, each of which has a copy of every log,", nats=1, replication=STORES
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to replay, and how.

    `draft_every`: of so many days, one is first written as a draft. `scale_count`: how often the
    stream is scaled. `crash_count`: how often the segment store is killed. `draws`: whether to make
    plots. `without_spark`: why Spark does not read; empty: it does.
    """

    source: Source
    data_dir: Path
    out: Path
    draft_every: int
    scale_count: int
    crash_count: int
    draws: bool
    without_spark: str
    cluster: ClusterKind = "journal"

    @property
    def servers(self) -> Servers | None:
        """The servers, if one store loses its disk during the writes; else None."""
        return SERVERS.get(self.cluster)

    @property
    def loses_store(self) -> bool:
        """Whether a store loses its disk during the writes."""
        return self.servers is not None

    @property
    def tier2_url(self) -> str:
        """The place of tier 2, which a store that loses its disk must not take along."""
        folder = "tier2" if self.loses_store else "segstore/tier2"
        return (self.data_dir.resolve() / folder).as_uri()


@dataclass(frozen=True, slots=True)
class Loss:
    """A store that was killed and lost its disk.

    `containers`: how many it had. `seconds`: from the kill until other stores had opened them.
    `in_sync_s`: from the kill until all copies of the logs were in sync again; None if the stores
    do not replicate the logs.
    """

    store: str
    containers: int
    seconds: float
    in_sync_s: float | None = None


@dataclass(frozen=True, slots=True)
class Writing:
    """The written rows, and the changes that the cluster went through meanwhile.

    `pause_s`: the longest time in which the writer made no progress.
    """

    written: Written
    days: Days
    scales: int
    crashes: int
    seconds: float
    pause_s: float = 0.0
    loss: Loss | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sum of the events that a reader found, which does not depend on their order."""

    read: RowSum
    seconds: float


@dataclass(frozen=True, slots=True)
class SparkOutcome:
    """The events that Spark read, and its results."""

    read: RowSum
    parquet_rows: int
    plots: tuple[Path, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class YearOutcome:
    """What Spark archived, counted by windows and audited while the cluster ran.

    `windows_events`: the events in all windows. `damages`: the checks of the audit that failed.
    """

    archived: RowSum
    windows: int
    windows_events: int
    audited_events: int
    damages: tuple[str, ...]
    plots: tuple[Path, ...]
    seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """The results so far; None: the demo has not come to that part.

    `lease_ms`: the lease of the group's readers. `segments`: those of the stream at the end.
    `seconds`: the time of the whole demo.
    """

    plan: Plan
    begun: str
    lease_ms: int
    writing: Writing | None = None
    group: GroupOutcome | None = None
    group_seconds: float = 0.0
    tally: Tally | None = None
    read_seconds: float = 0.0
    http: Comparison | None = None
    year: YearOutcome | None = None
    spark: SparkOutcome | None = None
    segments: int | None = None
    seconds: float | None = None
    pictures: list[Picture] = field(default_factory=list)

    @property
    def plots(self) -> Sequence[str]:
        return [str(each.path) for each in self.pictures]
