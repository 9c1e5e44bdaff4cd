"""The commands that an aggregate has accepted, and their outcomes.

An accepted command's id is its operation's id. An aggregate remembers the last
`OPERATION_COUNT_MAX` of them, even after its deletion, so that a repeated command gets the first
one's answer. Only finished operations are forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    OperationState,
)
from anabranch.common.errors import Busy, DeadlinePassed

OPERATION_COUNT_MAX = 256
FREQUENT_COUNT_MAX = 64
"""For a kind of frequent operations, so that they displace no others."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An accepted command. `error` only if it failed. `kind`: of its intent; `since_ms`: when the
    intent was accepted; both are empty if they were not recorded.
    """

    operation: str
    state: OperationState = OperationState.RUNNING
    error: ErrorBody | None = None
    kind: str = ""
    since_ms: int = 0


Operations = tuple[Operation, ...]
"""Oldest first."""


def find(operations: Operations, operation: str) -> Operation | None:
    """The operation with that id, if it is remembered."""
    return next((o for o in operations if o.operation == operation), None)


def running(operations: Operations) -> list[str]:
    """The ids of the running operations."""
    return [o.operation for o in operations if o.state is OperationState.RUNNING]


def with_started(
    operations: Operations, operation: str, kind: str = "", since_ms: int = 0
) -> Operations:
    """Add a running operation; the oldest finished ones are forgotten."""
    return _bounded((*operations, Operation(operation, kind=kind, since_ms=since_ms)))


def with_satisfied(
    operations: Operations, operation: str, kind: str = "", since_ms: int = 0
) -> Operations:
    """Add an operation that succeeded because there was nothing to do."""
    done = Operation(operation, OperationState.SUCCEEDED, kind=kind, since_ms=since_ms)
    return _bounded((*operations, done))


def with_frequent(operations: Operations, operation: str, kind: str) -> Operations:
    """Like `with_satisfied`, but only the last `FREQUENT_COUNT_MAX` of the kind are remembered."""
    alike = [o.operation for o in operations if o.kind == kind]
    forgotten = set(alike[: max(0, len(alike) + 1 - FREQUENT_COUNT_MAX)])
    kept = tuple(o for o in operations if o.operation not in forgotten)
    return with_satisfied(kept, operation, kind)


def with_finished(
    operations: Operations, finished: Iterable[str], error: ErrorBody | None = None
) -> Operations:
    """End the named operations: successfully, or with `error`."""
    ended = frozenset(finished)
    state = OperationState.SUCCEEDED if error is None else OperationState.FAILED
    return tuple(
        replace(o, state=state, error=error) if o.operation in ended else o for o in operations
    )


def finished_between(before: Operations, after: Operations) -> list[Operation]:
    """The operations that ended between `before` and `after`."""
    ran = set(running(before))
    known = {o.operation for o in before}
    return [
        o
        for o in after
        if o.state is not OperationState.RUNNING
        and (o.operation in ran or o.operation not in known)
    ]


def check_room(operations: Operations) -> None:
    """Raises Busy if one more could not be remembered."""
    waiting = len(running(operations))
    if waiting >= OPERATION_COUNT_MAX:
        raise Busy("too many commands wait for the same operation", waiting=waiting)


def refuse_late(command: CommandBase, now_ms: int) -> None:
    """Raises DeadlinePassed if the command's caller no longer waits."""
    if command.deadline_ms and now_ms > command.deadline_ms:
        raise DeadlinePassed(
            "the command's deadline passed before it was decided",
            deadline_ms=command.deadline_ms,
            now_ms=now_ms,
        )


def _bounded(operations: Operations) -> Operations:
    excess = len(operations) - OPERATION_COUNT_MAX
    if excess <= 0:
        return operations
    kept = []
    for operation in operations:
        if excess > 0 and operation.state is not OperationState.RUNNING:
            excess -= 1
            continue
        kept.append(operation)
    return tuple(kept)
