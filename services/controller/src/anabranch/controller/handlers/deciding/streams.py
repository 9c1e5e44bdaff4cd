"""Commands about streams: a decision depends on the scope, and sometimes on old epochs."""

from collections.abc import Sequence

from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.errors import Busy
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamRef, any_stream_name, scope_name
from anabranch.controller.domain.kinds import SCOPES, STREAMS
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.deciding.desk import CommandDesk, change
from anabranch.controller.projections.histories import HistoryNotLoaded

HISTORY_ATTEMPTS_MAX = 4
"""Other streams may evict a fetched history from the cache before the decision uses it."""


async def decide_stream(desk: CommandDesk, command: StreamCommand) -> Loaded[Stream]:
    """Decide on the stream, given whether its scope is open."""
    ref = StreamRef(scope_name(command.scope), any_stream_name(command.stream))
    scope = (await desk.repositories[SCOPES].load(scope_events(ref.scope))).state
    incarnation = scope.incarnation if scope.is_open else None
    now_ms = desk.clock.now_ms()
    subject = stream_events(ref)

    def decide(loaded: Loaded[Stream]) -> Sequence[StreamEvent]:
        circumstances = Circumstances(
            revision=loaded.revision + 1,
            open_scope_incarnation=incarnation,
            now_ms=now_ms,
            history=lambda: desk.histories.known(loaded.state),
        )
        return stream_decide.decide(loaded.state, command, circumstances)

    for _ in range(HISTORY_ATTEMPTS_MAX):
        try:
            return await change(desk, desk.repositories[STREAMS], subject, decide)
        except HistoryNotLoaded as missing:
            await desk.histories.of(missing.stream)
    raise Busy("the stream's history is unavailable", remedy="wait and try again", stream=str(ref))
