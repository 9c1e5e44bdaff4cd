"""Hours in the life of a stream with a retention policy, and a referee that knows every byte.

Each seed draws a policy by time or size, with a maximum or without, how the stream is written (by
day and night: fast, slow, not at all), how it scales, and how two reader groups read it: one goes
on, one lags or stands still. Controllers are killed and replaced, buckets have two owners, their
clocks are minutes apart, containers are away for a while. At last the stream is sealed and read
to its end.

The referee is told of every append and every stored event. It notes a byte that goes within the
minimum, one that a group wants and that is not beyond the maximum, one that stays beyond the
maximum, and one that stays although all groups have released it and the minimum is over.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.common.contracts import commands
from anabranch.common.contracts.commands import NewRange
from anabranch.common.contracts.reader_groups import CreateReaderGroup, UpdateSubscriberCut
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.eventsourcing.message import KIND_EVENTS, decode_message
from anabranch.common.model.names import segment_id, segment_name, stream_ref
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    StreamConfig,
)
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from kit.control_callers import Caller
from kit.control_lives import Life, gone_before, name_in
from kit.control_scenario import come_to_rest
from kit.control_world import World
from kit.rng import Random, seeded
from kit.sim_controller import CONTAINER_COUNT, first_of
from kit.sim_segments import Piece
from kit.simbus import Stored, simulated_readers
from kit.virtual_time import START_MS, VirtualClock, run_virtual

REF = stream_ref("s/x")
SUBJECT = stream_events(REF)
NAMED: Mapping[str, Any] = {"scope": REF.scope, "stream": REF.stream}
BY_TIME = RetentionType.TIME_MS
MINUTE_MS = 60_000
PERIOD_S = 30.0
LIFE_MINUTES = 120
LATE_MS = 15 * MINUTE_MS
"""From when something may go until it is gone: an idle stream is asked about every 16th round, and
stores may be away."""
APART_MS = 10 * MINUTE_MS
"""How far the clocks of controllers are from the server's."""
ERROR_MS = 1_000
"""Of what controllers know of the server's clock."""
GROUPS = ("fast", "slow")

Cut = Mapping[str, int]


