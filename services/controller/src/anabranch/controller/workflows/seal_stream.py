"""Sealing a stream: seal its segments, then say that it is sealed.

Wakes on: an active stream whose first intent is to be sealed.

Why in this order: "sealed" promises readers that what they have seen to the end is all there
will ever be, so it is said only after no segment takes appends any more.

Why safe to repeat: sealing a sealed segment answers with the same length.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream.events import StreamEvent, StreamSealed
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import WorkContext, seal_all, stamp_of


async def seal_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal every present segment, several at a time."""
    names = loaded.state.segment_names()
    return StreamSealed(lengths=await seal_all(context, names, stamp_of(loaded)))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.SEAL_SEGMENTS: seal_segments,
}
