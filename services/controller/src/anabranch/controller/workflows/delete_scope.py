"""Delete a scope: close its gate, check whether it is empty, then delete or reopen it.

Wakes on: a scope in DELETING, which is closed to new members.

Order: the gate is closed *before* the membership records are read, in the same shard. A creation
that recorded its stream before the closing is seen; any other creation is refused at the gate
(`joining.py`). Both may fail, but never do both succeed. If the scope stays, its gate remains
closed and the next creation opens it. A paused deletion cannot close it then, because the gate
knows the scope's revision. For streams older than the records, the workflow asks the listing, which
includes everything stored before the question, in every shard.

Idempotent: closing twice under one revision is closing once, reading changes nothing, and the
outcome is one conditional append.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.place import STREAM
from anabranch.common.contracts.subjects import scope_gate
from anabranch.common.errors import ScopeNotEmpty
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, is_internal
from anabranch.controller.domain.scope.state import (
    Scope,
    ScopeDeleted,
    ScopeEvent,
    ScopeReopened,
    ScopeStep,
)
from anabranch.controller.workflows.context import Remaining, WorkContext, remaining_in


async def delete_if_empty(context: WorkContext, loaded: Loaded[Scope]) -> ScopeEvent:
    """Delete the scope if no member of this incarnation lives, else reopen it."""
    scope = loaded.state
    name = ScopeName(scope.name)
    await context.gates.close(scope_gate(name, scope.incarnation), loaded.revision)
    found = await remaining_in(context, name, scope.incarnation)
    if not any(found.values()):
        return ScopeDeleted()
    return ScopeReopened(error=ErrorBody.of(_occupied(name, found)))


def _occupied(scope: ScopeName, found: Remaining) -> ScopeNotEmpty:
    """The state streams of groups belong to no user: the error names them only if nothing else is
    left.
    """
    own = [name for name in found[STREAM] if not is_internal(name)]
    others = ((part, names) for part, names in found.items() if names and part is not STREAM)
    part, names = (STREAM, own) if own else next(others, (STREAM, found[STREAM]))
    return ScopeNotEmpty(
        f"the scope has {part.noun}s", scope=scope, count=len(names), first=names[0]
    )


STEPS: Mapping[ScopeStep, Callable[[WorkContext, Loaded[Scope]], Awaitable[ScopeEvent]]] = {
    ScopeStep.DELETE_IF_EMPTY: delete_if_empty,
}
