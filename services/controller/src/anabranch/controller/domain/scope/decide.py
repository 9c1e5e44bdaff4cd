"""Decides commands on a scope: the events that follow, or a rejection."""

from collections.abc import Sequence

from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.errors import ScopeExists, ScopeNotEmpty, ScopeNotFound
from anabranch.common.model.names import refuse_dots, scope_name
from anabranch.common.model.topics import TOPIC_SCOPE
from anabranch.controller.domain import operations
from anabranch.controller.domain.scope.state import (
    Scope,
    ScopeCreated,
    ScopeDeleting,
    ScopeEvent,
    ScopeIntentJoined,
    ScopeStatus,
)


def decide(
    scope: Scope, command: CreateScope | DeleteScope, *, now_ms: int
) -> Sequence[ScopeEvent]:
    """The events of `command`; none for a command that was accepted before.

    The scope of the topics is never deleted recursively, because this would delete the data of
    every topic. Raises InvalidName, ScopeExists, ScopeNotFound, ScopeNotEmpty, Busy,
    DeadlinePassed.
    """
    if operations.find(scope.operations, command.command_id) is not None:
        return ()
    operations.refuse_late(command, now_ms)
    if isinstance(command, CreateScope):
        return _create(scope, command, now_ms)
    return _delete(scope, command)


def _create(scope: Scope, command: CreateScope, now_ms: int) -> Sequence[ScopeEvent]:
    name = scope_name(command.scope)
    refuse_dots(name)
    if scope.status is ScopeStatus.DELETING:
        raise ScopeExists(
            "the scope is being deleted",
            remedy="wait for the end of the deletion, then create it again",
            scope=name,
            incarnation=scope.incarnation,
        )
    if scope.is_live:
        raise ScopeExists("the scope already exists", scope=name, incarnation=scope.incarnation)
    return (
        ScopeCreated(
            command_id=command.command_id,
            scope=name,
            incarnation=scope.incarnation + 1,
            at_ms=now_ms,
        ),
    )


def _delete(scope: Scope, command: DeleteScope) -> Sequence[ScopeEvent]:
    meant = command.incarnation
    if not scope.is_live or (meant is not None and meant != scope.incarnation):
        raise ScopeNotFound("no such scope", scope=command.scope, incarnation=meant)
    if command.scope == TOPIC_SCOPE and command.recursive:
        raise ScopeNotEmpty(
            "the scope of the topics cannot be deleted with its contents",
            remedy="delete the topics, and then the streams, reader groups and tables in the scope",
            scope=command.scope,
        )
    operations.check_room(scope.operations)
    if scope.status is ScopeStatus.DELETING:
        return (ScopeIntentJoined(command_id=command.command_id, recursive=command.recursive),)
    return (ScopeDeleting(command_id=command.command_id, recursive=command.recursive),)
