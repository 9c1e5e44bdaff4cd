"""Stores that take over from each other under random faults, judged by their clients.

    start, create segments ──► clients write and ask, faults ──► heal ──► everything serves again,
                                                                          in bounded time ──► check

Each seed draws the kinds of faults that happen, the sizes of the cluster, and the speeds of the
clocks. In some runs a store has a journal of its own. In *plain* runs the only fault is the death
of one store, and its writers must continue soon.
"""

import asyncio
from collections.abc import Coroutine, Mapping

from kit.failover_clients import (
    Clients,
    Reader,
    Writer,
    create_segment,
    flush_often,
    read_all,
    until_done,
)
from kit.failover_connection import Connection
from kit.failover_faults import disturb, drawn_kinds, heal
from kit.failover_world import World
from kit.rng import Random, seeded

FAULTS_S = 24.0
BEGIN_S_MAX = 60.0
RECOVERY_S_MAX = 60.0
DETECTION_S_MAX = 3.5
"""The silence after which a store is dead, one look of the controller, and the ways of its
writes."""
CONTINUE_S_MAX = 3.0
READ_S_MAX = 30.0
PACES_S = (2.0, 5.0, 12.0)
"""The longest times between two faults."""
CLOCKS = ((1.0,), (0.9, 1.0, 1.1), (0.9, 1.1))


class Story:
    """One run."""

    def __init__(self, rng: Random, world: World, *, calm: bool) -> None:
        self._rng = rng
        self._world = world
        self._clients: Clients = world.clients
        self._clients.calm = calm
        self._segments = world.segments()
        self._begun = False
        self._finished: dict[str, bytes] | None = None
        self._stopping = asyncio.Event()
        self.writers = [
            Writer(self._clients, segment, bytes([number]) * 16)
            for number, segment in enumerate((*self._segments, self._segments[0]), 1)
        ]

    def begin(self) -> None:
        """Wait until everything is open, and start the clients."""
        world = self._world
        assert world.processes.run(world.all_open, BEGIN_S_MAX), "the cluster did not start"
        self._clients.process.start(self._run_clients())
        assert world.processes.run(lambda: self._begun, BEGIN_S_MAX), "no segments"
        world.processes.run_for(2.0)

    async def _run_clients(self) -> None:
        for segment in self._segments:
            await create_segment(self._clients, segment)
        self._begun = True
        tasks = [self._watched(writer.run()) for writer in self.writers]
        tasks += [self._watched(Reader(self._clients, self._segments).run()) for _ in range(3)]
        tasks += [
            self._watched(flush_often(self._clients, segment, container))
            for container, segment in enumerate(self._segments[: self._world.container_count])
        ]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        contents: dict[str, bytes] = {}
        for segment in self._segments:

            async def read(connection: Connection, segment: str = segment) -> None:
                contents[segment] = await read_all(connection, segment, self._world.referee)

            await until_done(self._clients, segment, read)
        self._finished = contents

    def _watched(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """A task whose failure ends the run."""

        def ended(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._world.processes.broken.append(error)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        return task

    def disturb(self, kinds: list[str]) -> None:
        """Let things go wrong for a while, often or one at a time. If more than half of the stores
        are silent together, the controllers wait for them."""
        until_s = self._world.now_s + FAULTS_S
        pace_s = self._rng.choice(PACES_S)
        while self._world.now_s < until_s:
            self._world.processes.run_for(self._rng.random() * pace_s)
            disturb(self._world, kinds)

    def kill_one(self) -> None:
        """Kill one store for good, and require that writers continue in time."""
        world = self._world
        owners = sorted({found.owner for found in world.placements()} & world.stores.keys())
        node = self._rng.choice(owners)
        killed_s = world.now_s
        world.lose_for_good(node)

        def detected() -> bool:
            return all(found.owner != node for found in world.placements())

        assert world.processes.run(detected, DETECTION_S_MAX), "the death was not noticed"
        self._require_progress(CONTINUE_S_MAX)
        world.counts["plain fail-overs"] += 1
        world.counts["milliseconds of plain fail-overs"] += int(1000 * (world.now_s - killed_s))

    def heal(self) -> None:
        """Mend everything."""
        heal(self._world)

    def recover(self) -> None:
        """Heal, and require that everything serves again in bounded time."""
        world = self._world
        self.heal()
        self._clients.calm = True
        world.processes.run_for(5.0)
        world.confirm_losses()
        world.enable_all()
        assert world.processes.run(world.all_open, RECOVERY_S_MAX), (
            f"containers are not open: {world.placements()}"
        )
        self._require_progress(RECOVERY_S_MAX)

    def _require_progress(self, seconds: float) -> None:
        """Every writer hears a new acknowledgement within this time."""
        world, since_s = self._world, self._world.now_s

        def going() -> bool:
            heard = self._clients.acknowledged_s
            return all(heard.get(one.writer_id, -1.0) > since_s for one in self.writers)

        assert world.processes.run(going, seconds), (
            f"writers do not continue: {[(one.segment, one.acknowledged) for one in self.writers]}"
        )

    def check(self) -> None:
        """Stop the clients, read everything and check it."""
        world = self._world
        self._clients.process.deliver(self._stopping.set)
        read = world.processes.run(lambda: self._finished is not None, READ_S_MAX)
        assert read, "the segments cannot be read"
        assert self._finished is not None
        world.referee.check_all(self._finished)
        world.enable_all()


def random_failover(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    rng = seeded(seed)
    plain = seed % 10 == 0
    stores = rng.choice((2, 3, 3, 4))
    journals = frozenset(["node-1"] if not plain and rng.random() < 0.25 else [])
    world = World(
        rng,
        store_count=stores,
        container_count=rng.randint(2, 4),
        rates=CLOCKS[0] if plain else rng.choice(CLOCKS),
        journals=journals,
    )
    world.start()
    try:
        story = Story(rng, world, calm=plain)
        story.begin()
        if plain:
            story.kill_one()
        else:
            story.disturb(drawn_kinds(rng))
        story.recover()
        story.check()
    finally:
        world.processes.end()
    world.counts.update(world.referee.counts)
    world.counts.update(world.services.servers.counts)
    return world.counts
