"""The last load reports of all stores, in memory.

Every controller hears every report and keeps those of the last minute or so of each store; none are
stored, so a controller that has just started knows nothing of load. The oldest reports
are dropped to stay within the bounds, and a missing one makes a load unknown, never zero.

Of the sketches of keys, only that in the last report which lists the segment is held, for half a
minute.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.common.contracts.load import ContainerLoad, KeySketch, LoadReport
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.load import (
    ContainerPeriod,
    Merged,
    Rate,
    ServedSegment,
    StorePeriod,
    rate_of,
)

WINDOW_MS = 60_000
"""Over which rates are shown."""
DEPTH_MS = 75_000
"""So far back reports are held: the window, and one that began before it."""
PERIODS_MAX = 256
"""Of one store, however long its periods are."""
NODES_MAX = 1024
SEGMENTS_MAX = 200_000
"""Listed in all reports together."""
SKETCHES_MAX = 4096
"""Of all segments; that of the segment whose sketch is oldest goes first."""
SKETCH_S_MAX = 30.0
"""An older sketch says nothing about the present."""


class _Told(NamedTuple):
    """A sketch, which store told it about its container, and when it came."""

    node_id: str
    container_epoch: int
    received_s: float
    keys: KeySketch


class LoadReports:
    """The reports of all stores, as far as `depth_ms` back. Rates are shown over
    `window_ms`."""

    def __init__(
        self, clock: Clock, *, window_ms: int = WINDOW_MS, depth_ms: int = DEPTH_MS
    ) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._depth_s = depth_ms / 1000
        self._periods: dict[str, deque[StorePeriod]] = {}
        self._tuples: dict[str, Sequence[StorePeriod]] = {}
        self._sketches: dict[str, _Told] = {}
        """By segment, in the order in which they came."""
        self._segment_count = 0

    def learn(self, report: LoadReport) -> None:
        """A report came. One that is not newer than the last of its session is passed over."""
        period = _period_of(report, self._clock.monotonic())
        held = self._periods.setdefault(report.node_id, deque())
        if held and held[-1].session == period.session and held[-1].sequence >= period.sequence:
            return
        held.append(period)
        self._learn_sketches(report, period.received_s)
        self._tuples.clear()
        self._segment_count += period.segment_count
        oldest_s = period.received_s - self._depth_s
        while len(held) > PERIODS_MAX or (len(held) > 2 and held[1].received_s < oldest_s):
            self._drop_oldest(report.node_id)
        while len(self._periods) > NODES_MAX or self._segment_count > SEGMENTS_MAX:
            self._drop_oldest(
                min(self._periods, key=lambda node: self._periods[node][0].received_s)
            )

    def rate(self, node_id: str, segment: ServedSegment) -> Rate | None:
        """How fast the segment is written; None: unknown."""
        now_s = self._clock.monotonic()
        return rate_of(self.periods(node_id), segment, now_s=now_s, window_ms=self._window_ms)

    def periods(self, node_id: str) -> Sequence[StorePeriod]:
        """The last periods that the store reported, oldest first."""
        found = self._tuples.get(node_id)
        if found is None:
            found = self._tuples[node_id] = tuple(self._periods.get(node_id, ()))
        return found

    def keys(self, node_id: str, segment: ServedSegment) -> KeySketch | None:
        """Where the keys of the segment lie, if this store told so lately."""
        told = self._sketches.get(segment.name)
        if told is None or self._clock.monotonic() - told.received_s > SKETCH_S_MAX:
            return None
        is_served = (told.node_id, told.container_epoch) == (node_id, segment.container_epoch)
        return told.keys if is_served else None

    def _learn_sketches(self, report: LoadReport, received_s: float) -> None:
        sketches = self._sketches
        for container in report.containers:
            for one in container.segments:
                sketches.pop(one.segment, None)
                if one.keys is not None:
                    told = _Told(report.node_id, container.container_epoch, received_s, one.keys)
                    sketches[one.segment] = told
        while sketches:
            oldest = next(iter(sketches))
            is_old = received_s - sketches[oldest].received_s > SKETCH_S_MAX
            if not is_old and len(sketches) <= SKETCHES_MAX:
                break
            del sketches[oldest]

    def _drop_oldest(self, node_id: str) -> None:
        held = self._periods[node_id]
        self._segment_count -= held.popleft().segment_count
        if not held:
            del self._periods[node_id]


def _period_of(report: LoadReport, received_s: float) -> StorePeriod:
    return StorePeriod(
        session=report.session,
        sequence=report.sequence,
        length_ms=report.length_ms,
        others_idle=report.others_idle,
        received_s=received_s,
        containers={found.container: _container(found) for found in report.containers},
        due_ms=report.due_ms,
    )


def _container(found: ContainerLoad) -> ContainerPeriod:
    return ContainerPeriod(
        found.container_epoch,
        {one.segment: (one.events, one.size) for one in found.segments},
        {
            one.segment: Merged(one.merged.events, one.merged.size, one.merged.over_ms)
            for one in found.segments
            if one.merged is not None
        },
    )
