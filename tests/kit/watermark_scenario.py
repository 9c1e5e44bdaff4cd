"""Minutes in the life of a stream whose writers note times, and a referee that knows every event.

Each seed draws an aggregation time-out and some writers: they append to the stream, note times,
fall silent for longer than the time-out, close and begin again, and their clocks jump. One of them
writes in transactions and notes the times of its commits. The stream scales meanwhile, is sealed
and deleted, and may begin another life. Controllers are killed, and both of two believe to own its
bucket; containers are away, or die before they answer; Redis is away, or loses everything.

At the end all is well again for a while, and the watermark must advance.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anabranch.common.contracts import commands
from anabranch.common.contracts import transactions as asked
from anabranch.common.contracts.commands import NewRange
from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.errors import AnabranchError
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import SegmentId, stream_ref
from anabranch.common.model.stream import SegmentOffset, fixed
from anabranch.common.model.transaction import CLOCK_SKEW_MS
from anabranch.common.runtime.clock import Clock
from kit.control_callers import Caller
from kit.control_scenario import come_to_rest
from kit.control_world import World
from kit.fake_timers import InMemoryTimers
from kit.fake_writer_times import InMemoryWriterTimes
from kit.rng import Random, seeded
from kit.sim_controller import CONTAINER_COUNT, first_of
from kit.sim_segments import Piece
from kit.simbus import simulated_readers
from kit.transaction_clients import KEYS, Client, Held
from kit.virtual_time import START_MS, VirtualClock, run_virtual
from kit.watermark_referee import RefereedLog, RefereedTimes, WatermarkReferee

REF = stream_ref("s/x")
SUBJECT = stream_events(REF)
SHARD = shard_of_subject(SUBJECT)
NAMED: Mapping[str, Any] = {"scope": REF.scope, "stream": REF.stream}
PERIOD_S = 5.0
LIFE_S = 240.0
WATERMARKS, LOSSES, AWAY = "watermarks", "losses of all marks", "times that Redis was away"
SILENCES, JUMPS, LIVES = "writers that fell silent", "clocks that jumped", "lives of the stream"


def random_watermarks(seed: int) -> Mapping[str, int]:
    """One life of this seed; what it counted. Raises AssertionError when a promise is broken."""
    try:
        with simulated_readers():
            return run_virtual(_live_through(seed))
    except BaseExceptionGroup as failures:
        raise first_of(failures) from None


async def _live_through(seed: int) -> Mapping[str, int]:
    rng, loop = seeded(seed), asyncio.get_running_loop()

    def a_clock() -> Clock:
        return VirtualClock(loop, START_MS + rng.randrange(CLOCK_SKEW_MS + 1))

    world = World(rng, VirtualClock(loop), a_clock, InMemoryTimers())
    timeout_s = rng.choice((0.0, 15.0, 30.0, 30.0))
    referee = WatermarkReferee(world.segments, world.clock, timeout_s)
    times = RefereedTimes(world.clock, referee)
    world.writer_times, world.watermark_period_s = times, PERIOD_S
    world.watermark_log = lambda stores, ids, seen: RefereedLog(stores, ids, seen, referee)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            world.new_controller(group)
        story = Story(world, referee, times, group, timeout_s)
        await story.begin()
        await story.live(LIFE_S)
        await story.end()
        await come_to_rest(world)
    world.judge()
    referee.judge()
    assert not referee.wrong, referee.wrong[0]
    story.counts[WATERMARKS] = sum(len(rows) for rows in referee.stated.values())
    return story.counts


class Story:
    """What happens to the stream, to its writers and around them."""

    def __init__(
        self,
        world: World,
        referee: WatermarkReferee,
        times: InMemoryWriterTimes,
        group: asyncio.TaskGroup,
        timeout_s: float,
    ) -> None:
        self.world = world
        self.referee = referee
        self.times = times
        self.timeout_s = timeout_s
        self.counts: Counter[str] = Counter()
        self._group = group
        self._rng = world.rng
        self._caller = Caller(world, "caller", (REF,), 1.0)
        self._number = 0
        self.incarnation = 1
        self.is_calm = False
        """Everything works, and all writers go on."""

    async def begin(self) -> None:
        await self._send(commands.CreateScope(command_id="scope", scope=REF.scope))
        await self._create()

    async def live(self, seconds: float) -> None:
        """A first life, and sometimes another one."""
        lives = self._rng.choice((1, 1, 2))
        for life in range(lives):
            if life:
                await self._begin_again()
            self.counts[LIVES] += 1
            await self._one_life(seconds / lives)

    async def end(self) -> None:
        """The stream goes, and with it its watermarks."""
        await self._remove()

    async def _one_life(self, seconds: float) -> None:
        self.is_calm = False
        writers: list[Writer | Committer] = [
            Writer(self, f"{self.incarnation}{number}")
            for number in range(self._rng.randrange(1, 4))
        ]
        if self._rng.random() < 0.6:
            writers.append(Committer(self, self._group))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(writer.live()) for writer in writers]
            blows = tasks.create_task(self._strike())
            shapes = tasks.create_task(self._reshape())
            await self.world.clock.sleep(seconds)
            for task in (blows, shapes):
                task.cancel()
            await self._calm()
            for task in running:
                task.cancel()
        self._require_progress()

    async def _calm(self) -> None:
        """Nothing goes wrong any more, for so long that every time-out is over."""
        self.is_calm = True
        self.times.away = False
        self.world.segments.down.clear()
        self.world.segments.mute.clear()
        for controller in self.world.controllers:
            controller.own(frozenset(range(SHARD_COUNT)))
        await self.world.clock.sleep(3 * self.timeout_s + 90)

    def _require_progress(self) -> None:
        rows = self.referee.stated.get((REF, self.incarnation), [])
        now_s = self.world.clock.monotonic()
        latest_s = rows[-1].stored_s if rows else 0.0
        assert now_s - latest_s < 40, f"no watermark since {latest_s} s, and it is {now_s} s"
        self.look()

    def look(self) -> None:
        assert not self.world.wrong, self.world.wrong
        assert not self.world.referee.wrong, self.world.referee.wrong
        assert not self.referee.wrong, self.referee.wrong[0]

    # --- what goes wrong ------------------------------------------------------------------------

    async def _strike(self) -> None:
        blows = (
            self._kill, self._move, self._stop_containers, self._mute_containers,
            self._lose_marks, self._stop_redis,
        )  # fmt: skip
        chosen = [blow for blow in blows if self._rng.random() < 0.7]
        while chosen:
            await self.world.clock.sleep(self._rng.random() * 20)
            await self._rng.choice(chosen)()
            self.look()

    async def _kill(self) -> None:
        self.world.kill(self._rng.choice(self.world.controllers))
        self.world.new_controller(self._group)

    async def _move(self) -> None:
        """The bucket has one owner, or two, or none."""
        everything = frozenset(range(SHARD_COUNT))
        for controller in self.world.controllers:
            owns = self._rng.random() < 0.6
            controller.own(everything if owns else everything - {SHARD})

    async def _stop_containers(self) -> None:
        down = self._rng.randrange(CONTAINER_COUNT)
        self.world.segments.down.add(down)
        await self.world.clock.sleep(self._rng.random() * 10)
        self.world.segments.down.discard(down)

    async def _mute_containers(self) -> None:
        mute = self._rng.randrange(CONTAINER_COUNT)
        self.world.segments.mute.add(mute)
        await self.world.clock.sleep(self._rng.random() * 6)
        self.world.segments.mute.discard(mute)

    async def _lose_marks(self) -> None:
        self.times.empty()
        self.counts[LOSSES] += 1

    async def _stop_redis(self) -> None:
        self.times.away = True
        self.counts[AWAY] += 1
        await self.world.clock.sleep(self._rng.random() * 10)
        self.times.away = False

    # --- the stream -----------------------------------------------------------------------------

    async def _reshape(self) -> None:
        while True:
            await self.world.clock.sleep(10 + self._rng.random() * 40)
            await self._scale()

    async def _scale(self) -> None:
        stream = self.world.stream(SUBJECT)
        chosen = self._rng.choice(stream.segments)
        start, end = chosen.keys.start, chosen.keys.end
        ranges: tuple[NewRange, ...] = (
            NewRange(key_start=start, key_end=(start + end) / 2),
            NewRange(key_start=(start + end) / 2, key_end=end),
        )
        seal: tuple[Any, ...] = (chosen.segment_id,)
        if len(stream.segments) > 4:  # then all become one again
            seal = tuple(segment.segment_id for segment in stream.segments)
            ranges = (NewRange(key_start=0.0, key_end=1.0),)
        await self._send(
            commands.ScaleStream(command_id=self._id(), **NAMED, seal=seal, new_ranges=ranges)
        )

    async def _begin_again(self) -> None:
        await self._remove()
        self.incarnation += 1
        await self._create()

    async def _create(self) -> None:
        config = replace(fixed(2), timestamp_aggregation_timeout_ms=int(self.timeout_s * 1000))
        await self._send(commands.CreateStream(command_id=self._id(), **NAMED, config=config))

    async def _remove(self) -> None:
        await self._send(commands.SealStream(command_id=self._id(), **NAMED))
        await self._send(commands.DeleteStream(command_id=self._id(), **NAMED))

    def _id(self) -> str:
        self._number += 1
        return f"command{self._number}"

    async def _send(self, command: commands.Command) -> None:
        await self._caller.send(command)
        await self.world.wait_until(self.world.is_at_rest, 300)


class Writer:
    """Appends events, each of a later time or the same, and notes times."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self._world = story.world
        self._rng: Random = story.world.rng
        self._name = name
        self._births = 0
        self._number = 0
        self._now_ms = 0
        self._offset_ms = self._rng.randrange(-30_000, 30_000)
        self._positions: dict[SegmentId, int] = {}
        self._id = ""
        self._begin()

    def _begin(self) -> None:
        self._births += 1
        self._id = f"{int(self._name) * 1000 + self._births:032x}"
        self._positions = {}

    async def live(self) -> None:
        """Until cancelled."""
        while True:
            await self._world.clock.sleep(self._rng.random() * 3)
            draw = 1.0 if self._story.is_calm else self._rng.random()
            if draw < 0.02:
                await self._fall_silent()
            elif draw < 0.04:
                self._offset_ms += self._rng.randrange(-40_000, 40_000)
                self._story.counts[JUMPS] += 1
            elif draw < 0.06:
                await self._close()
            await self._append()
            if self._story.is_calm or self._rng.random() < 0.6:
                await self._note()

    async def _fall_silent(self) -> None:
        self._story.counts[SILENCES] += 1
        await self._world.clock.sleep(self._story.timeout_s * (0.5 + self._rng.random() * 1.5))

    async def _close(self) -> None:
        try:
            await self._story.times.remove(REF, self._story.incarnation, self._id)
        except AnabranchError:
            return
        self._begin()

    def _time_ms(self) -> int:
        """Its clock may go back; its times do not."""
        if self._story.is_calm:  # its clock has been set right
            self._offset_ms = max(self._offset_ms, self._now_ms - self._world.clock.now_ms())
        self._now_ms = max(self._now_ms, self._world.clock.now_ms() + self._offset_ms)
        return self._now_ms

    async def _append(self) -> None:
        """One event to its end, however often the segment changes or nobody answers."""
        self._number += 1
        key = self._rng.choice(KEYS)
        piece = Piece(self._id, self._number, key, self._rng.randrange(1, 50))
        self._story.referee.times[piece.writer, piece.number] = self._time_ms()
        transactions = self._world.referee.transactions
        transactions.sent.setdefault(piece, transactions.steps)
        while True:
            stream = self._world.stream(SUBJECT)
            one = next((s for s in stream.segments if key in s.keys), None)
            if one is None:
                await self._world.clock.sleep(1.0)
                continue
            (name,) = stream.names_of([one.segment_id])
            try:
                done = self._world.segments.append(name, piece)
            except Exception:  # noqa: BLE001
                await self._world.clock.sleep(0.5)
                continue
            if done in ("appended", "repeated"):
                state = self._world.segments.state(name)
                assert state is not None
                self._positions[one.segment_id] = state.length
                return
            await self._world.clock.sleep(0.5)

    async def _note(self) -> None:
        places = sorted(SegmentOffset(s, at) for s, at in self._positions.items())
        try:
            await self._story.times.note(
                REF, self._story.incarnation, self._id, self._time_ms(), tuple(places)
            )
        except AnabranchError:
            return


