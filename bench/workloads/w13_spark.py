"""W13: a batch read in Spark, from tier 2 and from the stores, beside files of ready Arrow batches.

The ready batches are what a read gives Spark, without the work of making them: the most that a
Python data source can do. Beside tier 2, Spark also scans the same events in Parquet files by its
own code. One session serves a workload. Every stream is read and checked once before the clock
counts, so that files are in the page cache.

segments  a stream of 1,000 segments: `plan s` to plan its read, and `× 4 segments` its rate against
          that of 4 segments that hold as many events, in the same round
"""

import itertools
from zlib import crc32

from anabranch.common.model.hashing import routing_position
from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.spark_session import ANSWER_SECONDS_MAX, InSpark
from bench.systems.anabranch import Anabranch
from bench.systems.port import SparkStream, System

READS_PER_ROUND = 3
SEGMENTS_FEW = 4
SEGMENTS = 1_000


class SparkRead(InSpark):
    """One segment, as fast as it can be read. `source`: which of a stream's ways into Spark."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(
        self,
        name: str,
        source: str,
        settings_left_out: frozenset[str],
        systems: tuple[str, ...] = ("anabranch", "arrow"),
    ) -> None:
        super().__init__(settings_left_out, systems)
        self.name = name
        self._source = source

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with system.stream(case) as stream:
            assert isinstance(stream, SparkStream), "Spark cannot read the system"
            supply = Supply(case, clock, ANSWER_SECONDS_MAX, effort.bytes_max)
            await stream.write_all(supply)
            source = await stream.spark_source(self._source)
            request = {"format": source.format, "options": dict(source.options), "check": False}
            checked = await self._spark.ask({**request, "check": True})
            reads = 1 if warm_up else READS_PER_ROUND
            timed = [await self._spark.ask(request) for _ in range(reads)]
        expected = sum(map(crc32, case.events)) * supply.batches
        verified = checked == {"events": supply.events, "sum": expected} and all(
            found["bytes"] == supply.events * case.event_bytes for found in timed
        )
        seconds = sum(float(found["seconds"]) for found in timed)
        return Sample(supply.events * reads, seconds, None, verified)


class SegmentsRead(InSpark):
    """1,000 segments beside 4 that hold as many events."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, name: str, source: str, settings_left_out: frozenset[str]) -> None:
        super().__init__(settings_left_out)
        self.name = name
        self._source = source

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "the system has no segments"
        keys = keys_over(len(case.events), SEGMENTS)
        supply = Supply(case, clock, ANSWER_SECONDS_MAX, effort.bytes_max)
        reads = 1 if warm_up else READS_PER_ROUND
        few = many = planning = 0.0
        verified = True
        for segments in (SEGMENTS_FEW, SEGMENTS):
            async with system.stream(case, segments) as stream:
                pools = supply if segments == SEGMENTS_FEW else [case.events] * supply.batches
                await stream.write_all_keyed(pools, keys)
                source = await stream.spark_source(self._source)
                request = {"format": source.format, "options": dict(source.options)}
                checked = await self._spark.ask({**request, "check": True})
                planned = await self._spark.ask({**request, "check": False, "plan": True})
                timed = [await self._spark.ask({**request, "check": False}) for _ in range(reads)]
            expected = sum(map(crc32, case.events)) * supply.batches
            verified &= checked == {"events": supply.events, "sum": expected}
            few, many = many, sum(float(found["seconds"]) for found in timed)
            planning = float(planned["seconds"])
        notes = {"plan s": planning, "× 4 segments": few / many}
        return Sample(supply.events * reads, many, None, verified, notes=notes)


def keys_over(count: int, segments: int) -> list[str]:
    """So many keys, which lie in all of so many segments of equal width if there are enough."""
    found: dict[int, str] = {}
    for number in itertools.count():
        key = f"key-{number}"
        found.setdefault(int(routing_position(key) * segments), key)
        if len(found) == segments:
            break
    keys = [found[place] for place in sorted(found)]
    return [keys[index % segments] for index in range(count)]
