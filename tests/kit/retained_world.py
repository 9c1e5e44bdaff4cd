"""A stream with a retention policy, and the job that looks at it, in memory."""

from collections.abc import Iterator

from anabranch.common.contracts.commands import CreateStream, UpdateStream
from anabranch.common.contracts.reader_groups import AddSubscriber, UpdateSubscriberCut
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.eventsourcing.message import KIND_EVENTS
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamRef, segment_id
from anabranch.common.model.reader_group import SegmentPosition
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    SegmentOffset,
    StreamConfig,
    StreamCut,
)
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.retain_streams import StreamRetainer
from anabranch.controller.projections.tail_cut import Tail, TailCuts
from kit.loud import loud
from kit.workflow_world import REF, SUBJECT, SetClock, World

BY_TIME, BY_SIZE = RetentionType.TIME_MS, RetentionType.SIZE_BYTES
HOUR_MS = 3_600_000
AN_HOUR = RetentionPolicy(BY_TIME, HOUR_MS)
NAMES = tuple(f"s/x/{number}.#epoch.0" for number in range(3))


def three(policy: RetentionPolicy | None) -> StreamConfig:
    return StreamConfig(ScalingPolicy(min_segments=3), policy)


def cut(*offsets: int) -> StreamCut:
    return tuple(SegmentOffset(segment_id(0, number), at) for number, at in enumerate(offsets))


def positions(offsets: tuple[int, ...]) -> tuple[SegmentPosition, ...]:
    return tuple(SegmentPosition(at.segment_id, at.offset) for at in cut(*offsets))


class SteadyClock(SetClock):
    """Its monotonic time is as late as its wall time."""

    def monotonic(self) -> float:
        return self.ms / 1000


class Retained(World):
    """A stream of three segments with a policy, and a job that looks at it."""

    def __init__(self) -> None:
        super().__init__(clock=SteadyClock())
        self.set_by_ms = 0
        self.asked = 0
        self.owned = True
        self.knows_time = True
        self.retainer = self.new_retainer()

    def new_retainer(self) -> StreamRetainer:
        return StreamRetainer(
            self.known,
            self.tail_of,
            self.histories,
            self.streams,
            lambda _subject: self.owned,
            now_ms=self.now_ms,
            clock=self.clock,
            period_s=60.0,
            containment=loud(self.clock),
        )

    def now_ms(self) -> int | None:
        return self.clock.ms + self.set_by_ms if self.knows_time else None

    def known(self) -> Iterator[Loaded[Stream]]:
        yield from self.mirror.retained_streams()

    async def tail_of(self, ref: StreamRef) -> Tail:
        self.asked += 1
        return await TailCuts(self.mirror, self.segments.segment_lengths).of(ref)

    async def create(self, policy: RetentionPolicy | None) -> None:
        await self.open_scope()
        config = three(policy)
        await self.command(
            CreateStream(command_id="create", scope=REF.scope, stream=REF.stream, config=config)
        )
        await self.rest()
        for segment in NAMES:
            self.segments.segments[segment].length = 0

    def write(self, *lengths: int) -> None:
        for segment, length in zip(NAMES, lengths, strict=True):
            self.segments.segments[segment].length += length

    async def later(self, ms: int) -> Stream:
        """After that time, one round and what it began."""
        self.clock.ms += ms
        await self.look()
        return (await self.rest()).state

    async def look(self) -> None:
        await self.mirror.reach_head(shard_of_subject(SUBJECT))
        await self.retainer.round()

    async def subscribe(self, *offsets: int, generation: int = 0) -> None:
        await self.command(
            AddSubscriber(
                command_id=f"add{generation}",
                scope=REF.scope,
                stream=REF.stream,
                subscriber="s/g",
                group_incarnation=1,
                generation=generation,
                cut=positions(offsets),
            )
        )

    async def release(self, *offsets: int) -> None:
        await self.command(
            UpdateSubscriberCut(
                command_id=f"release{offsets[0]}",
                scope=REF.scope,
                stream=REF.stream,
                subscriber="s/g",
                generation=0,
                cut=positions(offsets),
            )
        )

    async def configure(self, policy: RetentionPolicy | None) -> None:
        await self.command(
            UpdateStream(
                command_id=f"update{policy}"[:6],
                scope=REF.scope,
                stream=REF.stream,
                config=three(policy),
            )
        )
        await self.rest()

    async def events(self) -> list[str]:
        """The kinds of all that is stored of the stream."""
        stored = [m for m in await self.store.load(SUBJECT) if m.kind == KIND_EVENTS]
        return [e.kind for m in stored for e in STREAM.events.validate_json(m.body)]
