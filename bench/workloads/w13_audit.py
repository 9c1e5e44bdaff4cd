"""W13 audit: the pipeline `audit` proves from tier 2 that a stream is whole.

A round writes at least 512 MiB, which the store flushes, and audits the stream once. The time is
the one that the audit's report states: reading, verifying and checking, without the start of the
session. The report must call the stream healthy and count each event.
"""

from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.spark_session import ANSWER_SECONDS_MAX, InSpark
from bench.systems.port import SparkStream, System

BYTES_MIN = 512 * MIB
"""With less, the fixed times of Spark's jobs would dominate."""


class SparkAudit(InSpark):
    """One segment."""

    event_bytes: tuple[int, ...] = (1_024,)
    name = "W13 audit"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        size = effort.bytes_max if warm_up else max(BYTES_MIN, effort.bytes_max)
        async with system.stream(case) as stream:
            assert isinstance(stream, SparkStream), "Spark cannot read the system"
            supply = Supply(case, clock, ANSWER_SECONDS_MAX, size)
            await stream.write_all(supply)
            source = await stream.spark_source("tier2")
            report = await self._spark.ask({"audit": dict(source.options)})
        verified = bool(report["healthy"]) and report["events"] == supply.events
        return Sample(supply.events, float(report["seconds"]), None, verified)
