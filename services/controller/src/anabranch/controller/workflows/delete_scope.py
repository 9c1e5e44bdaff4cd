"""Deleting a scope: close its gate, look whether it is empty, then delete or reopen it.

Wakes on: a scope in DELETING, which is closed to new streams and reader groups.

Why in this order: closing the gate comes *before* the look at the membership records, in the same
shard. A creation that recorded its stream before the closing is seen; one that has not will be
refused at the gate (`create_stream`). Both may fail, but never do both succeed. A scope that stays
leaves its gate closed: the next creation opens it, and no deletion that slept can close it then,
because the gate knows the scope's revision. Streams older than the records are asked of the
listing, which takes into account everything stored before the question, in every shard.

Why safe to repeat: closing twice under one revision is closing once, looking changes nothing, and
the outcome is one conditional append.
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
    """Delete the scope if nothing of this incarnation lives, else reopen it."""
    scope = loaded.state
    name = ScopeName(scope.name)
    await context.gates.close(scope_gate(name, scope.incarnation), loaded.revision)
    found = await remaining_in(context, name, scope.incarnation)
    if not any(found.values()):
        return ScopeDeleted()
    return ScopeReopened(error=ErrorBody.of(_occupied(name, found)))


def _occupied(scope: ScopeName, found: Remaining) -> ScopeNotEmpty:
    """Streams of groups are no user's: they are named only where nothing else is left."""
    own = [name for name in found[STREAM] if not is_internal(name)]
    others = ((part, names) for part, names in found.items() if names and part is not STREAM)
    part, names = (STREAM, own) if own else next(others, (STREAM, found[STREAM]))
    return ScopeNotEmpty(
        f"the scope has {part.noun}s", scope=scope, count=len(names), first=names[0]
    )


STEPS: Mapping[ScopeStep, Callable[[WorkContext, Loaded[Scope]], Awaitable[ScopeEvent]]] = {
    ScopeStep.DELETE_IF_EMPTY: delete_if_empty,
}
