"""How fast a segment is written, from what its store told of the last periods. Pure.

A rate is known only over periods of which everything is known: the report of the period and the
one before it came, in one session, and both show the container under its present container epoch
(so it was served throughout); the report lists the segment or says that all others were idle; and
the newest report is not old. Unknown is not zero: nobody may decide on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

OVERDUE_PERIODS = 1.5
LATE_PERIODS = 3
"""A report that has no successor after so many times the longest pause between two reports says
nothing about the present."""


class Merged(NamedTuple):
    """The content that commits merged into a segment; the transactions were open for `over_ms`."""

    events: int
    size: int
    over_ms: int


@dataclass(frozen=True, slots=True)
class ContainerPeriod:
    """The appends in one container: segment → (events, bytes).

    `merged`: the part of it that commits of transactions brought.
    """

    container_epoch: int
    segments: Mapping[str, tuple[int, int]]
    merged: Mapping[str, Merged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorePeriod:
    """One period of one store, from its report.

    session       drawn anew at each start of the store
    sequence      counts the store's reports from 1
    length_ms     how long the period was
    others_idle   nothing was appended to segments that it does not list
    received_s    when the report came, by the controller's monotonic clock
    containers    the appends in each container
    due_ms        the next report follows within this time; 0: within `length_ms`

    Two periods follow each other without a gap exactly if session and sequence do.
    """

    session: str
    sequence: int
    length_ms: int
    others_idle: bool
    received_s: float
    containers: Mapping[int, ContainerPeriod]
    due_ms: int = 0

    @property
    def began_s(self) -> float:
        """When the period began, by the controller's clock; never earlier than it did."""
        return self.received_s - self.length_ms / 1000

    @property
    def segment_count(self) -> int:
        """How many segments it lists."""
        return sum(len(found.segments) for found in self.containers.values())


@dataclass(frozen=True, slots=True)
class Rate:
    """What was appended, averaged over `over_ms`."""

    events_per_s: float
    bytes_per_s: float
    over_ms: int


@dataclass(frozen=True, slots=True)
class ServedSegment:
    """A segment, and the container that its placement names."""

    name: str
    container: int
    container_epoch: int


def rate_of(
    periods: Sequence[StorePeriod], segment: ServedSegment, *, now_s: float, window_ms: int
) -> Rate | None:
    """The rate over the newest known periods that together reach `window_ms`, or over fewer.

    `periods` are those of the container's store, oldest first. None: unknown.
    """
    if not periods or is_late(periods[-1], now_s):
        return None
    events = size = over_ms = 0
    for period, before in pairwise(reversed(periods)):
        load = load_in(period, before, segment)
        if load is None or over_ms >= window_ms:
            break
        events += load[0]
        size += load[1]
        over_ms += period.length_ms
    if not over_ms:
        return None
    return Rate(events * 1000 / over_ms, size * 1000 / over_ms, over_ms)


def is_late(newest: StorePeriod, now_s: float) -> bool:
    """Whether a store's newest report says nothing about the present any more."""
    return _pauses_since(newest, now_s) > LATE_PERIODS


def is_overdue(newest: StorePeriod, now_s: float) -> bool:
    """Whether the store's next report should have come, with half a pause to spare."""
    return _pauses_since(newest, now_s) > OVERDUE_PERIODS


def _pauses_since(newest: StorePeriod, now_s: float) -> float:
    """In units of the longest pause between two reports."""
    pause_ms = max(newest.length_ms, newest.due_ms)
    return (now_s - newest.received_s) * 1000 / pause_ms


def load_in(
    period: StorePeriod, before: StorePeriod, segment: ServedSegment
) -> tuple[int, int] | None:
    """(events, bytes) of the period; None: unknown."""
    if (before.session, before.sequence + 1) != (period.session, period.sequence):
        return None
    found, earlier = (one.containers.get(segment.container) for one in (period, before))
    if found is None or earlier is None:
        return None
    if not found.container_epoch == earlier.container_epoch == segment.container_epoch:
        return None
    load = found.segments.get(segment.name)
    return (0, 0) if load is None and period.others_idle else load
