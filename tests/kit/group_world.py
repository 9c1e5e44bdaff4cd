"""A reader group in virtual time: its log, its streams, its readers' processes, and their referee.

A `SimReader` is one process with one application that reads, by the real `GroupReader`; only the
log and where blocks come from are simulated.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, cast

from anabranch.client.groups import updates as u
from anabranch.client.groups.ports import Surroundings
from anabranch.client.groups.reader import GroupReader, GroupReaderParts, GroupReaderSettings
from anabranch.client.groups.state import Checkpoint, GroupEnd, GroupSegment, ReaderGroupState
from anabranch.client.groups.succession import end_offset
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.times.follower import WatermarkFollower
from anabranch.client.runtime import Runtime
from anabranch.common.errors import (
    EventsTruncated,
    ReaderGroupReset,
    ReaderInUse,
    ReaderRemoved,
    Retry,
    Unknown,
)
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig
from kit.group_log import SimGroupHandle, SimGroupLog
from kit.group_process import ProcessTasks, SimProcess
from kit.group_referee import Referee, Session
from kit.group_streams import SimEvent, SimSegment, SimSource, SimStream
from kit.rng import Random

CHECKPOINTS = "checkpoints that became complete"
CHECKPOINT_CALLS = "times that an application was told of a checkpoint"
REMOVED = "readers that found themselves removed"
RESET = "readers that found their group reset"
TRUNCATED = "times that a reader was told of truncated events"
CANCELLED = "asks that were cancelled"
REPLAYED = "events that were handed out again"
ACQUIRED = "segments acquired"
LOST = "readers taken for lost"
JOIN_FAILED = "joins that failed"

Wish = Literal["stay", "leave", "throw"]


class Interrupted(Exception):
    """An application fails inside of its reader's block."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What an application is like. `slow_s`: it sometimes takes so long for an event."""

    is_explicit: bool
    takes_batches: bool
    tells_checkpoints: bool
    cancels: bool
    think_s: float
    slow_s: float
    save_interval_s: float


class SessionIds:
    """An id source that gives one nonce."""

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce

    def new_id(self) -> str:
        return self.new_bytes().hex()

    def new_bytes(self) -> bytes:
        return self._nonce.to_bytes(16, "little")


