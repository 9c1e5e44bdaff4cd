"""W1: how much one writer gets into one segment, each system by its fastest way to write.

The round ends when the time or the bytes are used up and the last event is acknowledged; then
everything is read back and compared. `written/byte`: what the disk was given to write per byte of
payload, after what was accepted has been moved to where it stays.
"""

from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.machine import written_bytes
from bench.systems.port import NOT_KEPT, Label, Settling, Stream, System
from bench.workloads.port import Meter, holds_exactly, plain_stream


class MaxWrite:
    name = "W1"
    event_bytes: tuple[int, ...] = (100, 1_024, 10_240)

    def __init__(self, settings_left_out: frozenset[str] = frozenset()) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.durability != NOT_KEPT and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(system, case) as stream:
            seconds_max = effort.warm_up_s if warm_up else effort.write_s
            written_before = _written(stream)
            meter = Meter(system, clock)
            supply = Supply(case, clock, seconds_max, effort.bytes_max)
            await stream.write_all(supply)
            seconds, cpu_seconds = meter.read()
            notes: dict[str, float] = {}
            if isinstance(stream, Settling):
                await stream.settle()
                size = supply.events * case.event_bytes
                notes["written/byte"] = (_written(stream) - written_before) / size
            verified = await holds_exactly(stream, case, supply.events)
        return Sample(supply.events, seconds, cpu_seconds, verified, notes=notes)


def _written(stream: Stream) -> int:
    return (written_bytes(stream.directory) or 0) if isinstance(stream, Settling) else 0
