"""A scope's state, its events, and how they change it.

The table is `MACHINE`. A deletion that finds the scope not empty reopens it, and creating a deleted
name again begins the next incarnation.

`ScopeIntentJoined` adds a command to the pending deletion, and may make it recursive; a recursive
deletion ends only with the scope. DELETING is closed: nothing may be created in it. DELETED is
the tombstone: it keeps the incarnation and the operations, and creating the name again is a
compare-and-set on it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal, assert_never

from pydantic import Field, TypeAdapter

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.controller.domain import operations
from anabranch.controller.domain.machine import Machine, Row
from anabranch.controller.domain.operations import Operations


class ScopeStatus(StrEnum):
    ACTIVE = "active"
    DELETING = "deleting"
    DELETED = "deleted"


class ScopeStep(StrEnum):
    """The steps of a scope's workflow."""

    DELETE_IF_EMPTY = "delete_if_empty"
    DELETE_STREAMS = "delete_streams"


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope.

    name, incarnation    the name and the number of its lives; "" and 0 if it was never used
    status               None: the name was never used
    created_ms           Unix ms
    pending              the commands that want its deletion
    is_recursive         the deletion includes its members
    operations           the last accepted commands, with their outcomes

    Invariants: `pending` is empty unless the status is DELETING, and holds exactly the running
    operations; only a deletion is recursive.
    """

    name: str = ""
    incarnation: int = 0
    status: ScopeStatus | None = None
    created_ms: int = 0
    pending: tuple[str, ...] = ()
    is_recursive: bool = False
    operations: Operations = ()

    @property
    def is_live(self) -> bool:
        """Whether it exists, even if it is closing."""
        return self.status in (ScopeStatus.ACTIVE, ScopeStatus.DELETING)

    @property
    def is_open(self) -> bool:
        """Whether anything may be created in it."""
        return self.status is ScopeStatus.ACTIVE


class ScopeCreated(Contract):
    kind: Literal["scope_created"] = "scope_created"
    schema_number: Literal[1] = 1
    command_id: str
    scope: str
    incarnation: int
    at_ms: int


class ScopeDeleting(Contract):
    """Deletion was accepted. `recursive`: the scope's streams are deleted first."""

    kind: Literal["scope_deleting"] = "scope_deleting"
    schema_number: Literal[1] = 1
    command_id: str
    recursive: bool = False


class ScopeIntentJoined(Contract):
    """Another command joined the deletion. `recursive`: the deletion includes its streams from now
    on.
    """

    kind: Literal["scope_intent_joined"] = "scope_intent_joined"
    schema_number: Literal[1] = 1
    command_id: str
    recursive: bool = False


class ScopeReopened(Contract):
    kind: Literal["scope_reopened"] = "scope_reopened"
    schema_number: Literal[1] = 1
    error: ErrorBody


class ScopeDeleted(Contract):
    kind: Literal["scope_deleted"] = "scope_deleted"
    schema_number: Literal[1] = 1


ScopeEvent = Annotated[
    ScopeCreated | ScopeDeleting | ScopeIntentJoined | ScopeReopened | ScopeDeleted,
    Field(discriminator="kind"),
]


_ACTIVE, _DELETING = ScopeStatus.ACTIVE, ScopeStatus.DELETING
_DELETE_STEPS = (ScopeStep.DELETE_IF_EMPTY, ScopeStep.DELETE_STREAMS)

MACHINE: Machine[ScopeStatus] = Machine(
    Row(ScopeCreated, (None, ScopeStatus.DELETED), _ACTIVE, ("",)),
    Row(ScopeDeleting, (_ACTIVE,), _DELETING, _DELETE_STEPS),
    Row(ScopeIntentJoined, (_DELETING,), None, _DELETE_STEPS),
    Row(ScopeReopened, (_DELETING,), _ACTIVE, ("",)),
    Row(ScopeDeleted, (_DELETING,), ScopeStatus.DELETED, ("",)),
)


def evolve(scope: Scope, event: ScopeEvent) -> Scope:
    """The scope after the event."""
    status = MACHINE.after(scope.status, event)
    return replace(_evolved(scope, event), status=status)


def _evolved(scope: Scope, event: ScopeEvent) -> Scope:
    """Everything except the status."""
    match event:
        case ScopeCreated():
            return Scope(
                name=event.scope,
                incarnation=event.incarnation,
                created_ms=event.at_ms,
                operations=operations.with_satisfied(
                    scope.operations, event.command_id, "create", event.at_ms
                ),
            )
        case ScopeDeleting():
            return replace(
                scope,
                pending=(event.command_id,),
                is_recursive=event.recursive,
                operations=operations.with_started(scope.operations, event.command_id, "delete"),
            )
        case ScopeIntentJoined():
            return replace(
                scope,
                pending=(*scope.pending, event.command_id),
                is_recursive=scope.is_recursive or event.recursive,
                operations=operations.with_started(scope.operations, event.command_id, "delete"),
            )
        case ScopeReopened():
            return _rested(scope, event.error)
        case ScopeDeleted():
            return _rested(scope)
        case _:
            assert_never(event)


def _rested(scope: Scope, error: ErrorBody | None = None) -> Scope:
    ended = operations.with_finished(scope.operations, scope.pending, error)
    return replace(scope, pending=(), is_recursive=False, operations=ended)


def next_step(scope: Scope) -> ScopeStep | None:
    """The step that is due, if any."""
    if scope.status is not ScopeStatus.DELETING:
        return None
    return ScopeStep.DELETE_STREAMS if scope.is_recursive else ScopeStep.DELETE_IF_EMPTY


def check(before: Scope, after: Scope) -> None:
    """Assert the invariants of one decision; the numbers are those of docs/invariants.md."""
    assert (before.status, after.status) in MACHINE.moves, "SCOPE-1: moves only as its table says"
    is_new = before.status in (None, ScopeStatus.DELETED)
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "SCOPE-2: an incarnation begins by creation, by one"
    is_closing = after.status is ScopeStatus.DELETING
    assert bool(after.pending) == is_closing, "SCOPE-3: something is pending while it closes"
    running = sorted(operations.running(after.operations))
    assert running == sorted(after.pending), "SCOPE-3: an operation runs while it is pending"
    count = len(after.operations)
    assert count <= operations.OPERATION_COUNT_MAX, "SCOPE-4: operations are bounded"
    assert is_closing or not after.is_recursive, "SCOPE-5: only a deletion is recursive"
    if before.is_recursive:
        goes_on = is_closing and after.is_recursive
        ended = after.status is ScopeStatus.DELETED
        assert goes_on or ended, "SCOPE-5: a recursive deletion ends only with the scope"


SCOPE: Aggregate[Scope, ScopeEvent] = Aggregate(
    kind="scope",
    initial=Scope(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[ScopeEvent]),
    states=TypeAdapter(Scope),
)