class World:
    """See the module. `readers`: all that ever were; `healed`: nothing goes wrong any more."""

    def __init__(
        self, rng: Random, streams: list[SimStream], config: ReaderGroupConfig, *, is_bounded: bool
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.streams = streams
        self.segments: dict[str, SimSegment] = {}
        self.events: dict[int, SimEvent] = {}
        self.readers: list[SimReader] = []
        self.failures: list[BaseException] = []
        self.is_healed = False
        for stream in streams:
            for segment in stream.segments:
                self.events.update({event.number: event for event in segment.events})
        self._nonces = 0
        self.loop.set_exception_handler(self._broken)
        self.learn()
        first = self._first_state(config, is_bounded=is_bounded)
        self.referee = Referee(self.segments, self.loop.time, first)
        self.log = SimGroupLog(first, rng, self.counts, self._applied)

    @property
    def lease_s(self) -> float:
        return self.log.state.config.lease_ms / 1000

    def learn(self) -> None:
        """What streams there are now."""
        for stream in self.streams:
            for segment in stream.segments:
                self.segments[segment.name] = segment

    def write(self, stream: SimStream) -> None:
        """One block to the stream."""
        first = len(self.events)
        before = {each: len(each.events) for each in stream.present}
        stream.write(first)
        for segment, count in before.items():
            for event in segment.events[count:]:
                self.events[event.number] = event

    def _broken(self, _loop: object, context: Mapping[str, Any]) -> None:
        """Something outside of all processes has failed."""
        error = context.get("exception")
        self.failures.append(error or AssertionError(str(context["message"])))

    def new_nonce(self) -> int:
        self._nonces += 1
        return self._nonces

    def _applied(
        self, before: ReaderGroupState, update: u.AnyUpdate, after: ReaderGroupState
    ) -> None:
        if isinstance(update, u.Lost) and after is not before:
            self.counts[LOST] += 1
        if after.newest_ownership > before.newest_ownership:
            self.counts[ACQUIRED] += after.newest_ownership - before.newest_ownership
        if after.checkpoints is not before.checkpoints:
            known = {each.number for each in before.checkpoints if each.is_complete}
            complete = {each.number for each in after.checkpoints if each.is_complete}
            self.counts[CHECKPOINTS] += len(complete - known)
        try:
            self.referee.applied(before, update, after)
        except AssertionError as error:
            self.failures.append(error)

    # --- the group's states -------------------------------------------------------------------

    def _first_state(self, config: ReaderGroupConfig, *, is_bounded: bool) -> ReaderGroupState:
        ends: list[GroupEnd] = []
        positions: dict[str, Position] = {}
        for stream in self.streams:
            starts = {each: each.start for each in stream.segments if not each.before}
            if is_bounded:
                ends += [
                    GroupEnd(each.name, each.segment_id, each.key_start, each.key_end, offset)
                    for each, offset in stream.random_cut(0.7).items()
                ]
            elif self.rng.random() < 0.5:
                starts = stream.random_cut(0.5)
            positions |= _begun(starts)
        return self.state_at(positions, config, tuple(ends), 1)

    def state_at(
        self,
        positions: Mapping[str, Position],
        config: ReaderGroupConfig,
        ends: tuple[GroupEnd, ...],
        generation: int,
    ) -> ReaderGroupState:
        """A group that begins there."""
        segments = {}
        for name, position in positions.items():
            model = self.segments[name]
            segments[name] = GroupSegment(
                name,
                model.segment_id,
                model.key_start,
                model.key_end,
                position,
                end_offset(ends, name),
            )
        return ReaderGroupState(1, generation, config, segments, ends)

    def reset(self, positions: Mapping[str, Position]) -> None:
        """Begin a new generation."""
        state = self.log.state
        new = self.state_at(positions, state.config, state.ends, state.generation + 1)
        self.referee.reset(new)
        self.log.begin_again(new.after(state.newest_ownership))

    def restart_positions(self) -> Mapping[str, Position]:
        """Where a new generation may begin: at a checkpoint, or a cut."""
        complete = [each for each in self.log.state.checkpoints if each.is_complete]
        if complete and self.rng.random() < 0.5:
            return dict(self.rng.choice(complete).positions)
        if self.log.state.ends:
            return self.log.state.positions()
        found: dict[str, Position] = {}
        for stream in self.streams:
            found |= _begun(stream.random_cut(0.5))
        return found

    # --- rest ---------------------------------------------------------------------------------

    def going(self) -> "list[SimReader]":
        """Readers whose processes are there."""
        return [each for each in self.readers if not each.is_over and not each.process.is_dead]

    def unrest(self) -> str | None:
        """Why the group is not at rest; None: it is."""
        state = self.log.state
        alive = {each.session.nonce for each in self.going() if each.session is not None}
        if state.is_complete and not alive:
            return next(iter(self.referee.unprocessed()), None)
        ghosts = [name for name, each in state.readers.items() if each.nonce not in alive]
        if ghosts:
            return f"{ghosts} are online and are not there"
        under_way = [each for each in state.checkpoints if not each.is_complete]
        if under_way:
            return f"a checkpoint is not complete: {under_way}"
        loads = Counter(dict.fromkeys(state.readers, 0))
        for segment in state.segments.values():
            if segment.is_unassigned:
                return f"nobody has {segment}"
            if segment.owner:
                loads[segment.owner] += 1
        if loads and max(loads.values()) - min(loads.values()) > 1:
            return f"not balanced: {dict(loads)}"
        unprocessed = self.referee.unprocessed()
        return unprocessed[0] if unprocessed else None


def _begun(cut: Mapping[SimSegment, int]) -> dict[str, Position]:
    """The cut, where what nothing older shares keys with is no future segment."""
    return {segment.name: Position(offset) for segment, offset in cut.items()}


@dataclass(eq=False)
class SimReader:
    """A process that reads. `outcome`: how it ended; `session`: what it is in the group."""

    world: World
    reader_id: str
    habits: Habits
    skew: float
    wish: Wish = "stay"
    outcome: str = ""
    is_over: bool = False
    session: Session | None = None
    is_asking: bool = False
    _in_hand: list[tuple[str, list[SimEvent]]] = field(default_factory=list)
    _task: "asyncio.Task[None] | None" = None
    _interrupted: bool = False

    def __post_init__(self) -> None:
        self.process = SimProcess(self.world.rng, self.world.loop, self.skew)

    def start(self, group: asyncio.TaskGroup) -> None:
        life = self._run()

        def ended(_: object) -> None:
            self.is_over = True
            self.process.trouble.append((self.world.loop.time(), inf))
            life.close()  # it may not have begun

        self._task = group.create_task(self.process.gated(life, is_application=True))
        self._task.add_done_callback(ended)

    def interrupt(self) -> None:
        """Cancel the ask that is under way, if one is."""
        if self.is_asking and self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def bury(self) -> None:
        """The run is over."""
        if not self.is_over and self._task is not None:
            self.process.bury()
            self._task.cancel()

    # --- the process --------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with ProcessTasks(self.process) as tasks:
                await self._join(tasks)
        except BaseExceptionGroup as failed:
            if not self.process.is_buried:
                self.world.failures.append(failed)
        except AssertionError as error:
            self.world.failures.append(error)

    async def _join(self, tasks: asyncio.TaskGroup) -> None:
        world, habits = self.world, self.habits
        nonce = world.new_nonce()
        session = Session(self.reader_id, self.process, habits.save_interval_s, nonce)
        world.referee.joined(session)
        news = asyncio.Event()
        source = SimSource(world.segments, self.process, world.rng, tasks, news)
        parts = GroupReaderParts(
            cast(Any, SimGroupHandle(world.log, self.process)),
            source, news, Surroundings(self._unread, self._completed), self._watch,
            _no_watermarks,
        )  # fmt: skip

        async def open_parts() -> GroupReaderParts:
            return parts

        async def on_checkpoint(name: str) -> None:
            world.counts[CHECKPOINT_CALLS] += 1
            world.referee.called(session, name)
            await self.process.clock.sleep(world.rng.random() * 0.3)

        reader = GroupReader(
            self.reader_id,
            open_parts=open_parts,
            runtime=Runtime(self.process.clock, SessionIds(nonce), world.rng, tasks),
            settings=GroupReaderSettings(
                save_interval_s=habits.save_interval_s,
                acks="explicit" if habits.is_explicit else "asking",
            ),
            on_checkpoint=on_checkpoint if habits.tells_checkpoints else None,
        )
        self.outcome = await self._outcome(reader, session)

    async def _outcome(self, reader: GroupReader, session: Session) -> str:
        counts = self.world.counts
        try:
            async with reader:
                assert reader._member is not None
                session.generation = reader._member._generation[1]
                self.session = session
                return await self._consume(reader, session)
        except ReaderRemoved:
            counts[REMOVED] += 1
            return "removed"
        except ReaderGroupReset:
            counts[RESET] += 1
            return "reset"
        except Interrupted:
            return "interrupted"
        except (ReaderInUse, Retry, Unknown):
            if self.session is not None:
                raise
            counts[JOIN_FAILED] += 1
            return "not joined"

    async def _unread(self, segment: str, offset: int) -> int:
        return max(0, self.world.segments[segment].length - offset)

    async def _completed(self, _checkpoint: Checkpoint) -> None:
        return

    async def _watch(self) -> None:
        return

    # --- the application ----------------------------------------------------------------------

    async def _consume(self, reader: GroupReader, session: Session) -> str:
        """Until it wishes to leave, or all is read."""
        try:
            while self.wish == "stay":
                if not self.habits.is_explicit:
                    self._done(session)
                given = await self._ask(reader, session)
                if given == "end":
                    return "end"
                if given == "event":
                    await self._work()
                if self.habits.is_explicit and (given != "event" or self.world.rng.random() < 0.6):
                    self._done(session)
                    reader.ack()
            if self.wish == "throw":
                raise Interrupted
        except (Interrupted, asyncio.CancelledError):
            session.leaves_behind = True
            raise
        self._done(session)
        if self.habits.is_explicit:
            reader.ack()
        return "left"

    async def _ask(self, reader: GroupReader, session: Session) -> str:
        rng, habits = self.world.rng, self.habits
        patience_s = None
        if habits.is_explicit or (habits.cancels and rng.random() < 0.3):
            patience_s = rng.random() * (2 if habits.is_explicit else 0.5)
        try:
            self.is_asking = True
            async with asyncio.timeout(patience_s):
                if habits.takes_batches:
                    given: EventBatch | Event | None = await reader.next_batch()
                else:
                    given = await anext(reader, None)
        except TimeoutError:
            self.world.counts[CANCELLED] += 1
            return "nothing"
        except EventsTruncated as error:
            self.world.counts[TRUNCATED] += 1
            self.world.referee.told_truncated(session, str(error.fields["segment"]))
            return "nothing"
        except asyncio.CancelledError:
            if not self._interrupted or self.process.is_buried:
                raise
            self._interrupted = False
            assert self._task is not None
            self._task.uncancel()
            self.world.counts[CANCELLED] += 1
            return "nothing"
        finally:
            self.is_asking = False
        if given is None:
            return "end"
        payloads = given.payloads if isinstance(given, EventBatch) else [given.payload]
        events = [self.world.events[int(payload)] for payload in payloads]
        segment = given.segment
        ownership = reader.ownership(segment)
        self.world.referee.handed_out(session, segment, ownership, events)
        self._in_hand.append((segment, events))
        return "event"

    def _done(self, session: Session) -> None:
        """What it was given is processed, as it says by what it does next."""
        for segment, events in self._in_hand:
            self.world.referee.done(session, segment, events)
        self._in_hand.clear()

    async def _work(self) -> None:
        rng, habits = self.world.rng, self.habits
        if self.world.is_healed:
            return
        if habits.slow_s and rng.random() < 0.03:
            await self.process.clock.sleep(rng.random() * habits.slow_s)
        elif habits.think_s:
            await self.process.clock.sleep(rng.random() * habits.think_s)


async def wait_for(world: World, *, bound_s: float) -> str | None:
    """Until the group is at rest → what is not, after that time."""
    until_s = world.loop.time() + bound_s
    while not world.failures:
        found = world.unrest()
        if found is None or world.loop.time() > until_s:
            return found
        with suppress(TimeoutError):
            await asyncio.sleep(0.5)
    return None


def streams_of(rng: Random, counts: Counter[str], number: int) -> list[SimStream]:
    """So many streams."""
    return [SimStream(stream_ref(f"sim/s{index}"), rng, counts) for index in range(number)]


def config_of(streams: list[SimStream], **given: Any) -> ReaderGroupConfig:
    return ReaderGroupConfig(tuple(GroupStream(str(each.ref)) for each in streams), **given)


async def _no_watermarks(stream: StreamRef) -> WatermarkFollower:
    raise AssertionError(f"nobody asks for the windows of {stream}")
