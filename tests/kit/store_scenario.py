"""Seeded random lives of a whole store: work, crash, fail, restart, and look.

Each seed draws the sizes of everything, a handful of lives with random work, and how each life
ends: by itself, at a disk call, or with a failing disk; then the process is killed or the power
is lost, with any subset of the unsynced surviving. Two undisturbed lives at the end must show
everything that was ever acknowledged.
"""

import asyncio
from collections.abc import Coroutine

from anabranch.common.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    Deposed,
    NotFound,
    OutcomeUnknown,
    Retry,
)
from anabranch.common.model.hashing import container_of
from anabranch.common.wire.messages import Stamp
from kit.rng import Random, seeded
from kit.simdisk import KEEP_CONTENTS, KEEP_NAMES, LOSE_ALL, RandomSurvival, SimDisk
from kit.store_check import check_everything
from kit.store_requests import Counter, create, delete, flush, merge, seal, truncate
from kit.store_transactions import Transactions
from kit.store_world import Client, Life, Script, World
from kit.store_writer import WriterScript

DISK_CALLS_AHEAD = 120
EIO, ENOSPC = 5, 28
EXPECTED = (Retry, Conflict, NotFound, OutcomeUnknown, Deposed)
"""What clients of a disturbed store must live with; damage is never expected."""


class Work:
    """What the clients do, over all lives of one world."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._revision = 1
        self._segments = [f"s/{number % 3}/{number}.#epoch.0" for number in range(5)]
        self._writers: list[WriterScript] = []
        self._counters: list[Counter] = []
        self._transactions = Transactions(world, rng)

    def _stamp(self) -> Stamp:
        self._revision += 1
        return Stamp(1, self._revision)

    async def script(self, life: Life) -> None:
        """A life's worth of random actions."""
        try:
            await life.opened()
        except TimeoutError:
            # A disk that failed may keep containers closed until the process is restarted.
            if self._world.journal_disk.faults or self._world.tier_disk.faults:
                return
            raise
        client = Client(life)
        for segment in self._segments:
            if segment not in self._world.created:
                await tolerate(create(client, segment, Stamp(1, 1)))
        for _ in range(self._rng.randrange(5, 40)):
            draw = self._rng.random()
            if draw < 0.2:
                self._act_on_segments(life, client)
            elif draw < 0.4:
                self._act_in_transactions(life, client)
            else:
                self._act(life, client)
            if self._rng.random() < 0.4:
                await asyncio.sleep(self._rng.random() * 2)
        await asyncio.sleep(self._rng.choice((0, 1, 40)))

    def _act(self, life: Life, client: Client) -> None:
        rng = self._rng
        segment = rng.choice(self._segments)
        container = rng.randrange(self._world.container_count)
        draw = rng.random()
        if draw < 0.72:
            life.spawn(tolerate(self._write(client)))
        elif draw < 0.82:
            life.spawn(tolerate(flush(client, container)))
        elif draw < 0.93:
            life.spawn(tolerate(client.read_all(segment)))
        elif draw < 0.97:
            life.spawn(tolerate(seal(client, segment, self._stamp())))
        elif draw < 0.98:
            life.spawn(tolerate(delete(client, segment, self._stamp())))

    def _act_on_segments(self, life: Life, client: Client) -> None:
        """What clients do beside writing and reading."""
        rng = self._rng
        segment = rng.choice(self._segments)
        draw = rng.random()
        if draw < 0.5:
            counter = self._pick_counter(segment)
            life.spawn(tolerate(counter.count(client, Stamp(1, self._revision))))
        elif draw < 0.75:
            life.spawn(tolerate(truncate(client, segment, rng.random(), self._stamp())))
        else:
            life.spawn(tolerate(self._merge(client, segment)))

    def _act_in_transactions(self, life: Life, client: Client) -> None:
        draw, transactions = self._rng.random(), self._transactions
        if draw < 0.3:
            life.spawn(tolerate(transactions.begin(client, self._rng.choice(self._segments))))
        elif draw < 0.7:
            life.spawn(tolerate(transactions.write(client)))
        elif draw < 0.95:
            life.spawn(tolerate(transactions.commit(client, self._stamp())))
        else:
            life.spawn(tolerate(transactions.abort(client)))

    async def _merge(self, client: Client, target: str) -> None:
        """Seal one or two other segments of the target's container, and merge them."""
        count = self._world.container_count
        together = [
            name
            for name in self._segments
            if name != target and container_of(name, count) == container_of(target, count)
        ]
        sources = tuple(self._rng.sample(together, min(len(together), self._rng.randrange(1, 3))))
        for source in sources:
            await tolerate(seal(client, source, self._stamp()))
        if sources:
            await merge(client, target, sources, self._stamp())

    def _pick_counter(self, segment: str) -> Counter:
        if len(self._counters) < 4:
            counter = Counter(segment, self._rng.randbytes(16), appends=self._rng.random() < 0.7)
            self._counters.append(counter)
            self._world.counters.append(counter)
        return self._rng.choice(self._counters)

    async def _write(self, client: Client) -> None:
        writer = self._pick_writer()
        if writer.beginning:
            return
        if (not writer.alive or writer.client is not client) and not await writer.begin(client):
            return
        if self._rng.random() < 0.1:
            writer.resend_from(self._rng.randrange(1, writer.sent + 2))
        for _ in range(self._rng.randrange(1, 4)):
            writer.send(client, self._rng.randrange(1, 5))
            if self._rng.random() < 0.15:  # an impatient client: again, and then once more
                writer.resend_from(writer.sent)
                writer.send(client, 1)
        if self._rng.random() < 0.15:
            await writer.begin(client)

    def _pick_writer(self) -> WriterScript:
        rng = self._rng
        if len(self._writers) < 6:
            segment = rng.choice(self._segments)
            writer = WriterScript(segment, rng.randbytes(16), self._world.history, rng)
            self._writers.append(writer)
            return writer
        return rng.choice(self._writers)


