"""Creating a stream: join the scope, then make the segments.

Wakes on: a stream in CREATING.

Why in this order: a scope may only be deleted when it is empty, and nothing locks the two
together. So each side *writes before it reads*. Creation has stored its intent before it looks
at the scope (`join_scope`); deletion has stored that the scope is closing before it looks for
streams (`delete_scope`). Whichever wrote second is seen by the other one's look or sees the
other's write itself; therefore both may fail, but never may both succeed. Once the scope was
seen open after the intent was stored, any later deletion must find this stream and reopen the
scope; that is recorded (`StreamJoinedScope`), so that after a crash the question is not asked
again while segments already exist. Segments are made before the stream becomes ACTIVE, so that
whoever sees an active stream can use all of it.

Why safe to repeat: looking changes nothing, and creating a segment under the same stamp again
is success.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.subjects import scope_events
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
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def join_scope(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Go on only if the incarnation of the scope that was meant is open at its head."""
    stream = loaded.state
    assert stream.ref is not None
    scope = (await context.scopes.load(scope_events(stream.ref.scope))).state
    if scope.is_open and scope.incarnation == stream.scope_incarnation:
        return StreamJoinedScope()
    gone = ScopeNotFound(
        "the scope was deleted while the stream was being created", scope=stream.ref.scope
    )
    return StreamCreateFailed(error=ErrorBody.of(gone))


async def create_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Make every planned segment, several at a time."""
    stamp = stamp_of(loaded)

    async def create(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    await for_each(loaded.state.segment_names(), SEGMENT_REQUESTS_MAX, create)
    return StreamCreated()


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.JOIN_SCOPE: join_scope,
    StreamStep.CREATE_SEGMENTS: create_segments,
}
