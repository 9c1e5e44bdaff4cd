"""Decides commands on a stream: the events that follow, or a rejection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.commands import (
    CreateStream,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    RemoveSubscriber,
    UpdateSubscriberCut,
)
from anabranch.common.errors import (
    Busy,
    InvalidRequest,
    NotFound,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
)
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import (
    StreamName,
    any_stream_name,
    refuse_dots,
    scope_name,
    segment_id,
    stream_name,
)
from anabranch.common.model.reader_group import STATE_STREAM_PREFIX
from anabranch.common.model.stream import StreamConfig, StreamState
from anabranch.common.model.topics import is_backing
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream import (
    backing,
    causes,
    cuts,
    intents,
    placing,
    scaling,
    subscribers,
)
from anabranch.controller.domain.stream.causes import EpochCause
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCommandSatisfied,
    StreamCreating,
    StreamDeleting,
    StreamEvent,
    StreamIntentJoined,
    StreamScaling,
    StreamSealing,
    StreamTruncating,
    StreamUpdated,
    StreamUpdating,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import IntentKind, ScalePlan
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.subscribers import SubscriberCommand

StreamCommand = (
    CreateStream
    | UpdateStream
    | ScaleStream
    | TruncateStream
    | SealStream
    | DeleteStream
    | SubscriberCommand
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of a decision besides the stream and the command.

    `revision`: the one at which the events will be stored. `open_scope_incarnation`: that of the
    scope as just read, None if it is absent or closing. `history`: the stream's, at the decided
    state; called only if old epochs matter.
    """

    revision: int
    open_scope_incarnation: int | None
    now_ms: int
    history: Callable[[], History]


def decide(stream: Stream, command: StreamCommand, at: Circumstances) -> Sequence[StreamEvent]:
    """The events of `command`; none for a command that was accepted before.

    Raises InvalidName, InvalidRequest, InvalidRanges, InvalidCut, ScopeNotFound, StreamNotFound,
    StreamExists, StreamSealed, StreamNotSealed, ScaleRefused, CutRefused, Busy, DeadlinePassed, and
    the errors of `subscribers.decide`.
    """
    if operations.find(stream.operations, command.command_id) is not None:
        return ()
    operations.refuse_late(command, at.now_ms)
    operations.check_room(stream.operations)
    if isinstance(command, CreateStream):
        return _create(stream, command, at)
    _require_live(stream, command, at.open_scope_incarnation)
    if isinstance(command, AddSubscriber | RemoveSubscriber | UpdateSubscriberCut):
        if stream.status is StreamState.DELETING:
            raise absent(command, at.open_scope_incarnation)
        return subscribers.decide(stream, command, at.history)
    match command:
        case UpdateStream():
            return _update(stream, command, at)
        case ScaleStream():
            return _scale(stream, command, at)
        case TruncateStream():
            return _truncate(stream, command, at)
        case SealStream():
            return _seal(stream, command, at)
        case DeleteStream():
            return _delete(stream, command, at)
        case _:
            assert_never(command)


def absent(command: StreamCommand, open_scope_incarnation: int | None) -> NotFound:
    """The error for a stream that does not live; it names the scope if the scope is missing."""
    if open_scope_incarnation is None:
        return ScopeNotFound("no such scope", scope=command.scope)
    return StreamNotFound("no such stream", stream=f"{command.scope}/{command.stream}")


def _require_live(
    stream: Stream,
    command: UpdateStream
    | ScaleStream
    | TruncateStream
    | SealStream
    | DeleteStream
    | SubscriberCommand,
    open_scope_incarnation: int | None,
) -> None:
    meant = command.incarnation
    if not stream.is_live or (meant is not None and meant != stream.incarnation):
        raise absent(command, open_scope_incarnation)


def _create(stream: Stream, command: CreateStream, at: Circumstances) -> Sequence[StreamEvent]:
    scope, name, config = scope_name(command.scope), _new_name(command), command.configured()
    if at.open_scope_incarnation is None:
        raise absent(command, None)
    if stream.is_live:
        return _create_again(stream, command)
    return (
        StreamCreating(
            command_id=command.command_id,
            revision=at.revision,
            scope=scope,
            stream=name,
            incarnation=stream.incarnation + 1,
            scope_incarnation=at.open_scope_incarnation,
            segments=_first_segments(stream, command, config),
            config=config,
            at_ms=at.now_ms,
        ),
    )


