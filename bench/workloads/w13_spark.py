"""W13: a batch read in Spark, from tier 2 and from the stores, beside files of ready Arrow batches.

The ready batches are what a read gives Spark, without the work of making them: the most that a
Python data source can do. One session serves a workload. Every stream is read and checked once
before the clock counts.

segments  a stream of 1,000 segments: `plan s` to plan its read, and `× 4 segments` its rate against
          that of 4 segments that hold as many events, in the same round
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from anabranch.common.errors import Unavailable
from anabranch.common.model.hashing import routing_position
from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, SparkStream, System

READY_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 300.0
READS_PER_ROUND = 3
SEGMENTS_FEW = 4
SEGMENTS = 1_000
_LINE_BYTES_MAX = 1024 * 1024


class SparkProcess:
    """A Spark session in a process of its own, entered as a context."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.spark_child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, limit=_LINE_BYTES_MAX,
        )  # fmt: skip
        if await self._line(READY_SECONDS_MAX) != "ready":
            raise Unavailable("Spark does not start", remedy="python -m bench.spark_child")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The answer of `bench.spark_child` to one request. Raises Unavailable."""
        process = self._process
        assert process is not None, "the session is not open"
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        line = await self._line(ANSWER_SECONDS_MAX)
        if not line:
            raise Unavailable("Spark ended in the middle of a read", request=str(request))
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    async def _line(self, seconds_max: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds_max):
            return (await self._process.stdout.readline()).decode().strip()


class SparkWorkload:
    """`source`: which of a stream's ways into Spark. To be entered, for its session."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, name: str, source: str, settings_left_out: frozenset[str]) -> None:
        self.name = name
        self._source = source
        self._spark = SparkProcess()
        self._left_out = settings_left_out

    async def __aenter__(self) -> Self:
        await self._spark.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._spark.__aexit__(kind, error, trace)

    def suits(self, label: Label) -> bool:
        return label.system in ("anabranch", "arrow") and label.settings not in self._left_out


class SparkRead(SparkWorkload):
    """One segment, as fast as it can be read."""

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


class SegmentsRead(SparkWorkload):
    """1,000 segments beside 4 that hold as many events."""

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings not in self._left_out

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
