"""W13: a batch read in Spark, from tier 2 and from the stores, beside files of ready Arrow batches.

The ready batches are what a read gives Spark, without the work of making them: the most that a
Python data source can do. One session serves a workload. Every stream is read and checked once
before the clock counts.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from anabranch.common.errors import Unavailable
from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.port import Label, SparkStream, System

READY_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 300.0
READS_PER_ROUND = 3
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


class SparkRead:
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
