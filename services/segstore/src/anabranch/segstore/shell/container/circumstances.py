"""The circumstances of one request, as its container knows them when it answers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.circumstances import (
    EventBoundary,
    EventsInTierTwo,
    Given,
    InTierTwo,
    TimesInTierTwo,
    Whereabouts,
)
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import Operation
from anabranch.segstore.shell.memory.boundaries import (
    boundary_after,
    boundary_at_time,
    boundary_before,
)
from anabranch.segstore.shell.memory.event_boundaries import boundary_at_event, events_before
from anabranch.segstore.shell.memory.read_index import ReadIndex


@dataclass(frozen=True, slots=True)
class ContainerCircumstances:
    """Implements `domain.container.circumstances.Circumstances`.

    `index` covers the durable bytes, and `durable` returns the durable state of a living segment by
    its number; `waiting` yields the operations that are not durable yet, in order.
    """

    container: int
    container_epoch: int
    now_ms: int
    given: Given
    index: ReadIndex
    waiting: Callable[[], Iterable[Operation]]
    durable: Callable[[int], SegmentState | None]

    def whereabouts(self, number: int) -> Whereabouts:
        """See `Circumstances`."""
        index = self.index.find(number)
        tiered = (index.tiered_length, index.sealed_in_tier_two) if index else (0, False)
        return Whereabouts(self.container, self.container_epoch, *tiered)

    def boundary_before(self, known: Known, offset: int) -> int | InTierTwo:
        """See `Circumstances`."""
        return boundary_before(known, offset, self.index, self.waiting(), self.given.tiered)

    def boundary_after(self, known: Known, offset: int) -> int | InTierTwo:
        """See `Circumstances`."""
        return boundary_after(known, offset, self.index, self.given.tiered)

    def boundary_at_time(self, known: SegmentState, time_ms: int) -> int | TimesInTierTwo:
        """See `Circumstances`."""
        return boundary_at_time(known, time_ms, self.index, self.given.tiered_time)

    def events_before(self, known: Known, boundary: int) -> int:
        """See `Circumstances`."""
        durable = self.durable(known.number) if isinstance(known, SegmentState) else None
        return events_before(
            known, boundary, self.index,
            durable=durable, waiting=self.waiting(), tiered=self.given.tiered,
        )  # fmt: skip

    def boundary_at_event(
        self, known: SegmentState, event_index: int
    ) -> EventBoundary | EventsInTierTwo:
        """See `Circumstances`."""
        return boundary_at_event(known, event_index, self.index, self.given.tiered_event)
