"""What a reader group tells other aggregates, which are its streams and its state stream. Pure.

It changes none of them but sends them commands through the queue, and what became of one is seen
in the aggregate. A command's id follows from the group's life and what is told, so a repeated one
is recognised.
"""

from typing import NamedTuple, TypeVar

from anabranch.common.contracts.commands import CreateStream, DeleteStream, SealStream
from anabranch.common.contracts.reader_groups import AddSubscriber, RemoveSubscriber
from anabranch.common.model.names import StreamRef, is_internal
from anabranch.common.model.reader_group import STATE_STREAM_PREFIX, GroupRef, group_ref
from anabranch.common.model.stream import StreamState, fixed
from anabranch.controller.domain import operations
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.scope.emptying import derived_id, next_command
from anabranch.controller.domain.stream.state import Stream

OtherCommand = CreateStream | SealStream | DeleteStream | AddSubscriber | RemoveSubscriber


class Need(NamedTuple):
    """Whether something of another aggregate is as it has to be; if not, what to tell it now.

    No `command`: it is on its way there.
    """

    is_done: bool
    command: OtherCommand | None = None


DONE = Need(is_done=True)


def life_of(group: ReaderGroup) -> str:
    """Names this life of the group, for all times."""
    return f"{group.ref}/{group.incarnation}"


def state_stream_of(group: ReaderGroup) -> StreamRef:
    """The group's state stream."""
    assert group.ref is not None
    return group.ref.state_stream


def state_stream_to_live(group: ReaderGroup, stream: Stream | None) -> Need:
    """The state stream, made for this life of the group, takes events.

    One that an earlier life left behind is deleted first.
    """
    if stream is None or not stream.is_live:
        return Need(is_done=False, command=_creation(group, stream))
    if not _is_made_for(group, stream):
        return Need(is_done=False, command=next_command(life_of(group), stream))
    return Need(is_done=stream.status is StreamState.ACTIVE)


def state_stream_to_go(group: ReaderGroup, stream: Stream | None, *, may_come: bool) -> Need:
    """The state stream is deleted, and no command that is still under way can make it.

    `may_come`: such a command may be under way. Then its decision is had first: it is sent again,
    and what it makes is deleted.
    """
    if stream is not None and stream.is_live:
        return Need(is_done=False, command=next_command(life_of(group), stream))
    if may_come and not (stream is not None and _is_made_for(group, stream)):
        return Need(is_done=False, command=_creation(group, stream))
    return DONE


def subscription(group: ReaderGroup, stream: Stream | None) -> Need:
    """The stream knows the group as a subscriber of this generation, or is gone."""
    if stream is None or _is_gone(stream):
        return DONE
    if stream.subscriptions.has(str(group.ref), (group.incarnation, group.generation)):
        return DONE
    return Need(is_done=False, command=_told(AddSubscriber, group, stream, "subscribe"))


def end_of_subscription(group: ReaderGroup, stream: Stream | None) -> Need:
    """The stream knows that the group subscribes no more, up to this generation, or is gone."""
    if stream is None or _is_gone(stream):
        return DONE
    if stream.subscriptions.has_left(str(group.ref), (group.incarnation, group.generation)):
        return DONE
    return Need(is_done=False, command=_told(RemoveSubscriber, group, stream, "unsubscribe"))


def groups_concerned(before: Stream, after: Stream) -> list[GroupRef]:
    """The groups that may have waited for what happened to the stream."""
    assert after.ref is not None
    if is_internal(after.ref.stream):
        group = after.ref.stream.removeprefix(STATE_STREAM_PREFIX)
        return [GroupRef(after.ref.scope, group)]
    if before.subscriptions is after.subscriptions:
        return []
    was, now = before.subscriptions, after.subscriptions
    present = {one.subscriber for one in set(was.present) ^ set(now.present)}
    former = {one.subscriber for one in set(was.former) ^ set(now.former)}
    return [group_ref(name) for name in sorted(present | former)]


C = TypeVar("C", AddSubscriber, RemoveSubscriber)


def _told(kind: type[C], group: ReaderGroup, stream: Stream, step: str) -> C:
    assert stream.ref is not None
    about = f"{stream.ref}/{stream.incarnation}/{group.generation}"
    return kind(
        command_id=derived_id(life_of(group), step, about),
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        incarnation=stream.incarnation,
        subscriber=str(group.ref),
        group_incarnation=group.incarnation,
        generation=group.generation,
    )


def _is_gone(stream: Stream) -> bool:
    return not stream.is_live or stream.status is StreamState.DELETING


def _creation(group: ReaderGroup, stream: Stream | None) -> CreateStream:
    ref = state_stream_of(group)
    return CreateStream(
        command_id=_creation_id(group, stream.incarnation if stream is not None else 0),
        scope=ref.scope,
        stream=ref.stream,
        config=fixed(1),
    )


def _creation_id(group: ReaderGroup, incarnation_before: int) -> str:
    """An attempt may fail, because the scope is closed for a while; the next one is another one."""
    return derived_id(life_of(group), "create_state_stream", str(incarnation_before))


def _is_made_for(group: ReaderGroup, stream: Stream) -> bool:
    """Whether the last life of the state stream began for this life of the group."""
    created_by = _creation_id(group, stream.incarnation - 1)
    return operations.find(stream.operations, created_by) is not None
