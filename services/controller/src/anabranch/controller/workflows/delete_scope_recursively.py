"""Deleting a scope with all that is in it: tell each to be deleted, then delete the scope.

Wakes on: a scope in DELETING whose deletion is recursive, which is closed to whatever is new.

Why in this order: the scope's gate is closed before the look, so a stream that could still come to
be is seen and deleted, and any other one's creation is refused at the gate (see `create_stream`).
The scope goes when nothing lives in it any more. A stream is another aggregate, and so is a group:
it is not changed from here but told, by a command through the queue, and what became of that is
seen in it. One command is posted for what each needs now, a bounded number of them at a time; then
the step rests. Groups go first, and with them their state streams, so that no group is left whose
streams are gone.

Why safe to repeat: a command's id follows from the deletion, the life of what it is about and what
that is told, so a repeated one is recognised. One that is refused, because the other has moved on
meanwhile, leaves no trace, and the next look sees what is needed then.
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
"""Commands of one look; the streams beyond get theirs from the next ones."""
POSTED_AT_ONCE_MAX = 16


async def delete_contents(context: WorkContext, loaded: Loaded[Scope]) -> ScopeEvent:
    """Delete the scope if nothing of this incarnation lives, else tell what does.

    Raises StillWaiting while something lives.
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
    # Whoever has slept meanwhile may see streams of a later life of the scope.
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
