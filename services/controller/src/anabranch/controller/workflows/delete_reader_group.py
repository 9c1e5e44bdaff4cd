"""Delete a reader group: leave its streams, have the state stream deleted, leave the scope.

Wakes on: a reader group in DELETING, whatever it was doing before.

Order: the tombstone frees the name, so nothing of this incarnation may be left by then: no
subscription, which would hold back a stream for ever, and no state stream. This includes requests
that are still on their way. Each stream records that the group has left, even if the group never
subscribed. If the creation of the state stream is not decided yet, the state stream is created and
then deleted. The group stays a member of its scope until the end, so the scope cannot be deleted
before.

Idempotent: the group commands other aggregates as `group_needs.py` describes. A deleted stream
needs no command, and leaving the scope twice is leaving it once.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from anabranch.common.contracts.subjects import scope_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import SCOPES
from anabranch.controller.domain.reader_group import others
from anabranch.controller.domain.reader_group.events import (
    GroupDeleted,
    GroupEvent,
    GroupUnsubscribed,
)
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.workflows.context import WorkContext, group_membership_of
from anabranch.controller.workflows.group_needs import settle_stream, settle_streams


async def unsubscribe(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """End all subscriptions. Raises StillWaiting until all streams know."""
    group = loaded.state
    needed = partial(others.end_of_subscription, group)
    await settle_streams(
        context, group, group.touched, needed, "still have to remove the subscription"
    )
    return GroupUnsubscribed()


async def delete_state_stream(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """Have the state stream deleted, then leave the scope. Raises StillWaiting until then."""
    group = loaded.state
    ref = others.state_stream_of(group)
    needed = partial(others.state_stream_to_go, group, may_come=await _may_come(context, group))
    if not await settle_stream(context, group, ref, needed):
        raise StillWaiting(f"the state stream {ref} is to be deleted")
    await context.gates.leave(group_membership_of(group))
    return GroupDeleted()


async def _may_come(context: WorkContext, group: ReaderGroup) -> bool:
    """Whether a creation of the state stream may still be accepted.

    It may not if none was requested, if its end was seen, or if the scope is closed for good.
    """
    assert group.ref is not None
    if not group.has_joined_scope or group.has_state_stream:
        return False
    scope = (await context.repositories[SCOPES].load(scope_events(group.ref.scope))).state
    same_life = scope.is_live and scope.incarnation == group.scope_incarnation
    return same_life and not scope.is_recursive


STEPS: Mapping[GroupStep, Callable[[WorkContext, Loaded[ReaderGroup]], Awaitable[GroupEvent]]] = {
    GroupStep.UNSUBSCRIBE: unsubscribe,
    GroupStep.DELETE_STATE_STREAM: delete_state_stream,
}
