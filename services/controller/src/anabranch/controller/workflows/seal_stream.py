"""Sealing a stream: seal its segments, then say that it is sealed.

Wakes on: a stream in SEALING.

Why in this order: "sealed" promises readers that what they have seen to the end is all there
will ever be, so it is said only after no segment takes appends any more.

Why safe to repeat: sealing a sealed segment answers with the same length.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.events import StreamEvent, StreamSealed
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def seal_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal every present segment, several at a time."""
    stamp = stamp_of(loaded)
    names = loaded.state.segment_names()
    lengths: dict[str, int] = {}

    async def seal(segment: str) -> None:
        lengths[segment] = await context.stores.seal_segment(segment, stamp)

    await for_each(names, SEGMENT_REQUESTS_MAX, seal)
    return StreamSealed(lengths=tuple(lengths[name] for name in names))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.SEAL_SEGMENTS: seal_segments,
}
