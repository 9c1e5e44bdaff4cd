"""Truncating a stream: truncate the segments of the cut, delete those before it.

Wakes on: an active stream whose first intent is a truncation.

Why in this order: the cut's own segments are truncated first, because that can still be refused
where an offset is none; what cannot be taken back comes after.

Why safe to repeat: a segment that begins at the offset already, and one that is gone, are success.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.events import StreamEvent, StreamTruncated
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def truncate_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Truncate, then delete, several at a time."""
    stamp, stream = stamp_of(loaded), loaded.state
    plan = stream.intents[0].truncation
    assert plan is not None

    async def truncate(place: SegmentOffset) -> None:
        (name,) = stream.names_of([place.segment_id])
        await context.stores.truncate_segment(name, place.offset, stamp)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    await for_each(
        [place for place in plan.cut if place.offset > 0], SEGMENT_REQUESTS_MAX, truncate
    )
    await for_each(stream.names_of(plan.deleted), SEGMENT_REQUESTS_MAX, delete)
    return StreamTruncated()


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.TRUNCATE_SEGMENTS: truncate_segments,
}
