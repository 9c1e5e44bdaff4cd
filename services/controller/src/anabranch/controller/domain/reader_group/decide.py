"""Decides commands on a reader group: the events that follow, or a rejection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    ResetReaderGroup,
)
from anabranch.common.errors import (
    Busy,
    GenerationMismatch,
    InvalidRequest,
    ReaderGroupExists,
    ReaderGroupNotFound,
    ScopeNotFound,
)
from anabranch.common.model.names import refuse_dots, scope_name, stream_name
from anabranch.common.model.reader_group import GroupRetention, GroupState, ReaderGroupConfig
from anabranch.controller.domain import operations
from anabranch.controller.domain.reader_group.events import (
    GroupCreating,
    GroupDeleting,
    GroupEvent,
    GroupIntentJoined,
    GroupResetting,
)
from anabranch.controller.domain.reader_group.starts import SeenStream, resolved
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.subscribers import SUBSCRIBERS_MAX

GroupCommand = CreateReaderGroup | ResetReaderGroup | DeleteReaderGroup


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of a decision besides the group and the command.

    `open_scope_incarnation`: that of the scope as just read, None if it is absent or closing.
    `streams`: the named streams that ever existed, by name.
    """

    open_scope_incarnation: int | None
    streams: Mapping[str, SeenStream]
    now_ms: int


def decide(group: ReaderGroup, command: GroupCommand, at: Circumstances) -> Sequence[GroupEvent]:
    """The events of `command`; none for a command that was accepted before.

    Raises InvalidName, InvalidRequest, InvalidCut, ScopeNotFound, StreamNotFound,
    ReaderGroupExists, ReaderGroupNotFound, GenerationMismatch, Busy, DeadlinePassed.
    """
    if operations.find(group.operations, command.command_id) is not None:
        return ()
    operations.refuse_late(command, at.now_ms)
    operations.check_room(group.operations)
    match command:
        case CreateReaderGroup():
            return _create(group, command, at)
        case ResetReaderGroup():
            return _reset(group, command, at)
        case DeleteReaderGroup():
            return _delete(group, command, at)
        case _:
            assert_never(command)


def _create(
    group: ReaderGroup, command: CreateReaderGroup, at: Circumstances
) -> Sequence[GroupEvent]:
    scope, name = scope_name(command.scope), stream_name(command.group)
    refuse_dots(name)
    if at.open_scope_incarnation is None:
        raise ScopeNotFound("no such scope", scope=scope)
    if group.status is GroupState.DELETING:
        raise _busy(group)
    if group.is_live:
        raise ReaderGroupExists(
            "the reader group already exists", group=str(group.ref), incarnation=group.incarnation
        )
    return (
        GroupCreating(
            command_id=command.command_id,
            scope=scope,
            group=name,
            incarnation=group.incarnation + 1,
            scope_incarnation=at.open_scope_incarnation,
            config=_resolved(group, command.config, at),
            at_ms=at.now_ms,
        ),
    )


def _reset(
    group: ReaderGroup, command: ResetReaderGroup, at: Circumstances
) -> Sequence[GroupEvent]:
    _require_live(group, command, at)
    if command.expected_generation not in (None, group.generation):
        raise GenerationMismatch(
            "the reader group is at another generation",
            group=str(group.ref),
            generation=group.generation,
            expected=command.expected_generation,
        )
    if group.status is not GroupState.ACTIVE:
        raise _busy(group)
    return (
        GroupResetting(
            command_id=command.command_id,
            generation=group.generation + 1,
            config=_resolved(group, command.config, at),
            at_ms=at.now_ms,
        ),
    )


def _delete(
    group: ReaderGroup, command: DeleteReaderGroup, at: Circumstances
) -> Sequence[GroupEvent]:
    """A deletion ends the group's creation or reset."""
    _require_live(group, command, at)
    if group.status is GroupState.DELETING:
        return (GroupIntentJoined(command_id=command.command_id),)
    ended = ReaderGroupNotFound(
        "the reader group was deleted meanwhile",
        remedy="create it again if it is still wanted",
        group=str(group.ref),
    )
    return (
        GroupDeleting(
            command_id=command.command_id,
            at_ms=at.now_ms,
            ended_error=ErrorBody.of(ended) if group.pending else None,
        ),
    )


def _resolved(
    group: ReaderGroup, config: ReaderGroupConfig, at: Circumstances
) -> ReaderGroupConfig:
    found = resolved(config, at.streams)
    if config.retention is GroupRetention.NONE:
        return found
    for name in (each.stream for each in config.streams):
        known = at.streams[name].stream.subscriptions
        is_known = group.ref is not None and known.find(str(group.ref)) is not None
        if len(known.present) >= SUBSCRIBERS_MAX and not is_known:
            raise InvalidRequest(
                "a stream has reached its maximum of subscribers",
                remedy="delete unused reader groups, or use no retention",
                stream=name,
                count=len(known.present),
            )
    return found


def _require_live(
    group: ReaderGroup, command: ResetReaderGroup | DeleteReaderGroup, at: Circumstances
) -> None:
    meant = command.incarnation
    if group.is_live and meant in (None, group.incarnation):
        return
    if at.open_scope_incarnation is None:
        raise ScopeNotFound("no such scope", scope=command.scope)
    raise ReaderGroupNotFound("no such reader group", group=f"{command.scope}/{command.group}")


def _busy(group: ReaderGroup) -> Busy:
    return Busy(
        f"the reader group is {group.status}; that must end first",
        group=str(group.ref),
        status=str(group.status),
    )
