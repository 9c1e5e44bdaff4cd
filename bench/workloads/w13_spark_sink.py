"""W13 sink: batch writes of Spark into a stream, exactly once.

Spark makes the rows itself while the clock runs. A round repeats the write under another key; what
the stream holds at its end is read back in Spark, and count and checksum must agree.
"""

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.spark_session import InSpark
from bench.systems.port import SparkStream, System

WRITES_PER_ROUND = 3
EVENTS_MAX = 4_000_000


class SparkWrite(InSpark):
    """One segment."""

    event_bytes: tuple[int, ...] = (100,)
    name = "W13 sink"

    async def measure(
        self,
        system: System,
        case: Case,
        effort: Effort,
        clock: Stopwatch,  # noqa: ARG002  # the session's process has the clock
        *,
        warm_up: bool,
    ) -> Sample:
        writes = 1 if warm_up else WRITES_PER_ROUND
        count = min(EVENTS_MAX, effort.bytes_max // case.event_bytes // writes)
        async with system.stream(case) as stream:
            assert isinstance(stream, SparkStream), "Spark cannot write to the system"
            source = await stream.spark_source("stores")
            request = {"format": source.format, "options": dict(source.options)}
            write = {**request, "write": count, "event_bytes": case.event_bytes}
            written = [await self._spark.ask({**write, "check": False}) for _ in range(writes)]
            expected = await self._spark.ask({**write, "check": True})
            found = await self._spark.ask({**request, "check": True})
        verified = found == {"events": count * writes, "sum": int(expected["sum"]) * writes}
        seconds = sum(float(one["seconds"]) for one in written)
        return Sample(count * writes, seconds, None, verified)
