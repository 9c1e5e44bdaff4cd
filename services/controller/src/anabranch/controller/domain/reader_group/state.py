"""A reader group's state, and how events change it.

The table is `MACHINE`. A creation begins the next incarnation, a reset the next generation.

`GroupIntentJoined` adds a command that wants the pending work. A deletion ends a creation or a
reset, whatever delays it. DELETED is the tombstone: it keeps the incarnation and the operations,
and creating the name again is a compare-and-set on it.
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
from anabranch.controller.domain.machine import Machine, Row
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.reader_group import events
from anabranch.controller.domain.reader_group.events import GroupEvent


class GroupStep(StrEnum):
    """The steps of a reader group's workflows."""

    JOIN_SCOPE = "join_scope"
    MAKE_STATE_STREAM = "make_state_stream"
    SUBSCRIBE = "subscribe"
    RESUBSCRIBE = "resubscribe"
    UNSUBSCRIBE = "unsubscribe"
    DELETE_STATE_STREAM = "delete_state_stream"


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """A reader group.

    ref, incarnation     its name, None if the name was never used; the number of its lives
    status               None: the name was never used
    scope_incarnation    the incarnation of the scope in which it was created
    has_joined_scope     it is a member of that incarnation of the scope
    has_state_stream     the stream with its readers' shared state exists
    has_unsubscribed     its deletion has left all streams
    generation           the number of resets in this incarnation
    config               None before the first creation, and for a tombstone
    subscribed           the streams that may know it from before this generation, sorted
    created_ms           Unix ms
    pending, since_ms    the commands that want the pending work, and when it was accepted
    operations           the last accepted commands, with their outcomes

    Invariants: `pending` is empty unless the status is CREATING, RESETTING or DELETING, and holds
    exactly the running operations; a stream leaves `touched` only after it knows the change.
    `invariants.py` has all of them.
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
        """Whether the name is taken, even if the group is half-created or half-deleted."""
        return self.status not in (None, GroupState.DELETED)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The streams to which it shall subscribe at the present generation, sorted."""
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
"""The intent that is being performed, by the group's status."""


_CREATING, _ACTIVE, _RESETTING = GroupState.CREATING, GroupState.ACTIVE, GroupState.RESETTING
_DELETING, _DELETED = GroupState.DELETING, GroupState.DELETED

MACHINE: Machine[GroupState] = Machine(
    Row(events.GroupCreating, (None, _DELETED), _CREATING, (GroupStep.JOIN_SCOPE,)),
    Row(events.GroupJoinedScope, (_CREATING,), None, (GroupStep.MAKE_STATE_STREAM,)),
    Row(events.GroupCreateFailed, (_CREATING,), _DELETED, ("",)),
    Row(events.GroupStateMade, (_CREATING,), None, (GroupStep.SUBSCRIBE,)),
    Row(events.GroupCreated, (_CREATING,), _ACTIVE, ("",)),
    Row(events.GroupResetting, (_ACTIVE,), _RESETTING, (GroupStep.RESUBSCRIBE,)),
    Row(events.GroupReset, (_RESETTING,), _ACTIVE, ("",)),
    Row(
        events.GroupDeleting,
        (_CREATING, _ACTIVE, _RESETTING),
        _DELETING,
        (GroupStep.UNSUBSCRIBE,),
    ),
    Row(events.GroupUnsubscribed, (_DELETING,), None, (GroupStep.DELETE_STATE_STREAM,)),
    Row(events.GroupDeleted, (_DELETING,), _DELETED, ("",)),
    Row(events.GroupIntentJoined, (_CREATING, _RESETTING, _DELETING), None, tuple(GroupStep)),
)


def evolve(group: ReaderGroup, event: GroupEvent) -> ReaderGroup:
    """The group after the event."""
    status = MACHINE.after(group.status, event)
    return replace(_evolved(group, event), status=status)


def _evolved(group: ReaderGroup, event: GroupEvent) -> ReaderGroup:
    """Everything except the status."""
    match event:
        case events.GroupCreating():
            return _creating(group, event)
        case events.GroupJoinedScope():
            return replace(group, has_joined_scope=True)
        case events.GroupStateMade():
            return replace(group, has_state_stream=True)
        case events.GroupCreated() | events.GroupReset():
            ended = _ended(group)
            return replace(ended, subscribed=group.wanted)
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
    """End the pending commands, successfully or with `error`."""
    ended = operations.with_finished(group.operations, group.pending, error)
    return replace(group, pending=(), since_ms=0, operations=ended)


def _tombstone(group: ReaderGroup) -> ReaderGroup:
    """The permanent remainder of a deleted group."""
    return ReaderGroup(
        ref=group.ref,
        incarnation=group.incarnation,
        scope_incarnation=group.scope_incarnation,
        created_ms=group.created_ms,
        operations=group.operations,
    )


def next_step(group: ReaderGroup) -> GroupStep | None:
    """The step that is due, if any."""
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
