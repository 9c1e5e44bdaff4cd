"""Apply an update that waited for a scale to end.

Wakes on: an active stream whose first intent is an update. An update becomes an intent only if its
scaling policy requires another scale than the one that was pending when it was accepted; any other
update is done when it is stored.

Order: the pending scale has ended, and none was accepted since, so the step compares the policy
with the present segments. The event puts the configuration in force. If the policy still requires a
scale, the event turns the update into that scale, at its own place among the intents and with its
own stamp.

Idempotent: the step asks no other service and changes nothing but the event that it returns.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream import scaling
from anabranch.controller.domain.stream.events import StreamEvent, StreamUpdateApplied
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import WorkContext


async def apply_update(_context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Put the configuration in force, and scale if it requires this."""
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
