"""Seeded random lives of a control plane: controllers, callers, and whatever goes wrong.

Each seed draws how many controllers and callers there are, how bad the network is, how far mirrors
lag, and which blows fall: controllers are killed at any await, or stand still and go on when others
have replaced them; the event store restarts; containers are away; buckets change their owners;
snapshots are frequent. Then everything is healed, and all that was accepted must end within a
bounded time; when the last late request has come, the referee looks at what is there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from unittest.mock import patch

from anabranch.common.errors import StreamRewound
from anabranch.common.eventsourcing import repository
from anabranch.common.model.hashing import SHARD_COUNT
from kit.control_callers import REFS, Caller
from kit.control_world import PAUSED, Clocks, World
from kit.rng import Random, seeded
from kit.sim_controller import CONTAINER_COUNT, SimController
from kit.simbus import simulated_readers
from kit.simlink import CLEAR, LATE_S, Blow, Link, Weather
from kit.virtual_time import START_MS, VirtualClock, run_virtual

REST_S = 240.0
"""All that was accepted ends so soon after the last fault: a few deliveries and pauses."""
CLOCKS_APART_MS = 60_000
MOVED = "times that buckets changed their owners"
CONTAINERS_AWAY = "containers away"


def random_control(seed: int, careless: float = 0.0) -> Mapping[str, int]:
    """One world of this seed; what it counted. Raises AssertionError when a promise is broken.

    `careless`: the event store is a cluster, and stores conflicting messages so often.
    """
    often = seeded(seed).choice((3, 10, 64))
    with simulated_readers(), patch.object(repository, "SNAPSHOT_EVERY", often):
        return run_virtual(_live_through(seed, careless))


async def _live_through(seed: int, careless: float) -> Mapping[str, int]:
    rng = seeded(seed)
    loop = asyncio.get_running_loop()
    world = World(rng, VirtualClock(loop), _clocks(seeded(seed), loop))
    world.server.is_clustered, world.server.careless = careless > 0, careless
    async with asyncio.TaskGroup() as group:
        trouble = Trouble(world, group)
        refs = rng.sample(REFS, rng.randrange(1, len(REFS) + 1))
        think_s = rng.choice((0.3, 1.0, 3.0))
        callers = [
            Caller(world, f"c{number}", refs, think_s) for number in range(rng.randrange(1, 4))
        ]
        trouble.begin([caller.link for caller in callers])
        blows = group.create_task(trouble.strike())
        await all_of(caller.live(rng.randrange(6, 16)) for caller in callers)
        blows.cancel()
        trouble.heal()
        await come_to_rest(world)
    world.judge()
    return world.counts


def _clocks(rng: Random, loop: asyncio.AbstractEventLoop) -> Clocks:
    """In every other life controllers' wall clocks are up to a minute from the server's."""
    apart_ms = rng.choice((0, CLOCKS_APART_MS))
    return lambda: VirtualClock(loop, START_MS + rng.randrange(-apart_ms, apart_ms + 1))


async def come_to_rest(world: World) -> None:
    """Wait until nothing is left to do and everybody knows it, then end the controllers."""
    rested = await world.wait_until(world.is_at_rest, REST_S)
    if rested and not world.referee.wrong:
        await world.clock.sleep(LATE_S[1] + 10)
        rested = await world.wait_until(world.is_at_rest, REST_S)
    # What was stored last is on its way to the mirrors; who never sees it is judged.
    await world.wait_until(world.is_seen, REST_S)
    if not rested and not world.wrong and not world.referee.wrong:
        world.wrong.append(f"not at rest after {REST_S} s: {_unrest(world)}")
    for controller in list(world.controllers):
        controller.kill()


def rewound_control(seed: int) -> Mapping[str, int]:
    """As `random_control` to its end; then the event store forgets last messages while it restarts.

    Every controller that has folded one of them must end by name.
    """
    with simulated_readers():
        return run_virtual(_be_rewound(seed))


async def _be_rewound(seed: int) -> Mapping[str, int]:
    rng = seeded(seed)
    world = World(rng, VirtualClock(asyncio.get_running_loop()))
    async with asyncio.TaskGroup() as group:
        for _ in range(rng.randrange(1, 4)):
            world.new_controller(group)
        await Caller(world, "c", REFS, 0.3).live(8)
        assert await world.wait_until(world.is_at_rest, REST_S), _unrest(world)
        seen = list(world.controllers)
        used = [shard for shard, log in enumerate(world.server.logs) if log]
        world.expected_failures = (StreamRewound,)
        world.server.on_stored.clear()  # what follows is another history
        world.server.stop()
        world.server.lose_last(rng.choice(used), rng.randrange(1, 4))
        await world.clock.sleep(rng.random() * 5)
        world.server.start()
        await world.clock.sleep(10)
        fresh = world.new_controller(group)
        rested = await world.wait_until(lambda: fresh.is_caught_up, REST_S)
        for controller in list(world.controllers):
            controller.kill()
    assert rested, "a controller that knew nothing of what was lost does not start"
    assert not world.wrong, world.wrong
    silent = [one.number for one in seen if not isinstance(one.failure, StreamRewound)]
    assert not silent, f"controllers {silent} went on with what the event store has lost"
    return world.counts


class Trouble:
    """Everything that goes wrong in one world."""

    def __init__(self, world: World, group: asyncio.TaskGroup) -> None:
        self._world = world
        self._group = group
        self._rng = world.rng
        self._wanted = self._rng.randrange(1, 4)
        self._weather = CLEAR
        if self._rng.random() < 0.8:
            slow, lost, late = (self._rng.random() ** 2 * worst for worst in (0.5, 0.15, 0.15))
            self._weather = Weather(slow, lost, late)
        self._lag_s = self._rng.choice((0.0, 0.05, 3.0))
        self._blows = [
            blow
            for blow in (
                self._kill,
                self._pause,
                self._restart_store,
                self._stop_containers,
                self._move_buckets,
            )
            if self._rng.random() < 0.6
        ]
        self._is_healed = False

    def begin(self, links: Iterable[Link]) -> None:
        """Start the controllers; the links are the callers'."""
        self._world.server.queue.forgets = self._rng.choice((0.0, 0.5))
        for link in links:
            link.weather = self._weather
        for _ in range(self._wanted):
            self._start()

    async def strike(self) -> None:
        """One blow after another, until cancelled."""
        while True:
            await self._world.clock.sleep(self._rng.random() * 8)
            if self._blows:
                await self._rng.choice(self._blows)()

    def heal(self) -> None:
        """From now on everything works, and at least one controller runs."""
        self._is_healed = True
        world = self._world
        world.server.queue.forgets = 0.0
        world.segments.down.clear()
        world.segments.mute.clear()
        if not world.server.is_up:
            world.server.start()
        for controller in world.controllers:
            controller.link.weather, controller.client.lag_s = CLEAR, 0.0
            controller.link.blow = None
            controller.own(frozenset(range(SHARD_COUNT)))
            controller.link.resume()
        self._weather, self._lag_s = CLEAR, 0.0
        if not world.controllers:
            self._start()

    def _start(self) -> None:
        controller = self._world.new_controller(self._group)
        controller.link.weather = self._weather
        controller.client.lag_s = self._lag_s

    async def _kill(self) -> None:
        world = self._world
        if world.controllers and self._rng.random() < 0.2:
            for victim in list(world.controllers):
                world.kill(victim)
        elif world.controllers:
            victim = self._rng.choice(world.controllers)
            await self._strike_at_work(victim, lambda: world.kill(victim))
        await world.clock.sleep(self._rng.random() * 3)
        while len(world.controllers) < self._wanted:
            self._start()

    async def _pause(self) -> None:
        """Let one stand still; who waits for it to be gone starts another."""
        world = self._world
        going = [one for one in world.controllers if not one.link.is_paused]
        if not going:
            return
        paused = self._rng.choice(going)
        await self._strike_at_work(paused, paused.link.pause)
        world.counts[PAUSED] += 1
        if self._rng.random() < 0.5:
            self._start()
        await world.clock.sleep(self._rng.random() * 40)
        paused.link.resume()

    async def _strike_at_work(self, victim: SimController, strike: Callable[[], None]) -> None:
        """At one of its next requests; at the latest after a while."""
        struck = asyncio.Event()

        def once() -> None:
            if self._is_healed or struck.is_set():
                return  # a request that was under way for long may carry the blow until now
            if victim in self._world.controllers:
                struck.set()
                strike()

        call = victim.link.calls + self._rng.randrange(1, 20)
        victim.link.blow = Blow(call, self._rng.choice(("before", "after")), once)
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await struck.wait()
        once()

    async def _restart_store(self) -> None:
        server = self._world.server
        server.stop()
        await self._world.clock.sleep(self._rng.random() * self._rng.choice((2, 6, 40)))
        server.start()

    async def _move_buckets(self) -> None:
        """Who owns what is drawn anew; some buckets have several owners, some none for a while."""
        for controller in self._world.controllers:
            share = self._rng.choice((0.3, 0.7, 1.0))
            owned = (one for one in range(SHARD_COUNT) if self._rng.random() < share)
            controller.own(frozenset(owned))
        self._world.counts[MOVED] += 1

    async def _stop_containers(self) -> None:
        away = set(self._rng.sample(range(CONTAINER_COUNT), self._rng.randrange(1, 5)))
        self._world.segments.down |= away
        self._world.counts[CONTAINERS_AWAY] += len(away)
        await self._world.clock.sleep(self._rng.random() * 10)
        self._world.segments.down -= away


async def all_of(lives: Iterable[Coroutine[None, None, None]]) -> None:
    """Side by side."""
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life)


def _unrest(world: World) -> str:
    queue = "" if world.server.queue.is_empty else "commands wait, "
    failing = [
        f"{failure.subject} {failure.step}: {failure.error!r}"
        for controller in world.controllers
        for failure in controller.runners.failures()
    ]
    known = [
        f"{loaded.state.transaction_id} {loaded.state.status}"
        for controller in world.controllers
        for loaded in controller.mirror.transactions.all()
    ]
    return f"{queue}{failing}{known}"
