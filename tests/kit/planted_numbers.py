"""Known bugs of record numbers, planted on purpose, as context managers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from anabranch.common.tier2 import wire
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container import evolve
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import TruncateOperation
from anabranch.segstore.domain.container.state import SegmentCut
from anabranch.segstore.domain.storage import plan

Plant = Callable[[], AbstractContextManager[object]]


@contextmanager
def numbers_begin_anew_after_a_truncation() -> Iterator[None]:
    """A truncated segment counts only the events that it keeps."""
    real = evolve._evolve_truncated

    def truncated(known: Known, sequence: int, operation: TruncateOperation) -> SegmentState:
        found = real(known, sequence, operation)
        kept = found.event_count - max(found.start_event_count, 0)
        return replace(found, event_count=kept, start_event_count=0)

    with patch.object(evolve, "_evolve_truncated", truncated):
        yield


@contextmanager
def the_catalog_forgets_the_first_number() -> Iterator[None]:
    """A segment that comes back from tier 2 counts from 0 again."""
    with patch.object(wire, "_start_event_count", lambda _: 0):
        yield


@contextmanager
def extents_count_from_their_flush() -> Iterator[None]:
    """The events before an extent are those of its flush only."""

    def counted(segment: SegmentCut) -> Sequence[int]:
        return [0] * len(segment.runs)

    with patch.object(plan, "events_before_runs", counted):
        yield


PLANTS: tuple[Plant, ...] = (
    numbers_begin_anew_after_a_truncation,
    the_catalog_forgets_the_first_number,
    extents_count_from_their_flush,
)
