"""Create a reader group: join the scope, have the state stream created, then subscribe.

Wakes on: a reader group in CREATING. Its configuration is complete: the decision on the creation
has resolved every empty start.

Order: the group joins the scope first (`joining.py`), so that the scope cannot be deleted without
the group. The state stream is a member of the scope too, and can be created only while the scope is
open. The group subscribes before it becomes ACTIVE, so a stream deletes no event that a reader of
an active group still has to read. If a stream was truncated since the decision, the group begins at
the stream's new head.

Idempotent: the group commands other aggregates as `group_needs.py` describes. A stream that was
deleted since the decision needs no subscription. If the creation has become impossible, because the
scope is being deleted, it waits until that deletion deletes the group too.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import ScopeNotFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group import others
from anabranch.controller.domain.reader_group.events import (
    GroupCreated,
    GroupCreateFailed,
    GroupEvent,
    GroupJoinedScope,
    GroupStateMade,
)
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.workflows.context import WorkContext, group_membership_of
from anabranch.controller.workflows.group_needs import settle_stream, settle_streams
from anabranch.controller.workflows.joining import joins_scope


async def join_scope(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """Continue only if the group is a member of the intended incarnation of the scope."""
    group = loaded.state
    assert group.ref is not None
    member = group_membership_of(group)
    if await joins_scope(context, group.ref.scope, group.scope_incarnation, member):
        return GroupJoinedScope()
    gone = ScopeNotFound(
        "the scope was deleted while the reader group was being created", scope=group.ref.scope
    )
    return GroupCreateFailed(error=ErrorBody.of(gone))


async def make_state_stream(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """Have the state stream created. Raises StillWaiting until it is."""
    group = loaded.state
    ref = others.state_stream_of(group)
    needed = partial(others.state_stream_to_live, group)
    if not await settle_stream(context, group, ref, needed):
        raise StillWaiting(f"the state stream {ref} is to be created")
    return GroupStateMade()


async def subscribe(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """Subscribe to every live stream. Raises StillWaiting until all streams know the group."""
    group = loaded.state
    needed = partial(others.subscription, group)
    await settle_streams(context, group, group.wanted, needed, "still have to add the subscription")
    return GroupCreated()


STEPS: Mapping[GroupStep, Callable[[WorkContext, Loaded[ReaderGroup]], Awaitable[GroupEvent]]] = {
    GroupStep.JOIN_SCOPE: join_scope,
    GroupStep.MAKE_STATE_STREAM: make_state_stream,
    GroupStep.SUBSCRIBE: subscribe,
}