def _new_name(command: CreateStream) -> StreamName:
    """The name of the new stream. Raises InvalidName, InvalidRequest."""
    if command.containers is not None:
        return backing.backing_name(command)
    is_state = command.stream.startswith(STATE_STREAM_PREFIX)
    name = any_stream_name(command.stream) if is_state else stream_name(command.stream)
    refuse_dots(name)
    return name


def _first_segments(
    stream: Stream, command: CreateStream, config: StreamConfig
) -> tuple[PlannedSegment, ...]:
    if command.containers is not None:
        return backing.first_segments(stream.highest_number, command.containers)
    first = placing.first_number(stream, config)
    return tuple(
        PlannedSegment(
            segment_id=segment_id(0, first + index), key_start=keys.start, key_end=keys.end
        )
        for index, keys in enumerate(even_ranges(config.scaling.min_segments))
    )


def _create_again(stream: Stream, command: CreateStream) -> Sequence[StreamEvent]:
    is_same = stream.config == command.configured() and (
        command.containers is None
        or backing.containers_of(stream.segments[:-1]) == command.containers
    )
    if stream.status is StreamState.CREATING and is_same:
        return (_join(command, IntentKind.CREATE),)
    if stream.status in (StreamState.CREATING, StreamState.DELETING):
        raise _busy(stream)
    raise StreamExists(
        "the stream already exists", stream=str(stream.ref), incarnation=stream.incarnation
    )


def _update(stream: Stream, command: UpdateStream, at: Circumstances) -> Sequence[StreamEvent]:
    """If the policy requires another number of segments than there will be, scale to it.

    The update joins a pending scale that leads to the right number; it waits for any other one.
    The stream of a topic is not updated: the topic's own settings count.
    """
    if is_backing(command.stream):
        raise InvalidRequest(
            "the stream of a topic has no configuration of its own",
            remedy="change the topic instead",
            stream=str(stream.ref),
        )
    _require_writable(stream)
    command = command.model_copy(update={"config": placing.kept(stream, command.config)})
    waiting = intents.find(stream.intents, IntentKind.UPDATE)
    if waiting is not None:
        if waiting.config == command.config:
            return (_join(command, IntentKind.UPDATE),)
        raise _busy(stream)
    must_scale = scaling.asks_for_scale(stream, command.config)
    if must_scale and _pending_scale(stream) is not None:
        updating = StreamUpdating(
            command_id=command.command_id,
            revision=at.revision,
            config=command.config,
            at_ms=at.now_ms,
        )
        return (updating,)
    will_suit = scaling.suits(command.config, scaling.count_after_scale(stream))
    waits = will_suit and not scaling.suits(command.config, len(stream.segments))
    events: list[StreamEvent] = []
    if command.config != stream.config:
        then_scales = must_scale or waits
        updated = StreamUpdated(
            command_id=command.command_id, config=command.config, then_scales=then_scales
        )
        events.append(updated)
    if must_scale:
        events.append(_scaling(command, scaling.evened(stream, command.config), at))
    elif waits:  # for the pending scale: nothing else changes the number
        events.append(_join(command, IntentKind.SCALE))
    return events or (StreamCommandSatisfied(command_id=command.command_id),)


def _scale(stream: Stream, command: ScaleStream, at: Circumstances) -> Sequence[StreamEvent]:
    _require_writable(stream)
    scaling.require_epoch(stream, command)
    pending = _pending_scale(stream)
    if pending is not None:
        if scaling.is_same(pending, command):
            return (_join(command, IntentKind.SCALE),)
        raise _busy(stream)
    if intents.find(stream.intents, IntentKind.UPDATE):
        raise _busy(stream)
    return (_scaling(command, _planned_scale(stream, command), at),)


def _planned_scale(stream: Stream, command: ScaleStream) -> scaling.Scale:
    """The scale that the command requests. Raises ScaleRefused, InvalidRanges, InvalidRequest."""
    if is_backing(command.stream):
        epoch, highest = stream.stream_epoch, stream.highest_number
        created = backing.grown(stream.segments, epoch, highest, command)
        return scaling.Scale(epoch + 1, command.seal, created)
    if command.containers is not None:
        raise InvalidRequest("only the stream of a topic has containers", stream=str(stream.ref))
    return scaling.planned(stream, command)


def _scaling(
    command: UpdateStream | ScaleStream, plan: scaling.Scale, at: Circumstances
) -> StreamScaling:
    return StreamScaling(
        command_id=command.command_id,
        revision=at.revision,
        stream_epoch=plan.stream_epoch,
        sealed=plan.sealed,
        created=plan.created,
        at_ms=at.now_ms,
        cause=causes.UPDATE if isinstance(command, UpdateStream) else _cause(command),
    )


