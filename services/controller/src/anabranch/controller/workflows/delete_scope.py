"""Deleting a scope: look whether it is empty, then delete or reopen it.

Wakes on: a scope in DELETING, which is closed to new streams.

Why in this order: the closing is stored *before* the look, and the look takes into account
everything stored before it in every shard. A creation whose intent was stored by then is seen
and the scope is reopened; a creation whose intent is stored later reads the scope after that
and finds it closed. Both may fail, but never do both succeed (see `create_stream`, which
writes before it reads in the same way).

Why safe to repeat: looking changes nothing, and the outcome is one conditional append.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import ScopeNotEmpty
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName
from anabranch.controller.domain.scope.state import (
    Scope,
    ScopeDeleted,
    ScopeEvent,
    ScopeReopened,
    ScopeStep,
)
from anabranch.controller.workflows.context import WorkContext


async def delete_if_empty(context: WorkContext, loaded: Loaded[Scope]) -> ScopeEvent:
    """Delete the scope if no stream of this incarnation lives, else reopen it."""
    scope = loaded.state
    streams = await context.streams.live_streams(ScopeName(scope.name), scope.incarnation)
    if not streams:
        return ScopeDeleted()
    occupied = ScopeNotEmpty(
        "the scope has streams", scope=scope.name, count=len(streams), first=streams[0]
    )
    return ScopeReopened(error=ErrorBody.of(occupied))


STEPS: Mapping[ScopeStep, Callable[[WorkContext, Loaded[Scope]], Awaitable[ScopeEvent]]] = {
    ScopeStep.DELETE_IF_EMPTY: delete_if_empty,
}
