"""Scale a stream: create the new segments, publish them, then seal the old ones.

Wakes on: an active stream whose first intent is a scale.

Order: a reader or writer that meets the end of a sealed segment asks for its successors and must
get them. They are therefore created and published (`StreamSuccessorsMade`) before any segment is
sealed. The new epoch becomes current when all segments that it replaces are sealed; until then, a
writer whose segment is still open continues with it. Keys stay in order: a writer writes to a
successor only after it has met the end of the predecessor.

Idempotent: creating a segment again under the same stamp, and sealing a sealed segment, succeed
with the same answer.
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
    """Create every new segment, several concurrently."""
    stamp = stamp_of(loaded)

    async def create(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    created = (segment.segment_id for segment in _plan(loaded).created)
    await for_each(loaded.state.names_of(created), SEGMENT_REQUESTS_MAX, create)
    return StreamSuccessorsMade()


async def seal_predecessors(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal every replaced segment, several concurrently."""
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
