"""How fast a segment is written, from what its store told of the last periods. Pure.

A rate is known only over periods of which everything is known: the report of the period and the
one before it came, in one session, and both show the container under its present container epoch
(so it was served throughout); the report lists the segment or says that all others were idle; and
the newest report is not old. Unknown is not zero: nobody may decide on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LATE_PERIODS = 3
"""After so many of its own lengths without a newer one, a report tells nothing of the present."""


@dataclass(frozen=True, slots=True)
class ContainerPeriod:
    """What was appended in one container: segment → (events, bytes)."""

    container_epoch: int
    segments: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class StorePeriod:
    """What one store told of one period; `received_s` by the controller's monotonic clock."""

    session: str
    sequence: int
    length_ms: int
    others_idle: bool
    received_s: float
    containers: Mapping[int, ContainerPeriod]

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
    if not periods or _is_late(periods[-1], now_s):
        return None
    events = size = over_ms = 0
    for period, before in pairwise(reversed(periods)):
        load = _load_in(period, before, segment)
        if load is None or over_ms >= window_ms:
            break
        events += load[0]
        size += load[1]
        over_ms += period.length_ms
    if not over_ms:
        return None
    return Rate(events * 1000 / over_ms, size * 1000 / over_ms, over_ms)


def _is_late(newest: StorePeriod, now_s: float) -> bool:
    return (now_s - newest.received_s) * 1000 > LATE_PERIODS * newest.length_ms


def _load_in(
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