class Committer(Client):
    """Writes in transactions, one after another, and notes the time of each commit."""

    def __init__(self, story: Story, group: asyncio.TaskGroup) -> None:
        super().__init__(story.world, f"t{story.incarnation}", group, (REF,))
        self._story = story
        self._id = f"{0xC0 + story.incarnation:032x}"
        self._now_ms = 0

    async def live(self) -> None:
        """Until cancelled."""
        while True:
            await self.world.clock.sleep(self.rng.random() * 6)
            begun = await self.begin(REF)
            if isinstance(begun, str):
                continue
            held, _ = begun
            self._now_ms = max(self._now_ms, self.world.clock.now_ms())
            if await self.write(held, held.segments):
                self._now_ms = max(self._now_ms, self.world.clock.now_ms())
                await self._commit(held)

    async def append(self, segment: str, piece: Piece) -> Any:
        """As any client; the referee learns the event's time."""
        self._story.referee.times[piece.writer, piece.number] = self._now_ms
        self._story.referee.owners[piece.writer] = self._id
        return await super().append(segment, piece)

    async def _commit(self, held: Held) -> None:
        query = asked.CommitTransaction(
            **self.about(held), wait_ms=5_000, writer_id=self._id, timestamp_ms=self._now_ms
        )
        self.heard(held, await self.ask_until("commit_transaction", query, 3), "commit")
        self.past.clear()
