"""W19: how long 64 segments take to be shared evenly when seven readers join the one that has all.

A keyed writer writes all the while, so segments change hands with events under way. The clock runs
from the moment at which the seven are opened until the group's state gives each of the eight its
eighth. Afterwards everything must have been processed exactly once.
"""

import asyncio
from itertools import count

from anabranch.client import Client, GroupStream, ReaderGroup, ReaderGroupConfig
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System
from bench.workloads.port import Meter

SEGMENTS = 64
READERS = 8
KEYS = tuple(f"key-{number}" for number in range(1_000))
EVENTS_PER_S = 5_000
TICK_SECONDS = 0.01
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 60.0


class Rebalance:
    name = "W19"
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._numbers = count(1)

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings == self._settings

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002 - the events are their own numbers
        effort: Effort,  # noqa: ARG002 - it ends when all have their shares
        clock: Stopwatch,
        *,
        warm_up: bool,  # noqa: ARG002
    ) -> Sample:
        assert isinstance(system, Anabranch), "nobody else has reader groups"
        client, group_name = system.client, f"bench/w19-{next(self._numbers)}"
        async with system.named_stream(SEGMENTS) as stream:
            config = ReaderGroupConfig((GroupStream(stream),))
            await client.reader_groups.create(group_name, config)
            run = _Run(client, stream, client.reader_group(group_name), clock)
            meter = Meter(system, clock)
            shared_s = await run.perform()
            _, cpu_seconds = meter.read()
            await client.reader_groups.delete(group_name)
        notes = {"seconds": shared_s, "duplicates": float(len(run.seen) - len(set(run.seen)))}
        return Sample(run.sent, shared_s, cpu_seconds, run.is_right, notes=notes)


class _Run:
    """A writer, and readers of one group: first one, then all of them."""

    def __init__(self, client: Client, stream: str, group: ReaderGroup, clock: Stopwatch) -> None:
        self._client = client
        self._stream = stream
        self._group = group
        self._clock = clock
        self._stopping = False
        self.sent = 0
        self.seen: list[bytes] = []

    @property
    def is_right(self) -> bool:
        return len(self.seen) == self.sent == len(set(self.seen))

    async def perform(self) -> float:
        """Seconds until all have their shares."""
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write())
            readers = [tasks.create_task(self._read("reader-0"))]
            await self._until_shared_among(1)
            started = self._clock.now()
            readers += [
                tasks.create_task(self._read(f"reader-{number}")) for number in range(1, READERS)
            ]
            await self._until_shared_among(READERS)
            taken_s = self._clock.now() - started
            self._stopping = True
            await writing
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(self.seen) < self.sent:  # noqa: ASYNC110  several tasks work on it
                    await asyncio.sleep(TICK_SECONDS)
            for reading in readers:
                reading.cancel()
        return taken_s

    async def _write(self) -> None:
        started = self._clock.now()
        async with self._client.writer(self._stream) as writer:
            while not self._stopping:
                due = int((self._clock.now() - started) * EVENTS_PER_S) + 1
                for number in range(self.sent, due):
                    writer.write(str(number), KEYS[number % len(KEYS)])
                self.sent = due
                await asyncio.sleep(TICK_SECONDS)

    async def _read(self, reader_id: str) -> None:
        async with self._group.reader(reader_id) as reader:
            async for event in reader:
                self.seen.append(event.payload)

    async def _until_shared_among(self, count: int) -> None:
        share = SEGMENTS // count
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                shares = [len(has) for has in (await self._group.readers()).values()]
                if shares == [share] * count:
                    return
                await asyncio.sleep(LOOK_SECONDS)
