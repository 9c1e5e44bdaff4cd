"""Applying an update that waited for a scale to end.

Wakes on: an active stream whose first intent is an update. An update is such an intent only if its
scaling policy asks for another scale than the one that was pending when it was accepted; any other
update is done when it is stored.

Why in this order: the scale that was pending has ended, and none was accepted since, so the policy
is compared with the segments that there are now. The event puts the configuration in force and, if
the policy still asks for a scale, turns the update into that scale, at its own place among the
intents and with its own stamp.

Why safe to repeat: the step asks nobody and changes nothing but the event that it returns.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream import scaling
from anabranch.controller.domain.stream.events import StreamEvent, StreamUpdateApplied
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import WorkContext


async def apply_update(_context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Put the configuration in force, and scale if it asks for it."""
    stream = loaded.state
    config = stream.intents[0].config
    assert config is not None
    if not scaling.asks_for_scale(stream, config):
        return StreamUpdateApplied()
    plan = scaling.evened(stream, config)
    return StreamUpdateApplied(
        stream_epoch=plan.stream_epoch, sealed=plan.sealed, created=plan.created
    )


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.APPLY_UPDATE: apply_update,
}
