"""Truncating a stream: truncate the segments of the cut, delete those before it.

Wakes on: an active stream whose first intent is a truncation.

Why in this order: whether an offset is within its segment, and between two appends, only the stores
know, and what they refuse once they refuse for ever. So the offsets are looked at first, then the
cut's own segments are truncated, and what cannot be taken back comes last: what lies before the
cut is deleted when the cut is known to be possible. If it is not, the truncation fails, and the
stream begins where it did.

Why safe to repeat: a segment that begins at the offset already, and one that is gone, are success,
and what lies before the cut is the same whatever came behind it since.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import InvalidRequest, NotAtBoundary
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.events import (
    StreamEvent,
    StreamTruncated,
    StreamTruncateFailed,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def truncate_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Truncate, then delete, several at a time."""
    stamp, stream = stamp_of(loaded), loaded.state
    plan = stream.intents[0].truncation
    assert plan is not None
    history = await context.histories.of(stream)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    places = [place for place in plan.cut if place.offset > 0]
    growing = [place for place in places if history.lives[place.segment_id].size is None]
    try:
        await for_each(growing, SEGMENT_REQUESTS_MAX, partial(_look, context, stream))
        await for_each(places, SEGMENT_REQUESTS_MAX, partial(_truncate, context, loaded))
    except (InvalidRequest, NotAtBoundary) as refusal:
        return StreamTruncateFailed(error=ErrorBody.of(refusal))
    deleted = cuts.truncated(history, stream.head, plan.cut)
    await for_each(stream.names_of(deleted), SEGMENT_REQUESTS_MAX, delete)
    return StreamTruncated()


async def _look(context: WorkContext, stream: Stream, place: SegmentOffset) -> None:
    """Raises InvalidRequest if the offset is beyond the segment's end."""
    (name,) = stream.names_of([place.segment_id])
    length = await context.stores.segment_length(name)
    if place.offset > length:
        raise InvalidRequest(
            "the offset is beyond the segment's end",
            segment=name,
            offset=place.offset,
            length=length,
        )


async def _truncate(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
    (name,) = loaded.state.names_of([place.segment_id])
    await context.stores.truncate_segment(name, place.offset, stamp_of(loaded))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.TRUNCATE_SEGMENTS: truncate_segments,
}
