"""Delete a scope with its contents: command each member to be deleted, then delete the scope.

Wakes on: a scope in DELETING whose deletion is recursive, and which is closed to new members.

Order: the scope's gate is closed before its members are listed. A member whose creation can still
succeed is therefore seen and deleted, and any other creation is refused at the gate (see
`joining.py`). The scope is deleted when no member lives any more. A stream, a group and a table are
other aggregates: the workflow does not change them, but sends them commands through the queue and
sees the results in their states. Each round posts one command for the present need of each member,
up to a maximum; then the step rests. Groups are deleted first, together with their state streams,
so that no group outlives its streams; then tables; then streams.

Idempotent: a command's id follows from the deletion, the member's incarnation and the need, so a
repeated command is recognised. If a command is refused because the member has changed meanwhile, it
leaves no trace, and the next round sees the new need.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from anabranch.common.contracts.place import STREAM, Place, place_in
from anabranch.common.contracts.subjects import events_of, scope_gate
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import kind_of
from anabranch.controller.domain.scope import emptying
from anabranch.controller.domain.scope.state import Scope, ScopeDeleted, ScopeEvent, ScopeStep
from anabranch.controller.workflows.context import WorkContext, remaining_in

POSTED_MAX = 256
"""Commands per round; later rounds serve further streams."""
POSTED_AT_ONCE_MAX = 16


async def delete_contents(context: WorkContext, loaded: Loaded[Scope]) -> ScopeEvent:
    """Delete the scope if no member of this incarnation lives, else command the members.

    Raises StillWaiting while one lives.
    """
    scope = ScopeName(loaded.state.name)
    await context.gates.close(scope_gate(scope, loaded.state.incarnation), loaded.revision)
    found = await remaining_in(context, scope, loaded.state.incarnation)
    for part, names in found.items():
        if names and part is not STREAM:
            await _delete(context, loaded.state, [place_in(scope, part, name) for name in names])
            raise StillWaiting(f"{len(names)} {part.noun}s are left, the first is {names[0]}")
    streams = [StreamName(name) for name in found[STREAM]]
    if not streams:
        return ScopeDeleted()
    workflow = loaded.state.pending[0]
    known = (context.streams.stream(StreamRef(scope, name)) for name in streams)
    # A paused controller may see streams of a later incarnation of the scope.
    meant = (s.state for s in known if s and s.state.scope_incarnation == loaded.state.incarnation)
    needed = (emptying.next_command(workflow, stream) for stream in meant)
    commands = list(islice((command for command in needed if command is not None), POSTED_MAX))
    await for_each(commands, POSTED_AT_ONCE_MAX, context.commands.post)
    raise StillWaiting(f"{len(streams)} streams are left to be deleted, the first is {streams[0]}")


async def _delete(context: WorkContext, scope: Scope, places: Sequence[Place]) -> None:
    async def delete(place: Place) -> None:
        subject = events_of(place)
        kind = kind_of(subject)
        assert kind is not None
        assert kind.delete is not None
        found = (await context.repositories[kind].load(subject)).state
        if found.scope_incarnation != scope.incarnation:
            return
        command = kind.delete(scope.pending[0], found)
        if command is not None:
            await context.commands.post(command)

    await for_each(places[:POSTED_MAX], POSTED_AT_ONCE_MAX, delete)


STEPS: Mapping[ScopeStep, Callable[[WorkContext, Loaded[Scope]], Awaitable[ScopeEvent]]] = {
    ScopeStep.DELETE_STREAMS: delete_contents,
}
