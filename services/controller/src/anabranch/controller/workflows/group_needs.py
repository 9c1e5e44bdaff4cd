"""How the workflows of reader groups change other aggregates.

They send commands through the queue and see the results in the other aggregates, at their heads. If
a command is refused because the aggregate has changed meanwhile, it leaves no trace, and the next
round sees the new need. A step therefore looks, sends commands, and rests until it sees that all is
done; a change of one of the others wakes it.

A paused controller may see a stream of a later incarnation of the group, or of another group, and
take it for a remainder. The group is therefore read again after the look, at its head. If it is
unchanged since the step began, nothing of a later incarnation could be seen, and the commands go to
the seen incarnation of the stream.
"""

from collections.abc import Callable, Iterable

from anabranch.common.model.names import StreamRef
from anabranch.common.model.topics import readable_stream
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group.others import Need
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.workflows.context import WorkContext

AT_ONCE_MAX = 16

Needed = Callable[[Stream | None], Need]
"""The need for a stream in this state; None: the stream never existed."""


async def settle_stream(
    context: WorkContext, group: ReaderGroup, ref: StreamRef, needed: Needed
) -> bool:
    """Whether the need is met; if not, command the stream, unless the group has changed."""
    loaded = await context.streams.stream_at_head(ref)
    need = needed(None if loaded is None else loaded.state)
    if need.command is not None and await _is_present(context, group):
        await context.commands.post(need.command)
    return need.is_done


async def _is_present(context: WorkContext, group: ReaderGroup) -> bool:
    assert group.ref is not None
    loaded = await context.groups.group_at_head(group.ref)
    if loaded is None:
        return False
    found = loaded.state
    return (found.incarnation, found.status) == (group.incarnation, group.status)


async def settle_streams(
    context: WorkContext,
    group: ReaderGroup,
    names: Iterable[str],
    needed: Needed,
    waits_for: str,
) -> None:
    """Settle several streams, some concurrently. Raises StillWaiting unless all needs are met."""
    unsettled: list[str] = []

    async def settle(name: str) -> None:
        if not await settle_stream(context, group, readable_stream(name), needed):
            unsettled.append(name)

    await for_each(names, AT_ONCE_MAX, settle)
    if unsettled:
        raise StillWaiting(f"{len(unsettled)} streams {waits_for}, the first is {min(unsettled)}")
