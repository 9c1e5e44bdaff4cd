"""Decides commands on a stream's subscribers: the events that follow, or a rejection.

`subscriptions.py` describes the stored state. Each decision is done when it is stored.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    RemoveSubscriber,
    UpdateSubscriberCut,
)
from anabranch.common.errors import (
    Busy,
    CutRefused,
    GenerationMismatch,
    InvalidCut,
    InvalidRequest,
    StaleRequest,
    SubscriberNotFound,
)
from anabranch.common.model.reader_group import PositionCut, group_ref
from anabranch.common.model.stream import SegmentOffset, StreamCut, StreamState
from anabranch.controller.domain.stream import cuts, intents
from anabranch.controller.domain.stream.events import (
    StreamCommandSatisfied,
    StreamEvent,
    StreamSubscriberAdded,
    StreamSubscriberReleased,
    StreamSubscriberRemoved,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream

SUBSCRIBERS_MAX = 256

SubscriberCommand = AddSubscriber | RemoveSubscriber | UpdateSubscriberCut


def decide(
    stream: Stream, command: SubscriberCommand, history: Callable[[], History]
) -> Sequence[StreamEvent]:
    """The events of a command on a live stream.

    Raises InvalidName, InvalidRequest, InvalidCut, SubscriberNotFound, GenerationMismatch,
    CutRefused, StaleRequest, Busy.
    """
    group_ref(command.subscriber)
    match command:
        case AddSubscriber():
            return _add(stream, command, history)
        case RemoveSubscriber():
            return _remove(stream, command)
        case UpdateSubscriberCut():
            return _release(stream, command, history)
        case _:
            assert_never(command)


def offsets_of(cut: PositionCut) -> StreamCut:
    """The stream cut that contains the positions."""
    return tuple(sorted(SegmentOffset(at.segment_id, at.offset) for at in cut))


def _add(
    stream: Stream, command: AddSubscriber, history: Callable[[], History]
) -> Sequence[StreamEvent]:
    standing = (command.group_incarnation, command.generation)
    known = stream.subscriptions
    if known.has(command.subscriber, standing):
        return (StreamCommandSatisfied(command_id=command.command_id),)
    if known.has_left(command.subscriber, standing):
        raise StaleRequest(
            "the subscriber has left since",
            remedy="subscribe at a later generation",
            subscriber=command.subscriber,
            generation=command.generation,
        )
    if stream.status is StreamState.CREATING:
        raise Busy("the stream is being created; that must end first", stream=str(stream.ref))
    if known.find(command.subscriber) is None and len(known.present) >= SUBSCRIBERS_MAX:
        raise InvalidRequest(
            "the stream has reached its maximum of subscribers",
            remedy="delete unused reader groups, or reset them to no retention",
            stream=str(stream.ref),
            count=len(known.present),
        )
    return (
        StreamSubscriberAdded(
            command_id=command.command_id,
            subscriber=command.subscriber,
            group_incarnation=command.group_incarnation,
            generation=command.generation,
            cut=_start(stream, command.cut, history),
        ),
    )


def _start(stream: Stream, cut: PositionCut, history: Callable[[], History]) -> PositionCut:
    """The cut, if it is one of the stream; it may be of an earlier life of the name. Raises Busy"""
    if not cut:
        return ()
    _require_known(stream, cut)
    try:
        cuts.check(history(), offsets_of(cut))
    except InvalidCut:
        return ()
    return tuple(sorted(cut))


def _remove(stream: Stream, command: RemoveSubscriber) -> Sequence[StreamEvent]:
    standing = (command.group_incarnation, command.generation)
    if stream.subscriptions.has_left(command.subscriber, standing):
        return (StreamCommandSatisfied(command_id=command.command_id),)
    return (
        StreamSubscriberRemoved(
            command_id=command.command_id,
            subscriber=command.subscriber,
            group_incarnation=command.group_incarnation,
            generation=command.generation,
        ),
    )


def _release(
    stream: Stream, command: UpdateSubscriberCut, history: Callable[[], History]
) -> Sequence[StreamEvent]:
    found = stream.subscriptions.find(command.subscriber)
    if found is None:
        raise SubscriberNotFound(
            "the stream does not have this subscriber",
            stream=str(stream.ref),
            subscriber=command.subscriber,
        )
    if found.generation != command.generation:
        raise GenerationMismatch(
            "the subscriber is at another generation",
            subscriber=command.subscriber,
            generation=found.generation,
            meant=command.generation,
        )
    cut = tuple(sorted(command.cut))
    if cut != found.cut:
        _require_known(stream, cut)
        _require_forward(history(), found.cut, cut)
    return (
        StreamSubscriberReleased(
            command_id=command.command_id, subscriber=command.subscriber, cut=cut
        ),
    )


def _require_known(stream: Stream, cut: PositionCut) -> None:
    """Raises Busy while a segment of the cut does not belong to the current epoch yet."""
    planned = {segment.segment_id for segment in intents.planned(stream.intents)}
    if any(at.segment_id in planned for at in cut):
        raise Busy(
            "the stream's segments are changing; that must end first", stream=str(stream.ref)
        )


def _require_forward(history: History, earlier: PositionCut, later: PositionCut) -> None:
    """Raises InvalidCut, and CutRefused if `later` lies before `earlier` for some key."""
    cuts.check(history, offsets_of(later))
    if not earlier:
        return
    order = cuts.compare(history, offsets_of(later), offsets_of(earlier))
    indices = {(at.segment_id, at.offset): at.event_index for at in earlier}
    back = [
        at
        for at in later
        if at.event_index < indices.get((at.segment_id, at.offset), at.event_index)
    ]
    if order in ("before", "overlaps") or back:
        raise CutRefused(
            "the cut lies, for some keys, before the released one",
            remedy="release the cut of a later checkpoint",
        )
