"""Commands about reader groups: a decision depends on the scope and the named streams."""

from anabranch.common.contracts.reader_groups import DeleteReaderGroup
from anabranch.common.contracts.subjects import group_events, scope_events, stream_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.kinds import GROUPS, SCOPES, STREAMS
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.reader_group.starts import READABLE, SeenStream
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.handlers.deciding.desk import CommandDesk, change

STREAMS_AT_ONCE_MAX = 16
"""Streams that are read concurrently for one command about a reader group."""


async def decide_group(desk: CommandDesk, command: GroupCommand) -> Loaded[ReaderGroup]:
    """Decide on the group, given its scope and streams."""
    ref = GroupRef(scope_name(command.scope), stream_name(command.group))
    scope = (await desk.repositories[SCOPES].load(scope_events(ref.scope))).state
    at = group_decide.Circumstances(
        open_scope_incarnation=scope.incarnation if scope.is_open else None,
        streams=await _seen_streams(desk, command),
        now_ms=desk.clock.now_ms(),
    )
    subject = group_events(ref)
    return await change(
        desk,
        desk.repositories[GROUPS],
        subject,
        lambda loaded: group_decide.decide(loaded.state, command, at),
    )


async def _seen_streams(desk: CommandDesk, command: GroupCommand) -> dict[str, SeenStream]:
    """The streams that the command names, except those that never existed."""
    found: dict[str, SeenStream] = {}

    async def see(ref: StreamRef) -> None:
        stream = (await desk.repositories[STREAMS].load(stream_events(ref))).state
        if stream.status in READABLE:
            found[str(ref)] = SeenStream(stream, await desk.histories.of(stream))

    if not isinstance(command, DeleteReaderGroup):
        refs = [each.ref for each in command.config.streams]
        await for_each(refs, STREAMS_AT_ONCE_MAX, see)
    return found
