"""How the workflows of reader groups get what they need of other aggregates.

They are told by commands through the queue, and what became of that is seen in them, at their
heads. A command that is refused, because the other one has moved on meanwhile, leaves no trace,
and the next look sees what is needed then. So a step looks, tells, and rests until it sees that
all is done; it is woken when one of the others has changed.
"""

from collections.abc import Callable, Iterable

from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group.others import Need
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.workflows.context import WorkContext

AT_ONCE_MAX = 16

Needed = Callable[[Stream | None], Need]
"""What is needed of a stream that is like that; None: it never was."""


async def settle_stream(context: WorkContext, ref: StreamRef, needed: Needed) -> bool:
    """Whether it is done; if not, the stream has been told."""
    loaded = await context.streams.stream_at_head(ref)
    need = needed(None if loaded is None else loaded.state)
    if need.command is not None:
        await context.commands.post(need.command)
    return need.is_done


async def settle_streams(
    context: WorkContext, names: Iterable[str], needed: Needed, waits_for: str
) -> None:
    """Several of them, some at a time. Raises StillWaiting unless all is done."""
    unsettled: list[str] = []

    async def settle(name: str) -> None:
        if not await settle_stream(context, stream_ref(name), needed):
            unsettled.append(name)

    await for_each(names, AT_ONCE_MAX, settle)
    if unsettled:
        raise StillWaiting(f"{len(unsettled)} streams {waits_for}, the first is {min(unsettled)}")
