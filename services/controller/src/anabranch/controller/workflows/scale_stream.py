"""Scaling a stream: make the new segments, tell of them, then seal the old ones.

Wakes on: an active stream whose first intent is a scale.

Why in this order: a reader or writer that meets the end of a sealed segment asks for its
successors, and must get them, so they exist and are told (`StreamSuccessorsMade`) before anything
is sealed. The new epoch becomes the current one when all that it replaces is sealed; until then
writers that still find their segment open go on with it. Keys stay in order all the same: nobody
writes to a successor before he has met the end of what comes before it.

Why safe to repeat: creating a segment again under the same stamp, and sealing a sealed one, are
success and answer the same.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.events import (
    StreamEvent,
    StreamScaled,
    StreamSuccessorsMade,
)
from anabranch.controller.domain.stream.intents import ScalePlan
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    seal_all,
    stamp_of,
)


async def make_successors(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Make every new segment, several at a time."""
    stamp = stamp_of(loaded)

    async def create(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    created = (segment.segment_id for segment in _plan(loaded).created)
    await for_each(loaded.state.names_of(created), SEGMENT_REQUESTS_MAX, create)
    return StreamSuccessorsMade()


async def seal_predecessors(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal every segment that is replaced, several at a time."""
    names = loaded.state.names_of(_plan(loaded).sealed)
    return StreamScaled(sizes=await seal_all(context, names, stamp_of(loaded)))


def _plan(loaded: Loaded[Stream]) -> ScalePlan:
    plan = loaded.state.intents[0].scale
    assert plan is not None
    return plan


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.MAKE_SUCCESSORS: make_successors,
    StreamStep.SEAL_PREDECESSORS: seal_predecessors,
}
