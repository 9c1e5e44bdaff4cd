"""The backing streams of topics in memory: commands take effect at once, or when they are let."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anabranch.common.contracts.commands import (
    Command,
    CreateScope,
    CreateStream,
    DeleteStream,
    ScaleStream,
    SealStream,
)
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, number_of, segment_id
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.model.topics import (
    next_ordinal,
    partition_keys,
    rest_keys,
    segment_number,
    topic_of,
)
from anabranch.controller.domain.scope.state import Scope, ScopeStatus
from anabranch.controller.domain.stream.history import EpochRecord
from anabranch.controller.domain.stream.state import Stream


@dataclass
class BackingStreams:
    """`CommandSender` and `Streams`. While `held`, commands wait in `queue`.

    `folded(topic, incarnation)` is called after each effect on a stream; for the scope with "".
    """

    held: bool = False
    queue: list[Command] = field(default_factory=list)
    posted: list[Command] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    streams: dict[StreamRef, Stream] = field(default_factory=dict)
    before_post: Callable[[], None] = lambda: None
    folded: list[Callable[[str, str], None]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    async def post(self, command: Command) -> None:
        """See `CommandSender.post`."""
        self.before_post()
        self.posted.append(command)
        self.queue.append(command)
        if not self.held:
            self.decide()

    def decide(self) -> None:
        """Decide every command in the queue; a repeated one has no effect."""
        queue, self.queue = self.queue, []
        for command in queue:
            if command.command_id not in self.done and self._decide(command):
                self.done.add(command.command_id)

    def scope(self, scope: ScopeName) -> Loaded[Scope] | None:
        found = self.scopes.get(scope)
        return None if found is None else Loaded(scope_events(scope), found)

    def readable_stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        found = self.streams.get(ref)
        return None if found is None else Loaded(stream_events(ref), found)

    def names(self) -> list[str]:
        """The streams that are not deleted."""
        return [
            ref.stream
            for ref, found in self.streams.items()
            if found.status is not StreamState.DELETED
        ]

    def _decide(self, command: Command) -> bool:
        """Whether the command was accepted."""
        if isinstance(command, CreateScope):
            self.scopes[command.scope] = Scope(command.scope, 1, ScopeStatus.ACTIVE)
            self._fold("", "")
            return True
        assert isinstance(command, CreateStream | ScaleStream | SealStream | DeleteStream)
        if command.scope not in self.scopes:
            return False
        ref = StreamRef(ScopeName(command.scope), StreamName(command.stream))
        before = self.streams.get(ref)
        after = _after(ref, before, command)
        if after is None:
            return False
        self.streams[ref] = after
        self._fold(*topic_of(ref.stream))
        return True

    def _fold(self, topic: str, incarnation: str) -> None:
        for listener in self.folded:
            listener(topic, incarnation)


def _after(
    ref: StreamRef,
    before: Stream | None,
    command: CreateStream | ScaleStream | SealStream | DeleteStream,
) -> Stream | None:
    """The stream after the command; None if it is refused."""
    if isinstance(command, CreateStream):
        if before is not None or command.containers is None:
            return None
        return _made(ref, command.containers)
    if before is None:
        return None
    match command:
        case SealStream() if before.status is StreamState.ACTIVE:
            return replace(before, status=StreamState.SEALED)
        case DeleteStream() if before.status is StreamState.SEALED:
            return replace(before, status=StreamState.DELETED, segments=())
        case ScaleStream(containers=containers) if before.status is StreamState.ACTIVE:
            assert containers is not None
            assert command.seal == (before.segments[-1].segment_id,)
            epoch, first = before.stream_epoch + 1, next_ordinal(before.highest_number)
            new = tuple(
                SegmentRange(
                    segment_id(epoch, segment_number(first + at, container)),
                    KeyRange(keys.key_start, keys.key_end),
                )
                for at, (container, keys) in enumerate(
                    zip(containers, command.new_ranges, strict=True)
                )
            )
            return _of_epoch(before, epoch, (*before.segments[:-1], *new))
        case _:
            return None


def _made(ref: StreamRef, containers: tuple[int, ...]) -> Stream:
    count = len(containers)
    keys = [*(partition_keys(at) for at in range(count)), rest_keys(count)]
    segments = tuple(
        SegmentRange(segment_id(0, segment_number(at, container)), keys[at])
        for at, container in enumerate((*containers, containers[0]))
    )
    made = Stream(ref=ref, incarnation=1, status=StreamState.ACTIVE)
    return _of_epoch(made, 0, segments)


def _of_epoch(stream: Stream, epoch: int, segments: tuple[SegmentRange, ...]) -> Stream:
    highest = max(number_of(one.segment_id) for one in segments)
    record = EpochRecord(stream_epoch=epoch, reference_epoch=epoch, created_ms=0, created=segments)
    return replace(stream, segments=segments, highest_number=highest, epochs=(record,))
