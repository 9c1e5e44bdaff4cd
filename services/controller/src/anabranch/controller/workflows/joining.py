"""Joining a scope: the first step of every stream, reader group and key-value table.

A scope may be deleted only if it is empty, and its members are recorded in the scope's shard. A
creation records the member there, on the condition that the scope's gate has not moved since it was
seen open. A deletion closes the gate before it reads the records (`delete_scope`). The record is
therefore stored before the closing, and keeps the scope, or it is never stored. If a gate is closed
although the scope is open, a deletion found the scope occupied. The next creation opens the gate,
which requires a later revision of the scope than that of the closing.
"""

from contextlib import suppress

from anabranch.common.contracts.subjects import scope_events, scope_gate
from anabranch.common.errors import Busy, GateClosed, MembershipEnded
from anabranch.common.model.names import ScopeName
from anabranch.controller.domain.kinds import SCOPES
from anabranch.controller.workflows.context import WorkContext

JOIN_ATTEMPTS_MAX = 8


async def joins_scope(
    context: WorkContext, scope: ScopeName, incarnation: int, member: str
) -> bool:
    """Whether the member belongs to that incarnation of the scope from now on. Idempotent.

    A recorded member has joined, even if the scope has changed since. Otherwise its record was
    ended for ever, so a paused controller cannot join by it later. Raises Busy.
    """
    if await _joins(context, scope, incarnation, member):
        return True
    gate = scope_gate(scope, incarnation)
    return (await context.gates.forgo(gate, member)).is_member


async def _joins(context: WorkContext, name: ScopeName, incarnation: int, member: str) -> bool:
    """Record the membership; returns whether the scope was open for it."""
    gate = scope_gate(name, incarnation)
    for _ in range(JOIN_ATTEMPTS_MAX):
        scope = await context.repositories[SCOPES].load(scope_events(name))
        if not scope.state.is_open or scope.state.incarnation != incarnation:
            return False
        try:
            await context.gates.join(gate, member)
            return True
        except MembershipEnded:
            return False
        except GateClosed:
            # The gate may be closing again by now; the next read of the scope shows this.
            with suppress(GateClosed):
                await context.gates.reopen(gate, scope.revision)
    raise Busy("every attempt met a closing of the scope", remedy="wait and try again", scope=name)
