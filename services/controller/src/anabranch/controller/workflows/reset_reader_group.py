"""Reset a reader group: leave the streams that it no longer reads, subscribe to the others.

Wakes on: a reader group in RESETTING; generation and configuration are the new ones already.

Order: none is needed. The present generation overrules a stream's knowledge of an earlier one,
whichever command comes first. Readers of the earlier generation learn of the reset from the state
stream, where the first reader of the new generation begins it.

Idempotent: the group commands other aggregates as `group_needs.py` describes; a deleted stream
needs no command.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.reader_group import others
from anabranch.controller.domain.reader_group.events import GroupEvent, GroupReset
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.group_needs import settle_streams


async def resubscribe(context: WorkContext, loaded: Loaded[ReaderGroup]) -> GroupEvent:
    """Subscribe to exactly the wanted streams. Raises StillWaiting until all streams know."""
    group = loaded.state
    dropped = [name for name in group.subscribed if name not in group.wanted]
    needed = partial(others.end_of_subscription, group)
    await settle_streams(context, group, dropped, needed, "still have to remove the subscription")
    needed = partial(others.subscription, group)
    await settle_streams(context, group, group.wanted, needed, "still have to add the subscription")
    return GroupReset()


STEPS: Mapping[GroupStep, Callable[[WorkContext, Loaded[ReaderGroup]], Awaitable[GroupEvent]]] = {
    GroupStep.RESUBSCRIBE: resubscribe,
}
