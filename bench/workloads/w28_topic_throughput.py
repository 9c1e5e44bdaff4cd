"""W28: a topic of 16 partitions against a stream of 16 segments, in the same round.

plain   records without keys, in batches: `× stream`, what the topic's producer writes of what the
        stream's writer does; `read × stream`, the same of reading all of it back in batches
keyed   the same with a key for each record: 1,000 keys, again and again; the topic hashes them as
        Fluvio does, the stream as Pravega does
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anabranch.cli.perf.load.appends import take
from anabranch.client import TopicProducer
from bench.case import Case, Effort, Multiset, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch, AnabranchStream
from bench.systems.port import Label, System
from bench.workloads.port import Meter
from bench.workloads.w2_keys import holds_in_any_order

PARTITIONS = 16
ONLINE_S_MAX = 60.0
TOPIC = "bench"


class TopicThroughput:
    event_bytes: tuple[int, ...] = (100, 1_024)

    def __init__(self, settings: frozenset[str], *, keyed: bool) -> None:
        self.name = "W28 keyed" if keyed else "W28"
        self._settings = settings
        self._keyed = keyed

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings in self._settings

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "only Anabranch has topics"
        keys = [f"key-{index}" for index in range(len(case.events))] if self._keyed else None
        seconds_max = effort.warm_up_s if warm_up else effort.write_s
        async with system.stream(case, PARTITIONS) as stream:
            supply = Supply(case, clock, seconds_max, effort.bytes_max)
            beside = await _write_stream(system, stream, supply, keys, clock)
            whole = await holds_in_any_order(stream, case, supply.batches)
            read_beside = await _rate_of_reading(stream, supply.events, clock)
        async with _topic(system) as producer:
            supply = Supply(case, clock, seconds_max, effort.bytes_max)
            meter = Meter(system, clock)
            for batch in supply:
                await take(producer, batch, keys)
                await producer.drain()
            await producer.flush()
            seconds, cpu_seconds = meter.read()
            whole = await _holds(system, case, supply.batches) and whole
            began = clock.now()
            async for _ in _records(system):
                pass
            read = supply.events / (clock.now() - began)
        notes = {
            "× stream": supply.events / seconds / beside,
            "read × stream": read / read_beside,
            "read/s": read,
        }
        return Sample(supply.events, seconds, cpu_seconds, whole, notes=notes)


async def _write_stream(
    system: Anabranch,
    stream: AnabranchStream,
    supply: Supply,
    keys: Sequence[str] | None,
    clock: Stopwatch,
) -> float:
    """Events per second."""
    meter = Meter(system, clock)
    if keys is None:
        await stream.write_all(supply)
    else:
        await stream.write_all_keyed(supply, keys)
    seconds, _ = meter.read()
    return supply.events / seconds


async def _rate_of_reading(stream: AnabranchStream, events: int, clock: Stopwatch) -> float:
    began = clock.now()
    async for _ in stream.read_back():
        pass
    return events / (clock.now() - began)


@asynccontextmanager
async def _topic(system: Anabranch) -> AsyncIterator[TopicProducer]:
    topics = system.client.topics
    await topics.create(TOPIC, partitions=PARTITIONS, wait_s=ONLINE_S_MAX)
    async with topics.producer(TOPIC) as producer:
        yield producer
    await topics.delete(TOPIC)


async def _records(system: Anabranch) -> AsyncIterator[Sequence[bytes]]:
    async with system.client.topics.consumer(TOPIC, until_end=True) as consumer:
        async for batch in consumer.batches():
            yield batch.values


async def _holds(system: Anabranch, case: Case, pools: int) -> bool:
    """Whether the topic holds the pool so many times, in any order, and no more."""
    expected, found = Multiset(), Multiset()
    for _ in range(pools):
        expected.add(case.events)
    async for batch in _records(system):
        found.add(batch)
    return found == expected
