"""Creating a stream: join the scope, then make the segments.

Wakes on: a stream in CREATING.

Why in this order: a scope may only be deleted when it is empty, and its members are recorded in
the scope's shard. Creation records the stream there, on the condition that the scope's gate has
not moved since it was seen open; deletion closes the gate before it reads the records
(`delete_scope`). So the record is either stored before the closing, and keeps the scope, or never.
A gate that is closed although the scope is open was closed by a deletion that found the scope
occupied; whoever comes next opens it, which the gate allows only under a later revision of the
scope than the closing's. Segments are made before the stream becomes ACTIVE, so that whoever sees
an active stream can use all of it.

Why safe to repeat: a stream that is recorded has joined, whatever the scope has become since, and
the creation fails only after its record was ended for ever: no controller that slept can join by
it later. Creating a segment under the same stamp again is success.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.subjects import scope_events, scope_gate
from anabranch.common.errors import Busy, GateClosed, MembershipEnded, ScopeNotFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName
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

JOIN_ATTEMPTS_MAX = 8


async def join_scope(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Go on only if the stream is a member of the incarnation of the scope that was meant."""
    stream = loaded.state
    assert stream.ref is not None
    if not await _joins(context, stream, stream.ref.scope):
        record = await context.gates.forgo(membership_of(stream))
        if not record.is_member:
            gone = ScopeNotFound(
                "the scope was deleted while the stream was being created", scope=stream.ref.scope
            )
            return StreamCreateFailed(error=ErrorBody.of(gone))
    return StreamJoinedScope()


async def _joins(context: WorkContext, stream: Stream, scope_name: ScopeName) -> bool:
    """Record the membership; whether the scope was open for it."""
    gate, member = scope_gate(scope_name, stream.scope_incarnation), membership_of(stream)
    for _ in range(JOIN_ATTEMPTS_MAX):
        scope = await context.scopes.load(scope_events(scope_name))
        if not scope.state.is_open or scope.state.incarnation != stream.scope_incarnation:
            return False
        try:
            await context.gates.join(gate, member)
            return True
        except MembershipEnded:
            return False
        except GateClosed:
            # It may be closing again by now; then the scope says so when it is read again.
            with suppress(GateClosed):
                await context.gates.reopen(gate, scope.revision)
    raise Busy("the scope is being closed again and again", scope=scope_name)


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
