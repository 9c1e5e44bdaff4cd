"""A reader group's state and how events change it.

    ┌───────────┬─────────────────────────────┬───────────┬─────────────────────┐
    │ from      │ event                       │ to        │ then next_step      │
    ├───────────┼─────────────────────────────┼───────────┼─────────────────────┤
    │ (none)    │ GroupCreating               │ CREATING  │ join_scope          │
    │ DELETED   │ GroupCreating (incarnation+1)│ CREATING │ join_scope          │
    │ CREATING  │ GroupJoinedScope            │ CREATING  │ make_state_stream   │
    │ CREATING  │ GroupCreateFailed           │ DELETED   │ –                   │
    │ CREATING  │ GroupStateMade              │ CREATING  │ subscribe           │
    │ CREATING  │ GroupCreated                │ ACTIVE    │ –                   │
    │ ACTIVE    │ GroupResetting (generation+1)│ RESETTING│ resubscribe         │
    │ RESETTING │ GroupReset                  │ ACTIVE    │ –                   │
    │ CREATING  │ GroupDeleting               │ DELETING  │ unsubscribe         │
    │ ACTIVE    │ GroupDeleting               │ DELETING  │ unsubscribe         │
    │ RESETTING │ GroupDeleting               │ DELETING  │ unsubscribe         │
    │ DELETING  │ GroupUnsubscribed           │ DELETING  │ delete_state_stream │
    │ DELETING  │ GroupDeleted                │ DELETED   │ –                   │
    └───────────┴─────────────────────────────┴───────────┴─────────────────────┘

`GroupIntentJoined` notes a command that wants what is being done. A deletion puts an end to a
creation or a reset, whatever holds it up. DELETED is the tombstone: it keeps the incarnation and
the operations, and creating the name again is a compare-and-set on it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.names import ScopeName
from anabranch.common.model.reader_group import (
    GroupRef,
    GroupRetention,
    GroupState,
    ReaderGroupConfig,
)
from anabranch.controller.domain import operations
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.reader_group import events
from anabranch.controller.domain.reader_group.events import GroupEvent


class GroupStep(StrEnum):
    """What the workflows of a reader group may have to do."""

    JOIN_SCOPE = "join_scope"
    MAKE_STATE_STREAM = "make_state_stream"
    SUBSCRIBE = "subscribe"
    RESUBSCRIBE = "resubscribe"
    UNSUBSCRIBE = "unsubscribe"
    DELETE_STATE_STREAM = "delete_state_stream"


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """A reader group. `status` None: the name was never used.

    `subscribed`: the streams that may know it as a subscriber from before the present generation,
    sorted. `pending`: the commands that want what is being done, since `since_ms`.
    """

    ref: GroupRef | None = None
    incarnation: int = 0
    status: GroupState | None = None
    scope_incarnation: int = 0
    has_joined_scope: bool = False
    has_state_stream: bool = False
    has_unsubscribed: bool = False
    generation: int = 0
    config: ReaderGroupConfig | None = None
    subscribed: tuple[str, ...] = ()
    created_ms: int = 0
    pending: tuple[str, ...] = ()
    since_ms: int = 0
    operations: Operations = ()

    @property
    def is_live(self) -> bool:
        """The name is taken, though the group may be half-created or half-deleted."""
        return self.status not in (None, GroupState.DELETED)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The streams that it is to subscribe to at the present generation, sorted."""
        if self.config is None or self.config.retention is GroupRetention.NONE:
            return ()
        return tuple(sorted(each.stream for each in self.config.streams))

    @property
    def touched(self) -> tuple[str, ...]:
        """All streams that may know it as a subscriber, sorted."""
        return tuple(sorted({*self.subscribed, *self.wanted}))


KIND_OF = {
    GroupState.CREATING: "create",
    GroupState.RESETTING: "reset",
    GroupState.DELETING: "delete",
}
"""Of the intent that is being performed, by what the group is doing."""


def evolve(group: ReaderGroup, event: GroupEvent) -> ReaderGroup:
    """The group after the event."""
    match event:
        case events.GroupCreating():
            return _creating(group, event)
        case events.GroupJoinedScope():
            return replace(group, has_joined_scope=True)
        case events.GroupStateMade():
            return replace(group, has_state_stream=True)
        case events.GroupCreated() | events.GroupReset():
            ended = _ended(group)
            return replace(ended, status=GroupState.ACTIVE, subscribed=group.wanted)
        case events.GroupResetting():
            return _accepted(
                replace(
                    group,
                    generation=event.generation,
                    config=event.config,
                    subscribed=group.touched,
                ),
                GroupState.RESETTING,
                event,
            )
        case events.GroupDeleting():
            return _accepted(_ended(group, event.ended_error), GroupState.DELETING, event)
        case events.GroupUnsubscribed():
            return replace(group, has_unsubscribed=True)
        case events.GroupCreateFailed():
            return _tombstone(_ended(group, event.error))
        case events.GroupDeleted():
            return _tombstone(_ended(group))
        case events.GroupIntentJoined():
            return _joined(group, event)
        case _:
            assert_never(event)


def _creating(group: ReaderGroup, event: events.GroupCreating) -> ReaderGroup:
    created = ReaderGroup(
        ref=GroupRef(ScopeName(event.scope), event.group),
        incarnation=event.incarnation,
        scope_incarnation=event.scope_incarnation,
        config=event.config,
        created_ms=event.at_ms,
        operations=group.operations,
    )
    return _accepted(created, GroupState.CREATING, event)


def _accepted(
    group: ReaderGroup,
    status: GroupState,
    event: events.GroupCreating | events.GroupResetting | events.GroupDeleting,
) -> ReaderGroup:
    return replace(
        group,
        status=status,
        pending=(event.command_id,),
        since_ms=event.at_ms,
        operations=operations.with_started(
            group.operations, event.command_id, KIND_OF[status], event.at_ms
        ),
    )


def _joined(group: ReaderGroup, event: events.GroupIntentJoined) -> ReaderGroup:
    assert group.status is not None
    return replace(
        group,
        pending=(*group.pending, event.command_id),
        operations=operations.with_started(
            group.operations, event.command_id, KIND_OF[group.status], group.since_ms
        ),
    )


def _ended(group: ReaderGroup, error: ErrorBody | None = None) -> ReaderGroup:
    """What was pending has ended, well or with `error`."""
    ended = operations.with_finished(group.operations, group.pending, error)
    return replace(group, pending=(), since_ms=0, operations=ended)


def _tombstone(group: ReaderGroup) -> ReaderGroup:
    """What stays of a group for ever."""
    return ReaderGroup(
        ref=group.ref,
        incarnation=group.incarnation,
        status=GroupState.DELETED,
        scope_incarnation=group.scope_incarnation,
        created_ms=group.created_ms,
        operations=group.operations,
    )


def next_step(group: ReaderGroup) -> GroupStep | None:
    """What must be done next, if anything."""
    match group.status:
        case GroupState.CREATING if not group.has_joined_scope:
            return GroupStep.JOIN_SCOPE
        case GroupState.CREATING if not group.has_state_stream:
            return GroupStep.MAKE_STATE_STREAM
        case GroupState.CREATING:
            return GroupStep.SUBSCRIBE
        case GroupState.RESETTING:
            return GroupStep.RESUBSCRIBE
        case GroupState.DELETING if not group.has_unsubscribed:
            return GroupStep.UNSUBSCRIBE
        case GroupState.DELETING:
            return GroupStep.DELETE_STATE_STREAM
        case _:
            return None