async def tolerate(work: Coroutine[None, None, object]) -> None:
    """Do the work, whatever a disturbed store makes of it."""
    try:
        await work
    except EXPECTED:
        return


def random_store(seed: int) -> None:
    """One world of this seed. Raises when a promise is broken."""
    rng = seeded(seed)
    world = World(
        container_count=rng.randrange(1, 4),
        journal_file_size=rng.choice((2048, 6 * 1024, 64 * 1024)),
        flush_bytes=rng.choice((1024, 8 * 1024, 1024 * 1024)),
        cache_bytes=rng.choice((0, 4 * 1024, 1024 * 1024)),
        segments_in_memory=(1, 2, 3, 100)[seed % 4],
    )
    work = Work(world, rng)
    for _ in range(rng.randrange(2, 6)):
        disturb(world.journal_disk, rng)
        disturb(world.tier_disk, rng)
        live_once(world, work.script)
        end_machine(world, rng)
    for _ in range(2):
        assert world.run(check_everything)
        end_machine(world, rng)


def live_once(world: World, script: Script) -> None:
    """One life; what clients must live with may end it."""
    try:
        world.run(script)
    except Corrupt:
        raise
    except AnabranchError as error:
        if not isinstance(error, EXPECTED):
            raise


def disturb(disk: SimDisk, rng: Random) -> None:
    """Plan a crash or a failure of the disk, or neither."""
    number = disk.calls + rng.randrange(1, DISK_CALLS_AHEAD)
    draw = rng.random()
    if draw < 0.45:
        disk.crash_at(number, rng.choice(("before", "during", "after")))
    elif draw < 0.55:
        disk.fail_at(number, rng.choice((EIO, ENOSPC)))


def end_machine(world: World, rng: Random) -> None:
    """End the process, or the power of its machine."""
    ending = rng.choice((None, LOSE_ALL, KEEP_NAMES, KEEP_CONTENTS, RandomSurvival(rng)))
    if ending is None:
        world.kill()
    else:
        world.power_loss(ending)
