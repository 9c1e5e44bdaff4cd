"""The last load reports of all stores, in memory.

Every controller hears every report and keeps the last few of each store; none are stored, so a
controller that has just started knows nothing of load. What is dropped to stay within the bounds
is the oldest, and what is missing is unknown, never zero.
"""

from collections import deque

from anabranch.common.contracts.load import LoadReport
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.load import (
    ContainerPeriod,
    Rate,
    ServedSegment,
    StorePeriod,
    rate_of,
)

WINDOW_MS = 60_000
PERIODS_MAX = 13
"""Of one store: a minute and more with the usual period of 10 s."""
NODES_MAX = 1024
SEGMENTS_MAX = 200_000
"""Listed in all reports together."""


class LoadReports:
    """What stores told of their last periods."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[str, deque[StorePeriod]] = {}
        self._segment_count = 0

    def learn(self, report: LoadReport) -> None:
        """A report came. One that is not newer than the last of its session is passed over."""
        period = _period_of(report, self._clock.monotonic())
        held = self._periods.setdefault(report.node_id, deque())
        if held and held[-1].session == period.session and held[-1].sequence >= period.sequence:
            return
        held.append(period)
        self._segment_count += period.segment_count
        if len(held) > PERIODS_MAX:
            self._drop_oldest(report.node_id)
        while len(self._periods) > NODES_MAX or self._segment_count > SEGMENTS_MAX:
            self._drop_oldest(
                min(self._periods, key=lambda node: self._periods[node][0].received_s)
            )

    def rate(self, node_id: str, segment: ServedSegment) -> Rate | None:
        """How fast the segment is written; None: unknown."""
        periods = tuple(self._periods.get(node_id, ()))
        return rate_of(periods, segment, now_s=self._clock.monotonic(), window_ms=WINDOW_MS)

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
        containers={
            found.container: ContainerPeriod(
                found.container_epoch,
                {one.segment: (one.events, one.size) for one in found.segments},
            )
            for found in report.containers
        },
    )
