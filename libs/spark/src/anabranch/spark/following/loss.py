"""Which parts of a micro-batch lie before the stream's head, and are therefore gone. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.client.reading.frontier import share_keys
from anabranch.common.contracts.stream_queries import CutFound, SegmentRun
from anabranch.common.errors import EventsTruncated
from anabranch.common.model.names import StreamRef
from anabranch.spark.reading.losses import FAIL_REMEDY


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes [start, end) of a segment, by its full name."""

    segment: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Kept:
    """The ranges that can be read, predecessors before successors, and those that are gone."""

    ranges: Sequence[Range]
    lost: Sequence[Range]


def range_of(run: SegmentRun) -> Range:
    """The range of a run whose end is known."""
    end = run.size if run.end_offset is None else run.end_offset
    assert end is not None, "a run between two cuts has its end"
    return Range(run.name, max(0, run.start_offset), end)


def split(runs: Iterable[SegmentRun], head: CutFound) -> Kept:
    """Divide each run at the head."""
    places = {at.segment_id: max(0, at.offset) for at in head.segments}
    newest = max(places)
    kept: list[Range] = []
    lost: list[Range] = []
    for run in runs:
        found = range_of(run)
        begin = places.get(run.segment_id)
        if begin is None:
            is_gone = run.segment_id < newest and any(
                at.segment_id > run.segment_id and share_keys(at, run) for at in head.segments
            )
            begin = found.end if is_gone else found.start
        edge = min(max(found.start, begin), found.end)
        lost.append(Range(found.segment, found.start, edge))
        kept.append(Range(found.segment, edge, found.end))
    return Kept([each for each in kept if each.size], [each for each in lost if each.size])


def loss_of(stream: StreamRef, lost: Sequence[Range]) -> EventsTruncated:
    """The error of a query that must not lose events; it names the first of the ranges."""
    first = lost[0]
    return EventsTruncated(
        f"events that the query has not read are truncated: {len(lost)} ranges of segments, "
        f"{sum(each.size for each in lost)} bytes",
        remedy=FAIL_REMEDY,
        stream=str(stream), segment=first.segment, offset=first.start, end=first.end,
    )  # fmt: skip
