"""Seeded random lives of streams with transactions, through everything that befalls controllers.

Each seed draws callers of transactions, an application or two with several instances, somebody who
scales, truncates, seals and deletes the streams meanwhile, and the blows of `control_scenario`.
Besides these the timers are lost or away, and stores do what they are asked and die before they
answer. Controllers' clocks differ by as much as they may. In the end everything that was begun has
ended, and the referee reads all streams.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from anabranch.common.contracts import commands
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.eventsourcing import repository
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import fixed
from anabranch.common.model.transaction import CLOCK_SKEW_MS
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.stream import state
from anabranch.controller.domain.stream.commits import OUTCOMES_KEPT, OUTCOMES_PER_CHUNK
from anabranch.controller.workflows import archive_outcomes
from kit.control_callers import REFS, Caller
from kit.control_scenario import Trouble, all_of, come_to_rest
from kit.control_world import World
from kit.fake_timers import InMemoryTimers
from kit.rng import seeded
from kit.sim_controller import CONTAINER_COUNT
from kit.simbus import simulated_readers
from kit.transaction_callers import (
    MIXED,
    USUAL,
    ApplicationInstance,
    Habits,
    Reshaper,
    TransactionCaller,
)
from kit.transaction_clients import Client
from kit.virtual_time import START_MS, VirtualClock, run_virtual

TIMERS_LOST = "times that the timers lost everything"
TIMERS_AWAY = "times that the timers were away"
MUTE = "containers that died before they answered"
COMMITTED, ABORTED, EXPIRED = (
    "transactions committed",
    "transactions aborted",
    "transactions expired",
)
ROLLED, BATCHES, CHUNKS = "streams rolled", "batches", "chunks of outcomes"


def random_transactions(seed: int, habits: Habits = USUAL) -> Mapping[str, int]:
    """One world of this seed; what it counted. Raises AssertionError when a promise is broken."""
    rng = seeded(seed)
    with (
        simulated_readers(),
        patch.object(repository, "SNAPSHOT_EVERY", rng.choice((3, 10, 64))),
        _outcomes_kept(*rng.choice(((2, 2), (0, 3), (OUTCOMES_KEPT, OUTCOMES_PER_CHUNK)))),
    ):
        return run_virtual(_live_through(seed, habits))


def random_carried(seed: int) -> Mapping[str, int]:
    """The same with carried transactions beside the long ones."""
    return random_transactions(seed, MIXED)


@contextmanager
def _outcomes_kept(kept: int, per_chunk: int) -> Iterator[None]:
    """So many stay in the state of a stream, and so many go to a chunk."""
    with (
        patch.object(state, "OUTCOMES_KEPT", kept),
        patch.object(state, "OUTCOMES_PER_CHUNK", per_chunk),
        patch.object(archive_outcomes, "OUTCOMES_PER_CHUNK", per_chunk),
    ):
        yield


async def _live_through(seed: int, habits: Habits) -> Mapping[str, int]:
    rng = seeded(seed)
    loop = asyncio.get_running_loop()

    def a_clock() -> Clock:
        return VirtualClock(loop, START_MS + rng.randrange(CLOCK_SKEW_MS + 1))

    world = World(rng, VirtualClock(loop), a_clock, InMemoryTimers())
    world.trims = habits.carrying > 0.0
    async with asyncio.TaskGroup() as group:
        trouble = TransactionTrouble(world, group)
        refs = rng.sample(REFS, rng.choice((1, 1, 2)))
        think_s = rng.choice((0.3, 1.0, 3.0))
        founder = Caller(world, "f", refs, think_s)
        reshaper = Reshaper(world, "r", refs, rng.choice((1.0, 4.0, 10.0)))
        callers = [
            TransactionCaller(world, f"t{number}", group, refs)
            for number in range(rng.randrange(2, 6))
        ]
        instances = [
            ApplicationInstance(world, f"a{number}", group, refs[:1])
            for number in range(rng.choice((0, 2, 3)))
        ]
        reshaper.habits = habits
        for caller in callers:
            caller.habits = habits
        everybody: list[Caller | Client] = [founder, reshaper, *callers, *instances]
        trouble.begin([one.link for one in everybody])
        await _found(founder)
        blows = group.create_task(trouble.strike())
        await all_of(
            [
                *(one.live(rng.randrange(5, 14), think_s) for one in callers),
                *(one.live("app", rng.randrange(2, 5), think_s) for one in instances),
                reshaper.live(rng.choice((0, 4, 8, 12))),
            ]
        )
        blows.cancel()
        trouble.heal()
        await come_to_rest(world)
    _count(world, refs)
    world.judge()
    return world.counts


async def _found(founder: Caller) -> None:
    """Have the scopes and streams, if all goes well."""
    for ref in founder._refs:
        await founder.send(commands.CreateScope(**founder._scoped(ref)))
        parts = founder._rng.randrange(1, 4)
        await founder.send(commands.CreateStream(**founder._named(ref), config=fixed(parts)))


def _count(world: World, refs: Sequence[StreamRef]) -> None:
    for seen in world.referee.transactions.seen.values():
        if seen.outcome:
            world.counts[COMMITTED if seen.outcome == "commit" else ABORTED] += 1
        if seen.reason == "expired":
            world.counts[EXPIRED] += 1
    world.counts[ROLLED] += world.referee.transactions.rolls
    world.counts[BATCHES] += world.referee.transactions.batches
    streams = (world.stream(stream_events(ref)) for ref in refs)
    world.counts[CHUNKS] += sum(len(stream.outcome_chunks) for stream in streams)


class TransactionTrouble(Trouble):
    """Also what only transactions feel."""

    def __init__(self, world: World, group: asyncio.TaskGroup) -> None:
        super().__init__(world, group)
        more = (self._lose_timers, self._stop_timers, self._mute_containers)
        self._blows += [blow for blow in more if self._rng.random() < 0.6]

    def heal(self) -> None:
        """As in `Trouble`; the timers may have lost everything."""
        super().heal()
        self._timers().away = False

    def _timers(self) -> InMemoryTimers:
        assert self._world.timers is not None
        return self._world.timers

    async def _lose_timers(self) -> None:
        self._timers().forget()
        self._world.counts[TIMERS_LOST] += 1

    async def _stop_timers(self) -> None:
        self._timers().away = True
        self._world.counts[TIMERS_AWAY] += 1
        await self._world.clock.sleep(self._rng.random() * 15)
        self._timers().away = False

    async def _mute_containers(self) -> None:
        mute = set(self._rng.sample(range(CONTAINER_COUNT), self._rng.randrange(1, 5)))
        self._world.segments.mute |= mute
        self._world.counts[MUTE] += len(mute)
        await self._world.clock.sleep(self._rng.random() * 6)
        self._world.segments.mute -= mute
