"""W1: how much one writer gets into one segment, each system by its fastest way to write.

The round ends when the time or the bytes are used up and the last event is acknowledged; then
everything is read back and compared.
"""

from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.port import NOT_KEPT, Label, System
from bench.workloads.port import Meter, holds_exactly, plain_stream


class MaxWrite:
    name = "W1"
    event_bytes: tuple[int, ...] = (100, 1_024, 10_240)

    def suits(self, label: Label) -> bool:
        return label.durability != NOT_KEPT

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(system, case) as stream:
            seconds_max = effort.warm_up_s if warm_up else effort.write_s
            meter = Meter(system, clock)
            supply = Supply(case, clock, seconds_max, effort.bytes_max)
            await stream.write_all(supply)
            seconds, cpu_seconds = meter.read()
            verified = await holds_exactly(stream, case, supply.events)
        return Sample(supply.events, seconds, cpu_seconds, verified)
