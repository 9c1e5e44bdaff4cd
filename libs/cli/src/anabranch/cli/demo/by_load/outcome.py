"""The results of the scaling demo, which fill up while it runs."""

from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.demo.by_load.epoch_map import Sample
from anabranch.cli.demo.by_load.event_time import Moment
from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.report.page import Picture
from anabranch.common.contracts.stream_queries import ScalingEvent


@dataclass(frozen=True, slots=True)
class Plan:
    """The places of the table, the data and the results."""

    table: Path
    data_dir: Path
    out: Path


@dataclass(slots=True)
class Course:
    """The observations during the writes. `written`: (Unix ms, rows written by then). `moments`:
    event times of the reader at the tail.
    """

    samples: list[Sample] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The results so far; None: the demo has not come to that part.

    `epochs` are those of the stream, in order. `first_split_s`: seconds from the load's crossing of
    the target to the first split; None: there was none.
    """

    plan: Plan
    begun: str
    course: Course = field(default_factory=Course)
    written: Written | None = None
    epochs: tuple[ScalingEvent, ...] = ()
    first_split_s: float | None = None
    tally: Tally | None = None
    seconds: float = 0.0
    pictures: list[Picture] = field(default_factory=list)

    @property
    def late(self) -> int:
        """Events earlier than the lower bound of the time window before them."""
        moments = self.course.moments
        return moments[-1].late if moments else 0

    @property
    def segments_max(self) -> int:
        return max((epoch.segment_count for epoch in self.epochs), default=0)

    @property
    def segments_last(self) -> int:
        return self.epochs[-1].segment_count if self.epochs else 0