@dataclass(slots=True)
class Written:
    """What one append wrote. `released_ms`: when all groups were seen to have released it, and
    `freed_ms`: when retention gave it up; 0: not yet."""

    segment: str
    start: int
    end: int
    at_ms: int
    released_ms: int = 0
    freed_ms: int = 0

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass
class RetentionReferee:
    """See the module. `released`: by group, the cut before which it has released everything."""

    world: World
    policy: RetentionPolicy
    pieces: list[Written] = field(default_factory=list)
    released: dict[str, Cut] = field(default_factory=dict)
    head: Cut = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def appended(self, segment: str, piece: Piece) -> None:
        state = self.world.segments.state(segment)
        assert state is not None
        now_ms = self.world.clock.now_ms()
        self.pieces.append(Written(segment, state.length - piece.size, state.length, now_ms))

    def stored(self, _shard: int, sequence: int, stored: Stored) -> None:
        if stored.subject != SUBJECT:
            return
        message = decode_message(stored.subject, sequence, stored.headers, stored.body)
        if message.kind == KIND_EVENTS:
            for event in STREAM.events.validate_json(message.body):
                self._happened(event)

    def _happened(self, event: StreamEvent) -> None:
        match event:
            case events.StreamSubscriberAdded() | events.StreamSubscriberReleased():
                places = {name_in(self._life, at.segment_id): at.offset for at in event.cut}
                self.released[event.subscriber] = places or self.head
            case events.StreamReleasing():
                self.counts[event.rule] += 1
                self._judge(event)
            case events.StreamTruncateFailed():
                self._note(f"a truncation by retention is refused: {event.error}")
            case events.StreamCutRecorded():
                self.counts["recorded"] += 1
            case _:
                pass

    def _judge(self, event: events.StreamReleasing) -> None:
        self.head = {name_in(self._life, place.segment_id): place.offset for place in event.cut}
        goes = [one for one in self.pieces if not one.freed_ms and self.is_before(one, self.head)]
        now_ms = self.world.clock.now_ms()
        for one in goes:
            one.freed_ms = now_ms
        self._require(
            sum(one.size for one in goes) == event.freed_bytes, "other bytes go than are told"
        )
        unread = [one for one in goes if not self.is_released(one)]
        if self.policy.type is BY_TIME:
            for one in goes:
                old = now_ms - one.at_ms >= self.policy.minimum - ERROR_MS
                self._require(old, f"{one} goes within the minimum")
        else:
            # What was appended since the last look is there, too, so more may be kept.
            self._require(self.kept_bytes() >= self.policy.minimum, "less is kept than the minimum")
        if unread:
            self._require(event.rule == "maximum", f"{unread[0]} goes and was not released")
            self._require(self._is_beyond_maximum(unread, now_ms), f"{unread[0]} goes too early")

    def _is_beyond_maximum(self, unread: list[Written], now_ms: int) -> bool:
        most = self.policy.maximum
        if most is None:
            return False
        if self.policy.type is BY_TIME:
            return all(now_ms - one.at_ms >= most - LATE_MS for one in unread)
        return self.kept_bytes() + sum(one.size for one in unread) >= most

    def look(self) -> None:
        """What stays must not stay too long."""
        now_ms, most = self.world.clock.now_ms(), self.policy.maximum
        if self.policy.type is not BY_TIME:
            slack = self.policy.minimum // 4
            if most is not None:
                self._require(self.kept_bytes() <= most + slack, "more is kept than the maximum")
            return
        for one in self.pieces:
            if one.freed_ms:
                continue
            if most is not None:
                late = now_ms > one.at_ms + most + LATE_MS
                self._require(not late, f"{one} stays beyond the maximum")
            if not one.released_ms and self.is_released(one):
                one.released_ms = now_ms
            free_ms = max(one.released_ms, one.at_ms + self.policy.minimum)
            late = one.released_ms > 0 and now_ms > free_ms + LATE_MS
            self._require(not late, f"{one} stays though nobody wants it")

    def is_released(self, one: Written) -> bool:
        """All groups have."""
        return all(self.is_before(one, cut) for cut in self.released.values())

    def is_before(self, one: Written, cut: Cut) -> bool:
        if cut.get(one.segment, -1) >= one.end:
            return True
        return one.segment not in cut and one.segment in gone_before(self._life, cut)

    def kept_bytes(self) -> int:
        return sum(one.size for one in self.pieces if not one.freed_ms)

    @property
    def _life(self) -> Life:
        return self.world.referee._lives[SUBJECT][-1]

    def _require(self, holds: bool, wrong: str) -> None:
        if not holds:
            self._note(wrong)

    def _note(self, wrong: str) -> None:
        self.world.wrong.append(wrong)


def random_retention(seed: int) -> Mapping[str, int]:
    """One life of this seed; what it counted. Raises AssertionError when a promise is broken."""
    try:
        with simulated_readers():
            return run_virtual(_live_through(seed))
    except BaseExceptionGroup as failures:
        raise first_of(failures) from None


async def _live_through(seed: int) -> Mapping[str, int]:
    rng, loop = seeded(seed), asyncio.get_running_loop()
    world = World(
        rng, VirtualClock(loop),
        lambda: VirtualClock(loop, START_MS + rng.randrange(-APART_MS, APART_MS)),
    )  # fmt: skip
    world.retention_period_s = PERIOD_S
    policy = _policy(rng)
    referee = RetentionReferee(world, policy)
    world.segments.on_appended.append(referee.appended)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            world.new_controller(group)
        story = Story(world, referee, group)
        await story.begin(StreamConfig(ScalingPolicy(min_segments=1), policy))
        world.server.on_stored.append(referee.stored)
        for minute in range(LIFE_MINUTES):
            await story.minute(minute)
        await story.end()
        await come_to_rest(world)
    world.judge()
    assert referee.counts["recorded"], "nothing was recorded"
    return referee.counts


def _policy(rng: Random) -> RetentionPolicy:
    if rng.random() < 0.6:
        most = rng.choice((None, 60, 60)) or 0
        return RetentionPolicy(BY_TIME, 20 * MINUTE_MS, most * MINUTE_MS or None)
    return RetentionPolicy(RetentionType.SIZE_BYTES, 20_000, rng.choice((None, 60_000, 60_000)))


