"""The commands of a reader group to other aggregates: its streams and its state stream. Pure.

A group changes none of them, but sends them commands through the queue and sees the results in the
aggregates. A command's id follows from the group's incarnation and the command's content, so a
repeated one is recognised.
"""

from typing import NamedTuple, TypeVar

from anabranch.common.contracts.commands import CreateStream, DeleteStream, SealStream
from anabranch.common.contracts.reader_groups import AddSubscriber, RemoveSubscriber
from anabranch.common.model.names import StreamRef, is_internal
from anabranch.common.model.reader_group import (
    STATE_STREAM_PREFIX,
    GroupRef,
    PositionCut,
    group_ref,
)
from anabranch.common.model.stream import StreamState, fixed
from anabranch.common.model.topics import is_backing
from anabranch.controller.domain import operations
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.scope.emptying import derived_id, next_command, was_deleted_by
from anabranch.controller.domain.stream.state import Stream

OtherCommand = CreateStream | SealStream | DeleteStream | AddSubscriber | RemoveSubscriber


class Need(NamedTuple):
    """Whether a need of another aggregate is met; if not, the command to send now.

    Without a `command`, the aggregate is already changing as needed.
    """

    is_done: bool
    command: OtherCommand | None = None


DONE = Need(is_done=True)


def life_of(group: ReaderGroup) -> str:
    """A name of this incarnation of the group, unique for all time."""
    return f"{group.ref}/{group.incarnation}"


def state_stream_of(group: ReaderGroup) -> StreamRef:
    """The group's state stream."""
    assert group.ref is not None
    return group.ref.state_stream


def state_stream_to_live(group: ReaderGroup, stream: Stream | None) -> Need:
    """The need that the state stream of this incarnation takes events.

    A state stream that an earlier incarnation left behind is deleted first.
    """
    if stream is None or not stream.is_live:
        return Need(is_done=False, command=_creation(group, stream))
    if not _is_made_for(group, stream):
        return Need(is_done=False, command=next_command(life_of(group), stream))
    return Need(is_done=stream.status is StreamState.ACTIVE)


def state_stream_to_go(group: ReaderGroup, stream: Stream | None, *, may_come: bool) -> Need:
    """The need that the state stream is deleted, and that no late command can create it.

    `may_come`: such a command may be on its way. It is then sent again so that it is decided, and
    the stream that it creates is deleted. A failed creation does not end this, because the group
    may have sent the next attempt before its deletion began. The last attempt is the one whose
    stream this deletion has deleted.
    """
    if stream is not None and stream.is_live:
        return Need(is_done=False, command=next_command(life_of(group), stream))
    if may_come and not (stream is not None and _is_last(group, stream)):
        return Need(is_done=False, command=_creation(group, stream))
    return DONE


def subscription(group: ReaderGroup, stream: Stream | None) -> Need:
    """The need that the stream has the group as a subscriber of this generation, or is gone."""
    if stream is None or _is_gone(stream):
        return DONE
    if stream.subscriptions.has(str(group.ref), (group.incarnation, group.generation)):
        return DONE
    told = _told(AddSubscriber, group, stream, "subscribe")
    return Need(is_done=False, command=told.model_copy(update={"cut": _start_in(group, stream)}))


def end_of_subscription(group: ReaderGroup, stream: Stream | None) -> Need:
    """The need that the stream knows that the group no longer subscribes, or is gone.

    This covers the group's generations up to the present one.
    """
    if stream is None or _is_gone(stream):
        return DONE
    if stream.subscriptions.has_left(str(group.ref), (group.incarnation, group.generation)):
        return DONE
    return Need(is_done=False, command=_told(RemoveSubscriber, group, stream, "unsubscribe"))


def groups_concerned(before: Stream, after: Stream) -> list[GroupRef]:
    """The groups that may have waited for this change of the stream."""
    assert after.ref is not None
    if is_internal(after.ref.stream) and not is_backing(after.ref.stream):
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


def _start_in(group: ReaderGroup, stream: Stream) -> PositionCut:
    """Where the group begins to read the stream: it does not hold back anything before."""
    assert group.config is not None
    starts = (each.start for each in group.config.streams if each.stream == str(stream.ref))
    return next(starts, ())


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
    """An attempt may fail, because the scope is closed for a while; the next attempt has another
    id.
    """
    return derived_id(life_of(group), "create_state_stream", str(incarnation_before))


def _is_last(group: ReaderGroup, stream: Stream) -> bool:
    """Whether the group made the deleted state stream, and deleted it in its own deletion."""
    return _is_made_for(group, stream) and was_deleted_by(life_of(group), stream)


def _is_made_for(group: ReaderGroup, stream: Stream) -> bool:
    """Whether the state stream's last incarnation was made for this incarnation of the group."""
    created_by = _creation_id(group, stream.incarnation - 1)
    return operations.find(stream.operations, created_by) is not None
