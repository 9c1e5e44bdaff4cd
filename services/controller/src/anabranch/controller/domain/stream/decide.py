"""What a command does to a stream: the events that follow from it, or a rejection."""

from collections.abc import Sequence
from typing import assert_never

from anabranch.common.contracts.commands import CreateStream, DeleteStream, SealStream
from anabranch.common.errors import (
    Busy,
    NotFound,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
)
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import scope_name, segment_id, stream_name
from anabranch.common.model.stream import StreamConfig, StreamState
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCommandSatisfied,
    StreamCreating,
    StreamDeleting,
    StreamEvent,
    StreamIntentJoined,
    StreamSealing,
)
from anabranch.controller.domain.stream.state import Stream

StreamCommand = CreateStream | SealStream | DeleteStream


def decide(
    stream: Stream,
    command: StreamCommand,
    *,
    revision: int,
    open_scope_incarnation: int | None,
    now_ms: int,
) -> Sequence[StreamEvent]:
    """The events of `command`; none for a command that was accepted before.

    `revision`: the one that they will be stored at. `open_scope_incarnation`: that of the scope
    as read just before, None if it is absent or closing. Raises InvalidName, InvalidRequest,
    ScopeNotFound, StreamNotFound, StreamExists, StreamNotSealed, Busy, DeadlinePassed.
    """
    if operations.find(stream.operations, command.command_id) is not None:
        return ()
    operations.refuse_late(command, now_ms)
    operations.check_room(stream.operations)
    match command:
        case CreateStream():
            return _create(
                stream,
                command,
                revision=revision,
                scope_incarnation=open_scope_incarnation,
                now_ms=now_ms,
            )
        case SealStream():
            _require_live(stream, command, open_scope_incarnation)
            return _seal(stream, command, revision)
        case DeleteStream():
            _require_live(stream, command, open_scope_incarnation)
            return _delete(stream, command, revision)
        case _:
            assert_never(command)


def absent(command: StreamCommand, open_scope_incarnation: int | None) -> NotFound:
    """The error for a stream that does not live: it names the scope if that is what is missing."""
    if open_scope_incarnation is None:
        return ScopeNotFound("no such scope", scope=command.scope)
    return StreamNotFound("no such stream", scope=command.scope, stream=command.stream)


def _require_live(
    stream: Stream, command: SealStream | DeleteStream, open_scope_incarnation: int | None
) -> None:
    meant = command.incarnation
    if not stream.is_live or (meant is not None and meant != stream.incarnation):
        raise absent(command, open_scope_incarnation)


def _create(
    stream: Stream,
    command: CreateStream,
    *,
    revision: int,
    scope_incarnation: int | None,
    now_ms: int,
) -> Sequence[StreamEvent]:
    scope, name = scope_name(command.scope), stream_name(command.stream)
    config = StreamConfig(command.segment_count)
    if scope_incarnation is None:
        raise absent(command, None)
    if stream.is_live:
        return _create_again(stream, command)
    first = stream.highest_number + 1
    segments = tuple(
        PlannedSegment(
            segment_id=segment_id(0, first + index), key_start=keys.start, key_end=keys.end
        )
        for index, keys in enumerate(even_ranges(config.segment_count))
    )
    return (
        StreamCreating(
            command_id=command.command_id,
            revision=revision,
            scope=scope,
            stream=name,
            incarnation=stream.incarnation + 1,
            scope_incarnation=scope_incarnation,
            segments=segments,
            at_ms=now_ms,
        ),
    )


def _create_again(stream: Stream, command: CreateStream) -> Sequence[StreamEvent]:
    is_same = len(stream.segments) == command.segment_count
    if stream.status is StreamState.CREATING and is_same:
        return (StreamIntentJoined(command_id=command.command_id),)
    if stream.status in (StreamState.CREATING, StreamState.DELETING):
        raise _busy(stream)
    raise StreamExists("the stream exists", stream=str(stream.ref), incarnation=stream.incarnation)


def _seal(stream: Stream, command: SealStream, revision: int) -> Sequence[StreamEvent]:
    match stream.status:
        case StreamState.ACTIVE:
            return (StreamSealing(command_id=command.command_id, revision=revision),)
        case StreamState.SEALING:
            return (StreamIntentJoined(command_id=command.command_id),)
        case StreamState.SEALED:
            return (StreamCommandSatisfied(command_id=command.command_id),)
        case _:
            raise _busy(stream)


def _delete(stream: Stream, command: DeleteStream, revision: int) -> Sequence[StreamEvent]:
    match stream.status:
        case StreamState.SEALED:
            return (StreamDeleting(command_id=command.command_id, revision=revision),)
        case StreamState.DELETING:
            return (StreamIntentJoined(command_id=command.command_id),)
        case StreamState.ACTIVE:
            raise StreamNotSealed("the stream is not sealed", stream=str(stream.ref))
        case _:
            raise _busy(stream)


def _busy(stream: Stream) -> Busy:
    assert stream.status is not None
    return Busy(
        f"the stream is {stream.status}; that must end first",
        stream=str(stream.ref),
        status=str(stream.status),
    )
