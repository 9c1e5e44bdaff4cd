"""How the workflows of reader groups get what they need of other aggregates.

They are told by commands through the queue, and what became of that is seen in them, at their
heads. A command that is refused, because the other one has moved on meanwhile, leaves no trace,
and the next look sees what is needed then. So a step looks, tells, and rests until it sees that
all is done; it is woken when one of the others has changed.

Whoever has slept may see a stream of a later life of the group, or of another one, and take it for
something left behind. Therefore the group is read again after the look, at its head: if it is
still what the step began with, nothing of a later life was there to be seen, and what is told is
told to the life of the stream that was seen.
"""

from collections.abc import Callable, Iterable

from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group.others import Need
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.workflows.context import WorkContext

AT_ONCE_MAX = 16

Needed = Callable[[Stream | None], Need]
"""What is needed of a stream that is like that; None: it never was."""


async def settle_stream(
    context: WorkContext, group: ReaderGroup, ref: StreamRef, needed: Needed
) -> bool:
    """Whether it is done; if not, the stream has been told, unless the group has gone on."""
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
    """Several of them, some at a time. Raises StillWaiting unless all is done."""
    unsettled: list[str] = []

    async def settle(name: str) -> None:
        if not await settle_stream(context, group, stream_ref(name), needed):
            unsettled.append(name)

    await for_each(names, AT_ONCE_MAX, settle)
    if unsettled:
        raise StillWaiting(f"{len(unsettled)} streams {waits_for}, the first is {min(unsettled)}")
