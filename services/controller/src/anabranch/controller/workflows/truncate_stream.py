"""Truncating a stream: check the cut, truncate its segments, delete those before it.

Wakes on: an active stream whose first intent is a truncation.

Why in this order: only the stores know whether an offset is within its segment and between two
appends, and a segment that was truncated stays so. So every segment of the cut is asked first,
sealed ones included, and a single refusal ends the truncation before anything has changed. Once
`StreamCutChecked` is stored, the truncation cannot fail any more: the cut's own segments are
truncated, and what lies before the cut is deleted last.

Why nothing is refused after the check: segments only grow, their blocks keep their places, and the
only decisions that delete a segment of the cut are a later truncation and a deletion of the stream,
which come after this one. Of bytes that are not blocks, a store forgets append boundaries when it
moves them to tier 2. Such a segment is truncated at the nearest boundary below the offset instead;
the stream begins at the cut all the same.

Why safe to repeat: the check changes nothing. A segment that begins at the offset already, and one
that is gone, are success, and what lies before the cut is the same whatever came behind it since.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import CutRefused, InvalidCut, InvalidRequest, NotAtBoundary
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.events import (
    StreamCutChecked,
    StreamEvent,
    StreamTruncated,
    StreamTruncateFailed,
)
from anabranch.controller.domain.stream.intents import TruncationPlan
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def check_cut(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Ask every segment of the cut, several at a time, whether it can be truncated there.

    A cut through segments that were being made when it was accepted is first compared with the
    stream now, when they are there.
    """
    stream, plan = loaded.state, _plan(loaded)
    history = await context.histories.of(stream)
    try:
        cuts.truncated(history, stream.head, plan.cut)
        await for_each(_places(plan), SEGMENT_REQUESTS_MAX, partial(_check, context, loaded))
    except (InvalidCut, CutRefused, InvalidRequest, NotAtBoundary) as refusal:
        return StreamTruncateFailed(error=ErrorBody.of(refusal))
    return StreamCutChecked()


async def truncate_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Truncate, then delete, several at a time."""
    stamp, stream, plan = stamp_of(loaded), loaded.state, _plan(loaded)
    history = await context.histories.of(stream)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    await for_each(_places(plan), SEGMENT_REQUESTS_MAX, partial(_truncate, context, loaded))
    deleted = cuts.truncated(history, stream.head, plan.cut)
    await for_each(stream.names_of(deleted), SEGMENT_REQUESTS_MAX, delete)
    return StreamTruncated()


def _plan(loaded: Loaded[Stream]) -> TruncationPlan:
    plan = loaded.state.intents[0].truncation
    assert plan is not None
    return plan


def _places(plan: TruncationPlan) -> list[SegmentOffset]:
    """Where the cut lies within segments; at the start of one there is nothing to do."""
    return [place for place in plan.cut if place.offset > 0]


async def _check(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
    (name,) = loaded.state.names_of([place.segment_id])
    await context.stores.check_truncation(name, place.offset, stamp_of(loaded))


async def _truncate(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
    (name,) = loaded.state.names_of([place.segment_id])
    try:
        await context.stores.truncate_segment(name, place.offset, stamp_of(loaded))
    except NotAtBoundary as forgotten:
        lower = forgotten.fields["lower"]
        assert isinstance(lower, int), "a refusal within an append names the boundary below"
        await context.stores.truncate_segment(name, lower, stamp_of(loaded))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.CHECK_CUT: check_cut,
    StreamStep.TRUNCATE_SEGMENTS: truncate_segments,
}
