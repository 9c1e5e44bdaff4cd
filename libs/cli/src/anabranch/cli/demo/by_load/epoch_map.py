"""The epoch map: which segment had which keys when, and how fast it was written. Pure.

Each segment of each epoch is a rectangle of time and keys, divided where its rate was sampled. A
rate that is not known, as of a segment that is a moment old, stays unknown.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from anabranch.common.contracts.scaling import SegmentExplained
from anabranch.common.contracts.stream_queries import ScalingEvent


class Sample(NamedTuple):
    """Events per second by segment id at one moment (Unix ms); None: not known."""

    at_ms: int
    rates: dict[int, float | None]


class Cell(NamedTuple):
    """A segment's keys [`key_start`, `key_end`) from `from_ms` to `to_ms`, and its rate then."""

    segment_id: int
    from_ms: int
    to_ms: int
    key_start: float
    key_end: float
    rate: float | None


def sample_of(at_ms: int, segments: Iterable[SegmentExplained]) -> Sample:
    """A sample of the answer to `explain`: the rates over the shortest window that is filled."""
    return Sample(
        at_ms, {one.segment_id: one.rates[0].rate if one.rates else None for one in segments}
    )


def cells(epochs: Sequence[ScalingEvent], samples: Sequence[Sample], end_ms: int) -> list[Cell]:
    """The cells of all epochs up to `end_ms`. Epochs and samples ascend by time."""
    ends = [epoch.created_ms for epoch in epochs[1:]] + [end_ms]
    found: list[Cell] = []
    times = [sample.at_ms for sample in samples]
    for epoch, epoch_end in zip(epochs, ends, strict=True):
        inside = times[bisect_right(times, epoch.created_ms) : bisect_right(times, epoch_end)]
        for start, stop in pairwise((epoch.created_ms, *inside, epoch_end)):
            at = bisect_right(times, stop) - 1
            rates = samples[at].rates if at >= 0 and times[at] >= start else {}
            found += [
                Cell(
                    one.segment_id, start, stop, one.key_start, one.key_end,
                    rates.get(one.segment_id),
                )
                for one in epoch.segments
                if stop > start
            ]  # fmt: skip
    return found
