"""Seeded random lives of stores with table segments, which move between two of them.

Each seed draws the sizes of everything, a handful of lives with clients that lose answers, and how
each life ends. Between lives the indexes are deleted, damaged, or replaced by older ones and those
of another store. `table_referee.py` judges what the clients are told. Two undisturbed lives at the
end must show everything.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace

from anabranch.common.errors import AnabranchError, Retry, SegmentTruncated
from anabranch.common.wire.messages import CreateSegment, DeleteSegment, SealSegment, Stamp
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from kit.moving_container import MovingContainer
from kit.rng import seeded
from kit.simdisk import SimDisk
from kit.store_requests import flush
from kit.store_scenario import disturb, end_machine, live_once
from kit.store_world import NODE, Life
from kit.table_clients import TableClient
from kit.table_world import SMALL, TableCaller, TableWorld
from kit.two_stores import OTHER

TRIES_MAX = 300
TABLES = tuple(f"s/_TABLEt/{number}.#epoch.0" for number in range(3))


class TableWork:
    """What happens to the tables, over all lives. `worlds`: the two stores."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = seeded(seed)
        first = TableWorld(
            pace=seed,
            journal_file_size=rng.choice((2048, 6 * 1024, 64 * 1024)),
            flush_bytes=rng.choice((1024, 8 * 1024, 1024 * 1024)),
            cache_bytes=rng.choice((0, 4 * 1024, 1024 * 1024)),
            segments_in_memory=(1, 2, 3, 100)[seed % 4],
            limits_of_tables=replace(
                SMALL,
                unindexed_max=rng.choice((1500, 20_000, 20_000)),
                hot_size_max=rng.choice((0, 3000, 1 << 20)),
                live_share=rng.choice((0.3, 0.8, 0.9)),
            ),
        )
        second = replace(
            first, node=OTHER, journal_disk=SimDisk(), indexes=MemoryIndexes(), older={}, lives=1000
        )
        self.worlds = {NODE: first, OTHER: second}
        self.moving = MovingContainer(first.objects)
        self.referee = first.referee
        ttl_ms = rng.choice((0, 0, 3000, 20_000))
        self.clients = [
            TableClient(first, bytes([65 + number]) * 16, seeded(seed * 10 + number), ttl_ms)
            for number in range(rng.randrange(2, 5))
        ]
        self._revision = 1
        self.checked = 0
        """How often everything was read."""

    def owner(self) -> TableWorld:
        """The store that the container is placed on."""
        return self.worlds[self.moving.owner()]

    # --- lives --------------------------------------------------------------------------------

    async def working_life(self, life: Life) -> None:
        """Random requests; sometimes the container leaves at the end."""
        if not await self.moving.until_open_or_left(life):
            return
        for segment in TABLES:
            if segment not in life.world.created:
                await _tolerate(self._create(TableCaller(life), segment))
        for _ in range(self.rng.randrange(5, 60)):
            for _ in range(self.rng.choice((1, 1, 1, 1, 12))):
                self._act(life)
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.choice((0.0, 0.002, 0.05, 1.0)))
        if self.rng.random() < 0.3:
            await self.moving.ask_to_leave(life)
            self.referee.counts["moves of tables"] += 1
            await self.moving.until_left(life)
        await asyncio.sleep(self.rng.choice((0, 1, 40)))

    def _act(self, life: Life) -> None:
        rng, caller = self.rng, TableCaller(life)
        client, segment = rng.choice(self.clients), rng.choice(TABLES)
        draw = rng.random()
        if draw < 0.6:
            life.spawn(_tolerate(client.update(life, caller, segment)))
        elif draw < 0.75:
            life.spawn(_tolerate(client.get(life, caller, segment)))
        elif draw < 0.87:
            life.spawn(_tolerate(client.scan(life, caller, segment)))
        elif draw < 0.9:
            life.spawn(_tolerate(client.describe(life, caller, segment)))
        elif draw < 0.96:
            life.spawn(_tolerate(flush(caller, 0)))
        elif draw < 0.97:
            assert isinstance(life.world, TableWorld)
            if life.world.flip_a_bit(rng):
                self.referee.counts["flipped bits in indexes"] += 1
        elif draw < 0.972:
            life.spawn(_tolerate(self._end(caller, SealSegment, segment)))
        elif draw < 0.9725:
            life.spawn(_tolerate(self._end(caller, DeleteSegment, segment)))

    async def _create(self, caller: TableCaller, segment: str) -> None:
        await caller.control(CreateSegment(segment=segment, stamp=Stamp(1, 1)))
        for world in self.worlds.values():
            world.created.add(segment)

    async def _end(
        self, caller: TableCaller, kind: type[SealSegment | DeleteSegment], segment: str
    ) -> None:
        self._revision += 1
        await caller.control(kind(segment=segment, stamp=Stamp(1, self._revision)))

    async def last_life(self, life: Life) -> None:
        """Everything is there: each table is read in whole, and by key. If the container is to
        leave, it leaves, and nothing is read."""
        found = await self.moving.placement()
        if not await self.moving.until_open_or_left(life) or (found is not None and found.target):
            while not await self.moving.has_left(life):
                await life.clock.sleep(0.2)
            return
        await check_tables(life)
        self.checked += 1


