"""Deleting a scope with its streams: tell each to seal and to be deleted, then delete the scope.

Wakes on: a scope in DELETING whose deletion is recursive, which is closed to new streams.

Why in this order: the scope's gate is closed before the look, so a stream that could still come to
be is seen and deleted, and any other one's creation is refused at the gate (see `create_stream`).
The scope goes when nothing lives in it any more. A stream is another aggregate: it is not changed
from here but told, by a command through the queue, and what became of that is seen in the stream.
One command is posted for
what a stream needs now, a bounded number of them at a time; then the step rests.

Why safe to repeat: a command's id follows from the deletion, the stream's life and what it is told,
so a repeated one is recognised. One that is refused, because the stream has moved on meanwhile,
leaves no trace, and the next look sees what is needed then.
"""

from collections.abc import Awaitable, Callable, Mapping
from itertools import islice

from anabranch.common.contracts.subjects import scope_gate
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamRef
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.scope import emptying
from anabranch.controller.domain.scope.state import Scope, ScopeDeleted, ScopeEvent, ScopeStep
from anabranch.controller.workflows.context import WorkContext, remaining_streams

POSTED_MAX = 256
"""Commands of one look; the streams beyond get theirs from the next ones."""
POSTED_AT_ONCE_MAX = 16


async def delete_streams(context: WorkContext, loaded: Loaded[Scope]) -> ScopeEvent:
    """Delete the scope if no stream of this incarnation lives, else tell those that do.

    Raises StillWaiting while streams live.
    """
    scope = ScopeName(loaded.state.name)
    await context.gates.close(scope_gate(scope, loaded.state.incarnation), loaded.revision)
    names = await remaining_streams(context, scope, loaded.state.incarnation)
    if not names:
        return ScopeDeleted()
    workflow = loaded.state.pending[0]
    found = (context.streams.stream(StreamRef(scope, name)) for name in names)
    needed = (emptying.next_command(workflow, stream.state) for stream in found if stream)
    commands = islice((command for command in needed if command is not None), POSTED_MAX)
    await for_each(commands, POSTED_AT_ONCE_MAX, context.commands.post)
    raise StillWaiting(f"{len(names)} streams are left to be deleted, the first is {names[0]}")


STEPS: Mapping[ScopeStep, Callable[[WorkContext, Loaded[Scope]], Awaitable[ScopeEvent]]] = {
    ScopeStep.DELETE_STREAMS: delete_streams,
}
