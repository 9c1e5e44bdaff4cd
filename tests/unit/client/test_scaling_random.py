"""Random lives of a stream: splits, merges and chains of them, lost packets, restarts of the store.

Two writers write, a reader stops and goes on from its positions whenever chance wants it; in the
end each event was read once, and those of a key in the order of their writing. A failure names the
seed, which is a parameter.
"""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from anabranch.client import EventReader
from anabranch.common.errors import BufferFull
from anabranch.common.wire.messages import Append, Message
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.fake_segstore import Direction, Fault
from kit.history import KeyedHistory
from kit.rng import Random, seeded
from kit.scaling import assert_covers
from kit.thorough import some_of

SEGMENTS_MAX = 6
BURSTS = 25
SCALES_MIN = 2


@dataclass
class Life:
    """One seed's run."""

    bench: Bench
    rng: Random
    history: KeyedHistory = field(default_factory=KeyedHistory)
    read: list[tuple[str | None, bytes]] = field(default_factory=list)
    stages: Iterator[str] = field(default_factory=lambda: iter(()))
    scales: int = 0
    lossy: bool = True

    def at_packet(self, _: Direction, message: Message) -> Fault | None:
        """Anything may happen between two packets; appends are what is lost most."""
        if self.rng.random() < 0.15 and next(self.stages, None) is None:
            self.scales += 1
            self.stages = self.any_scale()
        loss = 0.05 if isinstance(message, Append) else 0.01
        return Fault.DROP if self.lossy and self.rng.random() < loss else None

    def any_scale(self) -> Iterator[str]:
        """Some of the current segments → as few or many, with bounds of chance."""
        current = self.bench.stream.current
        first = self.rng.randrange(len(current))
        last = self.rng.randrange(first, len(current))
        start, end = current[first].keys.start, current[last].keys.end
        room = SEGMENTS_MAX - len(current) + last - first
        inner = {self.rng.uniform(start, end) for _ in range(self.rng.randint(0, max(0, room)))}
        bounds = [start, *sorted(inner - {start, end}), end]
        ranges = list(itertools.pairwise(bounds))
        return self.bench.scaling(range(first, last + 1), ranges)

    async def write(self, name: str) -> None:
        """Bursts of one writer, some keyless, some awaited."""
        rng = self.rng
        settings = writer_settings(
            block_size_bytes=rng.choice([60, 200, 2000]),
            blocks_in_flight_max=rng.randint(1, 5),
            buffer_size_bytes=rng.choice([600, 5000]),
            **({"compression": "zstd"} if rng.random() < 0.3 else {}),
        )
        number = 0
        async with self.bench.client.writer(STREAM, settings) as writer:
            for _ in range(BURSTS):
                for _ in range(rng.randint(1, 12)):
                    key = rng.choice([None, *(f"{name} {n}" for n in range(7))])
                    payload = b"%s %d" % (name.encode(), number)
                    try:
                        writer.write(payload, key)
                    except BufferFull:
                        await writer.drain()
                    else:
                        self.history.wrote(payload, key)
                        number += 1
                await rng.choice([writer.flush, writer.drain, _turn])()
                if name == "left" and rng.random() < 0.06:  # one at a time
                    await self.bench.store.restart()

    async def read_all(self) -> None:
        """From the head to the end of the stream, by several readers one after the other."""
        positions: dict[str, tuple[int, int]] | None = None
        settings = reader_settings(wait_ms=5, read_size_bytes=self.rng.choice([100, 1000]))
        while True:
            start = "head" if positions is None else positions
            async with self.bench.client.reader(STREAM, start, settings=settings) as reader:  # type: ignore[arg-type]
                if await self._read_some(reader):
                    return
                positions = dict(reader.positions())

    async def _read_some(self, reader: EventReader) -> bool:
        """→ whether the stream has ended."""
        for _ in range(self.rng.randint(1, 60)):
            event = await anext(reader, None)
            if event is None:
                return True
            self.read.append((event.key, event.payload))
            assert_covers(self.bench, list(reader.positions()))
        return False


async def _turn() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("seed", some_of(range(12), 3))
async def test_a_random_life_loses_doubles_and_disorders_nothing(seed: int) -> None:
    rng = seeded(seed)
    async with bench(rng.randint(1, 3)) as b:
        life = Life(b, rng)
        b.store.fault = life.at_packet
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(life.read_all())
            async with asyncio.TaskGroup() as writing:
                for name in ("left", "right"):
                    writing.create_task(life.write(name))
            life.lossy = False
            b.store.fault = lambda _, __: None
            for _ in life.stages:
                pass
            b.seal()
            async with asyncio.timeout(20):
                await reading
        life.history.check(life.read)
        assert life.scales >= SCALES_MIN