async def check_tables(life: Life) -> None:
    """Read everything in all tables, and their logs; the referee knows what must be there."""
    assert isinstance(life.world, TableWorld)
    client, caller = TableClient(life.world, b"a reader of 16 B", seeded(1), 0), TableCaller(life)
    for segment in sorted(life.world.referee.living):
        tries = 0
        while not await _is_right(life, caller, segment, client):
            tries += 1
            assert tries < TRIES_MAX, f"{segment} cannot be read"
            await life.clock.sleep(1.0)


async def _is_right(life: Life, caller: TableCaller, segment: str, client: TableClient) -> bool:
    """Whether the table could be read: its index may first have to be built anew, and a compaction
    may truncate its log meanwhile."""
    try:
        await _check_table(life, caller, segment, client)
    except (Retry, SegmentTruncated):
        return False
    return True


async def _check_table(life: Life, caller: TableCaller, segment: str, client: TableClient) -> None:
    for _ in range(3):
        await client.get(life, caller, segment)
        await client.scan(life, caller, segment)
    await client.describe(life, caller, segment)
    assert isinstance(life.world, TableWorld)
    log = life.world.referee.living[segment]
    start, length = log.start, log.length
    content, _ = await caller.read_all(segment, start)
    expected = b"".join(block.data for block in log.blocks if block.offset >= start)
    assert start + len(content) >= length, f"{segment}: the log ends too early"
    assert expected.startswith(content), f"{segment}: the log from {start} on differs"


async def _tolerate(work: Coroutine[None, None, object]) -> None:
    """Do the work, whatever a store makes of it that is disturbed or loses its container."""
    with suppress(AnabranchError):
        await work


def random_tables(seed: int) -> Mapping[str, int]:
    """Two stores of this seed. Raises when a promise is broken; returns what was counted."""
    work = TableWork(seed)
    rng = work.rng
    for _ in range(rng.randrange(3, 8)):
        world = work.owner()
        disturb(world.journal_disk, rng)
        disturb(world.tier_disk, rng)
        world.ends_hard = rng.random() < 0.7
        live_once(world, work.working_life)
        end_machine(world, rng)
        for each, other in ((world, _other(work, world)), (_other(work, world), world)):
            hurt = each.hurt_index(rng, other)
            if hurt:
                work.referee.counts[hurt] += 1
    while work.checked < 2:
        world = work.owner()
        assert world.run(work.last_life)
        end_machine(world, rng)
    return work.referee.counts


def _other(work: TableWork, world: TableWorld) -> TableWorld:
    return next(each for each in work.worlds.values() if each is not world)
