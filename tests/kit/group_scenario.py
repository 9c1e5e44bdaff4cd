"""Seeded random lives of a reader group: readers, streams, and whatever goes wrong.

Each seed draws how many streams and readers there are, what applications are like, how bad the
network is, and which blows fall: readers crash, stand still beyond their lease and wake, are put
offline by somebody who may be wrong, leave by an error, come again under the same id; the group's
log is away; the group is reset; streams are scaled and truncated. Then everything is healed, and
within some leases every segment must have a reader, and every event must be processed.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from unittest.mock import patch

from anabranch.client.groups import balance, member
from anabranch.client.groups import updates as u
from anabranch.client.reading.frontier import Position
from kit.group_log import PATIENCE_S
from kit.group_streams import SimStream
from kit.group_world import REPLAYED, Habits, SimReader, World, config_of, streams_of, wait_for
from kit.rng import Random, seeded
from kit.simlink import CLEAR, Weather
from kit.virtual_time import run_virtual

CRASHED = "readers that crashed"
FROZEN = "readers that stood still beyond their lease"
PAUSED = "readers that stood still for a while"
PUT_OFFLINE = "readers put offline"
LEFT = "readers that left"
THROWN = "readers that left by an error"
CUT_OFF = "readers cut off from their group's log"
AWAY = "outages of a group's log"
RESETS = "resets of groups"
BEGUN = "checkpoints begun"
CHECKPOINTS_CANCELLED = "times that checkpoints were cancelled"
REST_LEASES = 10


@dataclass(frozen=True, slots=True)
class Focus:
    """What a life is about. `blows`: names of those that may fall, or all; `frozen_leases`: how
    long; `lost`: the most that gets lost; `past_max`: blocks that were written before."""

    blows: tuple[str, ...] = ()
    frozen_leases: tuple[float, float] = (0.9, 3)
    lost: float = 0.1
    past_max: int = 10
    bounded: float = 0.2
    think_s: tuple[float, ...] = (0.0, 0.1, 0.5)
    lease_ms: tuple[int, ...] = (3_000, 5_000, 8_000)
    skews: tuple[float, ...] = ()
    scales: float = 0.3


ANYTHING = Focus()
CUT_OFFS = Focus(
    blows=("_cut_off",),
    lost=0.0,
    past_max=150,
    think_s=(0.2,),
    lease_ms=(3_000,),
    skews=(-1, 1),
    scales=0.0,
)
WAKING = Focus(
    blows=("_freeze",),
    frozen_leases=(0.9, 1.2),
    past_max=150,
    think_s=(0.05,),
    lease_ms=(3_000,),
    scales=0.0,
)
LEAVING = Focus(blows=("_leave", "_throw"), lost=0.5, past_max=60, think_s=(0.05,))
BOUNDED = Focus(bounded=1.0, past_max=30)


def random_groups(seed: int, focus: Focus = ANYTHING) -> Mapping[str, int]:
    """One group of this seed; what it counted. Raises AssertionError when a promise is broken."""
    rng = seeded(seed)
    with (
        patch.object(member, "COMPACTED_BYTES", rng.choice((1_000, 20_000))),
        patch.object(balance, "LAG_UNIT_BYTES", rng.choice((20, 16_000_000))),
    ):
        try:
            return run_virtual(_live_through(rng, focus))
        except BaseExceptionGroup as failed:
            raise _told(failed) from failed


async def _live_through(rng: Random, focus: Focus) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    streams = streams_of(rng, counts, rng.choice((1, 1, 2)))
    is_bounded = rng.random() < focus.bounded
    written = 0
    for stream in streams:
        written = _give_past(stream, rng, written, focus)
    config = config_of(
        streams,
        lease_ms=rng.choice(focus.lease_ms),
        automatic_checkpoint_ms=rng.choice((0, 0, 4_000)),
        release_after_checkpoint=rng.random() < 0.2,
    )
    world = World(rng, streams, config, is_bounded=is_bounded)
    world.counts.update(counts)
    async with asyncio.TaskGroup() as group:
        trouble = Trouble(world, group, focus)
        await trouble.live()
        await trouble.end()
    if world.failures:
        raise _told(world.failures[0])
    world.counts[REPLAYED] += world.referee.replayed
    return world.counts


def _told(failure: BaseException) -> AssertionError:
    """What has failed first in a process, or elsewhere."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, AssertionError):
        return failure
    told = AssertionError(f"something failed that must not: {failure!r}")
    told.__cause__ = failure
    return told


