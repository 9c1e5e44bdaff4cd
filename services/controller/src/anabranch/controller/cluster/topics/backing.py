"""The backing streams of topics: their states as the mirror knows them, and the commands to them.

Commands travel on the queue that clients use. The id of a command follows from the topic's
incarnation and from the effect of the command, so a repeat joins the first one. A command that
brings no change is posted again after `AGAIN_S`: it was rejected because something else had to end
first, or it still waits in the queue.

Order: a stream needs its scope. While the scope `topics` does not exist, its creation is posted in
place of the commands, and the fold of the scope wakes the controllers.

Owns: the times at which commands were posted, until they have had an effect or are old.
"""

from collections.abc import Sequence
from typing import Protocol, assert_never

from anabranch.common.contracts.commands import (
    Command,
    CreateScope,
    CreateStream,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamRef
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, StreamState
from anabranch.common.model.topics import (
    TOPIC_SCOPE,
    TopicName,
    backing_stream,
    partition_keys,
    rest_keys,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.cluster.objects.backing import (
    ABSENT,
    BackingCommand,
    BackingState,
    CreateBacking,
    DeleteBacking,
    GrowBacking,
    SealBacking,
    StreamView,
)
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.ports import CommandSender

AGAIN_S = 3.0
POSTS_AT_ONCE_MAX = 32
CREATE_WAIT_MS = 20_000
"""A creation that was not decided within this time is void, so that no stream appears long after
its topic is gone."""
CREATE_SCOPE_ID = "topics-scope"
_STATES = {
    StreamState.CREATING: BackingState.CREATING,
    StreamState.ACTIVE: BackingState.ACTIVE,
    StreamState.SEALED: BackingState.SEALED,
    StreamState.DELETING: BackingState.DELETING,
    StreamState.DELETED: BackingState.DELETED,
}


class Streams(Protocol):
    """The streams and scopes as last folded."""

    def readable_stream(self, ref: StreamRef) -> Loaded[Stream] | None: ...

    def scope(self, scope: ScopeName) -> Loaded[Scope] | None: ...


def view_of(stream: Stream | None) -> StreamView:
    """A backing stream as the reducers see it."""
    if stream is None or stream.status is None:
        return ABSENT
    state = _STATES[stream.status]
    if state is BackingState.ACTIVE and intents.find(stream.intents, IntentKind.SEAL):
        state = BackingState.SEALED
    return StreamView(state, max(0, len(stream.segments) - 1))


class Backing:
    """Looks at backing streams and posts commands to them."""

    def __init__(self, commands: CommandSender, streams: Streams, clock: Clock) -> None:
        self._commands = commands
        self._streams = streams
        self._clock = clock
        self._posted: dict[str, float] = {}

    def stream(self, topic: str, incarnation: str) -> Stream | None:
        """The stream as last folded; None if there is none or it cannot be read."""
        loaded = self._streams.readable_stream(backing_stream(TopicName(topic), incarnation))
        return None if loaded is None else loaded.state

    def view(self, topic: str, incarnation: str) -> StreamView:
        """The stream as the mirror knows it."""
        return view_of(self.stream(topic, incarnation))

    async def perform(self, commands: Sequence[BackingCommand]) -> None:
        """Post the commands that are not on their way already. Raises Unavailable."""
        now_s = self._clock.monotonic()
        self._posted = {name: at_s for name, at_s in self._posted.items() if now_s - at_s < AGAIN_S}
        scope = self._streams.scope(TOPIC_SCOPE)
        wanted = [made for one in commands if (made := self._made(one)) is not None]
        if wanted and (scope is None or not scope.state.is_live):
            wanted = [CreateScope(command_id=CREATE_SCOPE_ID, scope=TOPIC_SCOPE)]
        due = [one for one in wanted if one.command_id not in self._posted]

        async def post(command: Command) -> None:
            await self._commands.post(command)
            self._posted[command.command_id] = now_s

        await for_each(due, POSTS_AT_ONCE_MAX, post)

    def _made(self, command: BackingCommand) -> Command | None:
        stream = self.stream(command.topic, command.incarnation)
        name = backing_stream(command.topic, command.incarnation).stream
        mark = f"topic-{command.incarnation}"
        match command:
            case CreateBacking(containers=containers):
                return CreateStream(
                    command_id=f"{mark}-create",
                    scope=TOPIC_SCOPE,
                    stream=name,
                    containers=containers,
                    wait_ms=CREATE_WAIT_MS,
                )
            case GrowBacking():
                return None if stream is None else _grown(command, stream)
            case SealBacking():
                return SealStream(command_id=f"{mark}-seal", scope=TOPIC_SCOPE, stream=name)
            case DeleteBacking():
                return DeleteStream(command_id=f"{mark}-delete", scope=TOPIC_SCOPE, stream=name)
            case _:
                assert_never(command)


def _grown(command: GrowBacking, stream: Stream) -> ScaleStream | None:
    """The scale that replaces the rest segment; None if the stream has other partitions by now."""
    if len(stream.segments) - 1 != command.expected or not stream.segments:
        return None
    added = command.containers[: SEGMENT_COUNT_MAX - 1]
    total = command.expected + len(added)
    ranges = [partition_keys(at) for at in range(command.expected, total)] + [rest_keys(total)]
    return ScaleStream(
        command_id=f"topic-{command.incarnation}-grow-{command.expected}",
        scope=TOPIC_SCOPE,
        stream=backing_stream(command.topic, command.incarnation).stream,
        expected_epoch=stream.stream_epoch,
        seal=(stream.segments[-1].segment_id,),
        new_ranges=tuple(NewRange(key_start=one.start, key_end=one.end) for one in ranges),
        containers=(*added, added[0]),
        cause="partitions were added",
    )