class Story:
    """What happens to the stream, minute by minute."""

    def __init__(self, world: World, referee: RetentionReferee, group: asyncio.TaskGroup) -> None:
        self._world = world
        self._referee = referee
        self._group = group
        self._rng = world.rng
        self._caller = Caller(world, "caller", (REF,), 1.0)
        self._number = 0
        self._stuck = self._rng.random() < 0.5
        """The slow group stands still, for the whole life."""

    async def begin(self, config: StreamConfig) -> None:
        await self._send(commands.CreateScope(command_id="scope", scope=REF.scope))
        await self._send(commands.CreateStream(command_id="create", **NAMED, config=config))
        first = segment_name(REF, segment_id(0, 0))
        self._referee.head = {first: 0}
        self._world.server.on_stored.append(self._referee.stored)
        for name in GROUPS:
            asked = ReaderGroupConfig((GroupStream(str(REF)),), retention=GroupRetention.MANUAL)
            await self._send(
                CreateReaderGroup(command_id=name, scope=REF.scope, group=name, config=asked)
            )
        self._world.server.on_stored.pop()

    async def minute(self, minute: int) -> None:
        """Sixty seconds."""
        rng, hour = self._rng, minute // 30
        rate = (0, 3, 12)[hour % 3]
        for _ in range(4):
            for _ in range(rng.randrange(rate + 1)):
                self._write(rng.randrange(1, 200))
            await self._world.clock.sleep(15)
        if rng.random() < 0.15:
            await self._release("fast", behind=0)
        if rng.random() < 0.1 and not self._stuck:
            await self._release("slow", behind=rng.randrange(40))
        if rng.random() < 0.03:
            await self._scale()
        if rng.random() < 0.04:
            self._strike()
        self._world.segments.down.clear()
        if rng.random() < 0.05:
            self._world.segments.down.add(rng.randrange(CONTAINER_COUNT))
        self._referee.look()
        assert not self._world.wrong, self._world.wrong
        assert not self._world.referee.wrong, self._world.referee.wrong

    async def end(self) -> None:
        """Sealed, read to its end, and old."""
        self._world.segments.down.clear()
        await self._send(commands.SealStream(command_id="seal", **NAMED))
        for name in GROUPS:
            await self._release(name, behind=0)
        referee = self._referee
        if referee.policy.type is BY_TIME:
            old_s = (referee.policy.minimum + 2 * LATE_MS) / 1000
            gone = await self._world.wait_until(lambda: not referee.kept_bytes(), old_s)
            assert gone, f"{referee.kept_bytes()} bytes stay for ever: {self._world.wrong}"

    def _write(self, size: int) -> None:
        segments = self._world.stream(SUBJECT).segment_names()
        self._world.segments.write(self._rng.choice(segments), size)

    async def _release(self, group: str, *, behind: int) -> None:
        """Up to the tail, or some appends before it in every segment; never back."""
        stream, places = self._world.stream(SUBJECT), []
        before = self._referee.released[f"{REF.scope}/{group}"]
        for segment, name in zip(stream.segments, stream.segment_names(), strict=True):
            bounds = self._world.segments.boundaries(name)
            offset = bounds[max(0, len(bounds) - 1 - behind)]
            places.append(SegmentPosition(segment.segment_id, max(offset, before.get(name, 0))))
        self._number += 1
        await self._send(
            UpdateSubscriberCut(
                command_id=f"release{self._number}", **NAMED, subscriber=f"{REF.scope}/{group}",
                generation=0, cut=tuple(sorted(places)),
            )
        )  # fmt: skip

    async def _scale(self) -> None:
        stream = self._world.stream(SUBJECT)
        chosen = self._rng.choice(stream.segments)
        start, end = chosen.keys.start, chosen.keys.end
        ranges: tuple[NewRange, ...] = (
            NewRange(key_start=start, key_end=(start + end) / 2),
            NewRange(key_start=(start + end) / 2, key_end=end),
        )
        seal: tuple[Any, ...] = (chosen.segment_id,)
        if len(stream.segments) > 3:  # then all become one again
            seal = tuple(segment.segment_id for segment in stream.segments)
            ranges = (NewRange(key_start=0.0, key_end=1.0),)
        self._number += 1
        await self._send(
            commands.ScaleStream(
                command_id=f"scale{self._number}", **NAMED, seal=seal, new_ranges=ranges
            )
        )

    def _strike(self) -> None:
        victim = self._rng.choice(self._world.controllers)
        self._world.kill(victim)
        self._world.new_controller(self._group)

    async def _send(self, command: commands.Command) -> None:
        answer = await self._caller.send(command)
        assert isinstance(answer, commands.Accepted), (command, answer)
        await self._world.wait_until(self._world.is_at_rest, 300)
