"""How fast one segment is written, over several windows at once. Pure.

A *gauge* folds the periods of load reports into one average per window. The average of a window is
exponential: an event that lies `t` back counts e^(-t / window). It is divided by the weight of the
known time, so a constant load is measured exactly from the first period on.

    period known, follows the last one ──▶ folded into every average
    period unknown, or one is missing   ──▶ the gauge begins anew: nothing is known before it

A gauge therefore never averages over a gap: `known_s` is how long everything is known, and a window
counts only when it is filled. Loss, delay and disorder of reports shorten the known time; they
never lower a rate.

A transaction's events arrive at its commit, all at once. They count over the transaction's life: a
merge of V events that were collected within L seconds adds the rate V / L as if it had been held
for the last L seconds. Averages of this kind are linear, so that is one addition per window.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.stream import ScalingType
from anabranch.controller.domain.load import (
    Merged,
    ServedSegment,
    StorePeriod,
    is_late,
    is_overdue,
    load_in,
)

KIB = 1024

PeriodKey = tuple[str, str, int]
"""Node, session and sequence of a report."""


class Heard(NamedTuple):
    """A store's latest reports, oldest first, and the segment that it serves. `keys`: where the
    keys of the segment lie, if the store told so lately."""

    node_id: str
    periods: Sequence[StorePeriod]
    served: ServedSegment
    keys: KeySketch | None = None


class Average(NamedTuple):
    """Events and bytes per second, not yet divided by the weight of the known time."""

    events: float = 0.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """The known load of one segment. Times by the controller's monotonic clock.

    since_s    earlier appends do not count: the segment was not there, or not watched
    averages   one per window, in the order of the windows
    known_s    for how long everything is known, up to the end of the newest period
    newest     the newest period that was looked at; None: none yet

    `averages` are all zero while `known_s` is.
    """

    since_s: float
    averages: tuple[Average, ...]
    known_s: float = 0.0
    newest: PeriodKey | None = None


class WindowRate(NamedTuple):
    """A rate over a window, in the unit of the policy: events, or KiB, per second.

    `counts`: the window holds enough events to say anything.
    """

    window_s: float
    rate: float
    counts: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """The rates that a gauge shows at one moment.

    `windows`: those that are filled, the shortest first; none: the rate is unknown. `missing`: why
    the present is unknown, as a sentence; empty if it is known. `is_old`: the next report is
    overdue, so that the load may have risen since.
    """

    known_s: float
    windows: tuple[WindowRate, ...]
    missing: str = ""
    is_old: bool = False

    def over(self, window_s: float) -> WindowRate | None:
        """The rate over that window; None: it is not filled."""
        return next((found for found in self.windows if found.window_s == window_s), None)

    @property
    def level(self) -> float:
        """The highest rate of all windows that count; 0 where there are none."""
        return max((found.rate for found in self.windows if found.counts), default=0.0)


def new_gauge(windows_s: Sequence[float], now_s: float) -> Gauge:
    """A gauge that knows nothing of the time before `now_s`."""
    return Gauge(now_s, tuple(Average() for _ in windows_s))


def folded(gauge: Gauge, heard: Heard, windows_s: Sequence[float]) -> Gauge:
    """The gauge after every period that it has not seen. Safe to repeat with the same periods."""
    for before, period in _unseen(gauge, heard):
        gauge = _after(gauge, heard, before, period, windows_s)
    return gauge


def _unseen(gauge: Gauge, heard: Heard) -> Iterator[tuple[StorePeriod, StorePeriod]]:
    """(period before, period), oldest first, behind the newest one that the gauge has seen."""
    held = heard.periods
    first = len(held)
    while first > 0 and _key(heard.node_id, held[first - 1]) != gauge.newest:
        first -= 1
    yield from pairwise(held[max(0, first - 1) :])


def _after(
    gauge: Gauge,
    heard: Heard,
    before: StorePeriod,
    period: StorePeriod,
    windows_s: Sequence[float],
) -> Gauge:
    key = _key(heard.node_id, period)
    load = None if period.began_s < gauge.since_s else load_in(period, before, heard.served)
    if load is None:
        return replace(new_gauge(windows_s, gauge.since_s), newest=key)
    follows = gauge.newest == _key(heard.node_id, before)
    known = gauge if follows else new_gauge(windows_s, gauge.since_s)
    known_s = known.known_s + period.length_ms / 1000
    merged = period.containers[heard.served.container].merged.get(heard.served.name)
    averages = tuple(
        _average(average, window_s, period.length_ms / 1000, load, merged, known_s=known_s)
        for average, window_s in zip(known.averages, windows_s, strict=True)
    )
    return Gauge(gauge.since_s, averages, known_s, key)


def _average(
    average: Average,
    window_s: float,
    length_s: float,
    load: tuple[int, int],
    merged: Merged | None,
    *,
    known_s: float,
) -> Average:
    """One more period of `length_s` seconds; `known_s` includes it."""
    stays = math.exp(-length_s / window_s)
    weight = (1 - stays) / length_s
    events, size = load
    if merged is None or merged.over_ms <= length_s * 1000:
        return Average(
            average.events * stays + events * weight, average.size * stays + size * weight
        )
    over_s = merged.over_ms / 1000
    spread = (1 - math.exp(-min(over_s, known_s) / window_s)) / over_s
    return Average(
        average.events * stays + (events - merged.events) * weight + merged.events * spread,
        average.size * stays + (size - merged.size) * weight + merged.size * spread,
    )


def reading(
    gauge: Gauge,
    heard: Heard | None,
    windows_s: Sequence[float],
    *,
    measure: ScalingType,
    events_min: int,
    now_s: float,
) -> Reading:
    """The rates that the gauge shows. `heard` None: no store serves the segment at the moment."""
    windows: list[WindowRate] = []
    for average, window_s in zip(gauge.averages, windows_s, strict=True):
        if gauge.known_s >= window_s:
            weight = 1 - math.exp(-gauge.known_s / window_s)
            events = average.events / weight
            rate = events if measure is ScalingType.EVENT_RATE else average.size / weight / KIB
            counts = window_s == windows_s[-1] or events * window_s >= events_min
            windows.append(WindowRate(window_s, rate, counts))
    missing = _missing(gauge, heard, windows_s, now_s)
    is_old = heard is None or not heard.periods or is_overdue(heard.periods[-1], now_s)
    return Reading(gauge.known_s, tuple(windows), missing, is_old)


def _missing(gauge: Gauge, heard: Heard | None, windows_s: Sequence[float], now_s: float) -> str:
    if heard is None:
        return "no store serves the segment"
    if not heard.periods:
        return f"store {heard.node_id} has not reported its load"
    newest = heard.periods[-1]
    if is_late(newest, now_s):
        return f"store {heard.node_id} has not reported for {now_s - newest.received_s:.0f} s"
    if gauge.known_s < windows_s[0]:
        return f"the load is known for {gauge.known_s:.0f} s, {windows_s[0]:g} s are needed"
    return ""


def _key(node_id: str, period: StorePeriod) -> PeriodKey:
    return node_id, period.session, period.sequence