def _give_past(stream: SimStream, rng: Random, written: int, focus: Focus) -> int:
    """What was in the stream before the group → how many events there are by then."""
    for _ in range(rng.randrange(4)):
        stream.scale()
    for _ in range(rng.randrange(focus.past_max)):
        written += stream.write(written)
        if rng.random() < focus.scales:
            stream.scale()
    return written


class Trouble:
    """All that happens to one group."""

    def __init__(self, world: World, group: asyncio.TaskGroup, focus: Focus) -> None:
        self._focus = focus
        self._world = world
        self._group = group
        self._rng = world.rng
        self._wanted = self._rng.randrange(1, 5)
        self._names = [f"r{number}" for number in range(self._wanted + 1)]
        self._is_scaled = self._rng.random() < 0.8 and focus.scales > 0
        self._is_truncated = self._rng.random() < 0.3
        self._blows = [
            blow
            for blow in (
                self._crash, self._freeze, self._pause, self._put_offline, self._leave,
                self._throw, self._lose_log, self._cut_off, self._cut_off, self._reset,
                self._checkpoint, self._checkpoint,
            )
            if (blow.__name__ in focus.blows if focus.blows else self._rng.random() < 0.5)
        ]  # fmt: skip
        self._explicit = self._rng.random() < 0.25
        self._batches = self._rng.random() < 0.3
        if self._rng.random() < 0.6:
            slow, lost = (self._rng.random() ** 2 * worst for worst in (0.3, focus.lost))
            world.log.weather = Weather(slow, lost)

    async def live(self) -> None:
        """From the first reader to the last blow."""
        writers = [self._group.create_task(self._write(stream)) for stream in self._world.streams]
        for _ in range(self._wanted):
            self._start()
        for _ in range(self._rng.randrange(3, 9)):
            await asyncio.sleep(self._rng.random() * self._world.lease_s)
            if self._blows:
                await self._rng.choice(self._blows)()
            while len(self._world.going()) < self._wanted and self._rng.random() < 0.8:
                self._start()
            if self._world.failures:
                break
        for writer in writers:
            await writer

    async def end(self) -> None:
        """Heal, wait for rest, and go."""
        world = self._world
        self._heal()
        is_sealed = self._rng.random() < 0.4
        if is_sealed:
            for stream in world.streams:
                stream.seal()
        bound_s = world.lease_s * REST_LEASES + 30
        keeper = self._group.create_task(self._keep_up())
        unrest = await wait_for(world, bound_s=bound_s)
        if unrest is not None and not world.failures:
            world.failures.append(AssertionError(f"not at rest after {bound_s} s: {unrest}"))
        keeper.cancel()
        if not world.failures and world.log.state.is_complete:
            await self._expect_end()
        await self._go()

    async def _expect_end(self) -> None:
        """All is read, for ever: every application is told."""
        world = self._world
        for _ in range(40):
            if not world.going():
                return
            await asyncio.sleep(0.5)
        still = [each.reader_id for each in world.going()]
        world.failures.append(AssertionError(f"all is read, and {still} still wait"))

    async def _go(self) -> None:
        world = self._world
        await asyncio.sleep(PATIENCE_S[1] + 1)  # what was under way before all was healed
        leaving = world.going()
        for each in leaving:
            each.wish = "leave"
            each.interrupt()
        for _ in range(20):
            if world.failures or not world.going():
                break
            await asyncio.sleep(0.5)
        if not world.failures and world.going():
            world.failures.append(AssertionError("a reader does not leave when it is told to"))
        for _ in range(20):
            if not self._online(leaving):
                break
            await asyncio.sleep(0.5)
        if not world.failures and self._online(leaving):
            world.failures.append(AssertionError("a reader is online that has left"))
        for each in world.readers:
            each.bury()

    def _online(self, readers: list[SimReader]) -> bool:
        state = self._world.log.state
        return any(
            each.session is not None and state.is_online(each.reader_id, each.session.nonce)
            for each in readers
        )

    async def _keep_up(self) -> None:
        """Readers that end by a late blow come again; segments move at checkpoints."""
        world = self._world
        while True:
            await asyncio.sleep(world.lease_s / 2)
            if not world.going() and not world.log.state.is_complete:
                self._start()
            if world.log.state.config.release_after_checkpoint:
                complete = all(each.is_complete for each in world.log.state.checkpoints)
                if complete and world.unrest() is not None:
                    self._begin_checkpoint("silent")

    def _heal(self) -> None:
        world = self._world
        world.is_healed = True
        world.log.weather, world.log.away_until_s = CLEAR, 0.0
        for each in world.readers:
            each.process.thaw()
            each.process.away_until_s = 0.0
        if not world.going():
            self._start()

    # --- what happens by itself ---------------------------------------------------------------

    async def _write(self, stream: SimStream) -> None:
        for _ in range(self._rng.randrange(10, 40)):
            await asyncio.sleep(self._rng.random() * 1.5)
            self._world.write(stream)
            if self._is_scaled and self._rng.random() < 0.12:
                stream.scale()
                self._world.learn()
            if self._is_truncated and self._rng.random() < 0.06:
                stream.truncate()

    def _start(self) -> None:
        taken = {each.reader_id for each in self._world.going()}
        free = [name for name in self._names if name not in taken] or ["another"]
        rng = self._rng
        habits = Habits(
            is_explicit=self._explicit,
            takes_batches=self._batches,
            tells_checkpoints=rng.random() < 0.7,
            cancels=rng.random() < 0.3,
            think_s=rng.choice(self._focus.think_s),
            slow_s=rng.choice((0.0, 0.0, 2 * self._world.lease_s)),
            save_interval_s=rng.choice((0.5, 1.0, 3.0)),
        )
        skew = rng.choice(self._focus.skews or (-1.0, 1.0, rng.uniform(-1, 1)))
        reader = SimReader(self._world, rng.choice(free), habits, skew)
        self._world.readers.append(reader)
        reader.start(self._group)

    # --- blows --------------------------------------------------------------------------------

    def _victim(self) -> SimReader | None:
        going = [each for each in self._world.going() if not each.process.is_frozen]
        return self._rng.choice(going) if going else None

    async def _crash(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.counts[CRASHED] += 1
            victim.process.crash()

    async def _freeze(self) -> None:
        """Beyond the lease, while others go on; it wakes later."""
        if (victim := self._victim()) is not None:
            self._world.counts[FROZEN] += 1
            victim.process.freeze()
            after_s = self._world.lease_s * self._rng.uniform(*self._focus.frozen_leases)
            self._world.loop.call_later(after_s, victim.process.thaw)

    async def _pause(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.counts[PAUSED] += 1
            victim.process.freeze()
            after_s = self._world.lease_s * self._rng.random()
            self._world.loop.call_later(after_s, victim.process.thaw)

    async def _put_offline(self) -> None:
        """Say that a reader is gone: one that is, stands still, or is well."""
        world = self._world
        online = [
            each
            for each in world.readers
            if each.session is not None
            and world.log.state.is_online(each.reader_id, each.session.nonce)
        ]
        if not online:
            return
        world.counts[PUT_OFFLINE] += 1
        victim = self._rng.choice(online)
        session = victim.session
        assert session is not None
        positions: dict[str, Position] = {}
        if victim.process.is_frozen and self._rng.random() < 0.6:
            positions = {
                each.name: max(each.position, world.referee.done_up_to(session, each.name))
                for each in world.log.state.owned_by(victim.reader_id)
            }
        world.referee.put_offline(session)
        world.log.append([u.PutOffline(reader_id=victim.reader_id, positions=positions)])

    async def _leave(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.counts[LEFT] += 1
            victim.wish = "leave"
            victim.interrupt()

    async def _throw(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.counts[THROWN] += 1
            victim.wish = "throw"
            victim.interrupt()

    async def _lose_log(self) -> None:
        world = self._world
        world.counts[AWAY] += 1
        world.log.away_until_s = world.loop.time() + world.lease_s * self._rng.uniform(0.1, 2.5)

    async def _cut_off(self) -> None:
        """It goes on handing out what it has read ahead, and finds out by its lease alone."""
        if (victim := self._victim()) is not None:
            self._world.counts[CUT_OFF] += 1
            for_s = self._world.lease_s * self._rng.uniform(0.3, 3)
            victim.process.cut_off(self._world.loop.time() + for_s)

    async def _reset(self) -> None:
        self._world.counts[RESETS] += 1
        self._world.reset(self._world.restart_positions())

    async def _checkpoint(self) -> None:
        if self._rng.random() < 0.2:
            self._world.counts[CHECKPOINTS_CANCELLED] += 1
            self._world.log.append([u.CheckpointsCancelled()])
        else:
            self._begin_checkpoint(self._rng.choice(("user", "user", "silent")))

    def _begin_checkpoint(self, kind: u.CheckpointKind) -> None:
        self._world.counts[BEGUN] += 1
        name = f"c{self._rng.randrange(4)}"
        if self._world.log.state.checkpoint(name) is not None:
            name = f"c{self._world.log.state.checkpoints_begun}-"
        self._world.log.append([u.CheckpointBegun(name=name, checkpoint=kind)])
