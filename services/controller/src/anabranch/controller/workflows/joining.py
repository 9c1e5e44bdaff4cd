"""Joining a scope: what streams and reader groups do first of all.

A scope may only be deleted when it is empty, and its members are recorded in the scope's shard.
Creation records the member there, on the condition that the scope's gate has not moved since it was
seen open; deletion closes the gate before it reads the records (`delete_scope`). So the record is
either stored before the closing, and keeps the scope, or never. A gate that is closed although the
scope is open was closed by a deletion that found the scope occupied; whoever comes next opens it,
which the gate allows only under a later revision of the scope than the closing's.
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
    """Whether the member is one of that incarnation of the scope, from now on. Idempotent.

    Whoever is recorded has joined, whatever the scope has become since. If not, the record was
    ended for ever: no controller that slept can join by it later. Raises Busy.
    """
    if await _joins(context, scope, incarnation, member):
        return True
    return (await context.gates.forgo(member)).is_member


async def _joins(context: WorkContext, name: ScopeName, incarnation: int, member: str) -> bool:
    """Record the membership; whether the scope was open for it."""
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
            # It may be closing again by now; then the scope says so when it is read again.
            with suppress(GateClosed):
                await context.gates.reopen(gate, scope.revision)
    raise Busy("every attempt met a closing of the scope", scope=name)
