"""Create a stream: join the scope, then create the segments.

Wakes on: a stream in CREATING.

Order: the stream joins the scope first (`joining.py`), so that the scope cannot be deleted without
the stream. The segments are created before the stream becomes ACTIVE, so that a client that sees an
active stream can use all of it.

Idempotent: a recorded stream has joined, and the creation fails only after its record was ended for
ever. Creating a segment again under the same stamp succeeds.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import ScopeNotFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.events import (
    StreamCreated,
    StreamCreateFailed,
    StreamEvent,
    StreamJoinedScope,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    membership_of,
    stamp_of,
)
from anabranch.controller.workflows.joining import joins_scope


async def join_scope(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Continue only if the stream is a member of the intended incarnation of the scope."""
    stream = loaded.state
    assert stream.ref is not None
    member = membership_of(stream)
    if await joins_scope(context, stream.ref.scope, stream.scope_incarnation, member):
        return StreamJoinedScope()
    gone = ScopeNotFound(
        "the scope was deleted while the stream was being created", scope=stream.ref.scope
    )
    return StreamCreateFailed(error=ErrorBody.of(gone))


async def create_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Create every planned segment, several concurrently."""
    stamp = stamp_of(loaded)

    async def create(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    await for_each(loaded.state.segment_names(), SEGMENT_REQUESTS_MAX, create)
    return StreamCreated()


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.JOIN_SCOPE: join_scope,
    StreamStep.CREATE_SEGMENTS: create_segments,
}