def _cause(command: ScaleStream) -> EpochCause:
    return EpochCause(command.cause) if command.cause else causes.MANUAL


def _truncate(stream: Stream, command: TruncateStream, at: Circumstances) -> Sequence[StreamEvent]:
    """A sealed stream can be truncated, too; one that is about to be sealed, after that."""
    is_sealing = intents.find(stream.intents, IntentKind.SEAL) is not None
    if is_sealing or stream.status not in (StreamState.ACTIVE, StreamState.SEALED):
        raise _busy(stream)
    cut = tuple(sorted(command.cut))
    pending = intents.find(stream.intents, IntentKind.TRUNCATE)
    if pending is not None:
        assert pending.truncation is not None
        if pending.truncation.cut == cut:
            return (_join(command, IntentKind.TRUNCATE),)
        raise _busy(stream)
    if cut == stream.head:
        return (StreamCommandSatisfied(command_id=command.command_id),)
    planned = {s.segment_id for s in intents.planned(stream.intents)}
    if not any(place.segment_id in planned for place in cut):
        cuts.truncated(at.history(), stream.head, cut)
    # `check_cut` validates a cut through segments that do not exist yet, once they do.
    return (
        StreamTruncating(
            command_id=command.command_id, revision=at.revision, cut=cut, at_ms=at.now_ms
        ),
    )


def _seal(stream: Stream, command: SealStream, at: Circumstances) -> Sequence[StreamEvent]:
    match stream.status:
        case StreamState.ACTIVE if intents.find(stream.intents, IntentKind.SEAL):
            return (_join(command, IntentKind.SEAL),)
        case StreamState.ACTIVE:
            sealing = StreamSealing(
                command_id=command.command_id, revision=at.revision, at_ms=at.now_ms
            )
            return (sealing,)
        case StreamState.SEALED:
            return (StreamCommandSatisfied(command_id=command.command_id),)
        case _:
            raise _busy(stream)


def _delete(stream: Stream, command: DeleteStream, at: Circumstances) -> Sequence[StreamEvent]:
    """A stream that is being created may be deleted: the creation fails, whatever delays it."""
    match stream.status:
        case StreamState.CREATING:
            gone = StreamNotFound(
                "the stream was deleted while it was being created",
                remedy="create it again if it is still wanted",
                stream=str(stream.ref),
            )
            return (_deleting(command, at, ErrorBody.of(gone)),)
        case StreamState.SEALED if not stream.intents:
            return (_deleting(command, at),)
        case StreamState.DELETING:
            return (_join(command, IntentKind.DELETE),)
        case StreamState.ACTIVE if not intents.find(stream.intents, IntentKind.SEAL):
            raise StreamNotSealed("the stream is not sealed", stream=str(stream.ref))
        case _:
            raise _busy(stream)


def _deleting(
    command: DeleteStream, at: Circumstances, creation_error: ErrorBody | None = None
) -> StreamDeleting:
    return StreamDeleting(
        command_id=command.command_id,
        revision=at.revision,
        at_ms=at.now_ms,
        creation_error=creation_error,
    )


def _pending_scale(stream: Stream) -> ScalePlan | None:
    found = intents.find(stream.intents, IntentKind.SCALE)
    return None if found is None else found.scale


def _require_writable(stream: Stream) -> None:
    """Raises StreamSealed if it is or will be sealed, Busy if it is being created or deleted."""
    if stream.status is StreamState.SEALED or intents.find(stream.intents, IntentKind.SEAL):
        raise StreamSealed(
            "the stream is sealed, or about to be",
            remedy="a sealed stream is read-only for ever; delete it, or use another one",
            stream=str(stream.ref),
        )
    if stream.status is not StreamState.ACTIVE:
        raise _busy(stream)


def _join(command: StreamCommand, kind: IntentKind) -> StreamIntentJoined:
    return StreamIntentJoined(command_id=command.command_id, intent=kind.value)


_DOING = {
    IntentKind.COMMIT: "committing transactions",
    IntentKind.UPDATE: "being updated",
}


def _busy(stream: Stream) -> Busy:
    assert stream.state is not None
    first = stream.intents[0].kind if stream.intents else None
    doing = stream.state if first is None else _DOING.get(first, stream.state)
    if stream.status is StreamState.SEALED:
        doing = "being truncated"
    return Busy(
        f"the stream is {doing}; that must end first",
        stream=str(stream.ref),
        status=str(stream.state),
    )
