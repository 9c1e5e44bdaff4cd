"""Circumstances of a request that a test chooses, without a container."""

from dataclasses import dataclass

from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.circumstances import (
    NOTHING_GIVEN,
    EventBoundary,
    Given,
    Whereabouts,
)
from anabranch.segstore.domain.container.decide import Known


@dataclass(frozen=True, slots=True)
class FixedCircumstances:
    """Implements `Circumstances`; every offset is an append boundary."""

    given: Given = NOTHING_GIVEN
    now_ms: int = 0

    def whereabouts(self, number: int) -> Whereabouts:
        return Whereabouts(0, 1, 0, sealed_in_tier_two=False)

    def boundary_before(self, known: Known, offset: int) -> int:
        return offset

    def boundary_after(self, known: Known, offset: int) -> int:
        return offset

    def boundary_at_time(self, known: SegmentState, time_ms: int) -> int:
        return known.start

    def events_before(self, known: Known, boundary: int) -> int:
        return -1

    def boundary_at_event(self, known: SegmentState, event_index: int) -> EventBoundary:
        return EventBoundary(known.start, known.start_event_count)
