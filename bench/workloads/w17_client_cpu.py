"""W17: what an event costs a program on its own processor: to write, and to read.

One process, 100 B events, one segment; nothing but the client's own processor time counts, all
its threads included. Writing counts until the last acknowledgement. Reading is of what was just
written, which the store and the servers of the other systems still have in memory.
"""

from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.port import (
    NOT_KEPT,
    Label,
    ReadingWay,
    ReadInWays,
    SingleWrites,
    Stream,
    System,
)
from bench.workloads.port import holds_exactly, plain_stream


class WriteCost:
    """`how` is `write_batch`, the fastest way of each system, or `write`, a call for each event."""

    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, how: str, settings: str) -> None:
        self.name = f"W17 {how}"
        self._is_each = how == "write"
        self._settings = settings

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings == self._settings

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(system, case) as stream:
            supply = Supply(
                case, clock, effort.warm_up_s if warm_up else effort.write_s, effort.bytes_max
            )
            started, cpu_before = clock.now(), clock.own_cpu()
            if self._is_each:
                assert isinstance(stream, SingleWrites), "the system has no call for one event"
                await stream.write_each(supply)
            else:
                await stream.write_all(supply)
            seconds, own = clock.now() - started, clock.own_cpu() - cpu_before
            verified = await holds_exactly(stream, case, supply.events)
        return Sample(supply.events, seconds, own, verified)


class ReadCost:
    """`how`: a way of reading that Anabranch has; other systems are read in the one they have."""

    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, how: ReadingWay, settings: frozenset[str]) -> None:
        self.name = f"W17 read {how}"
        self._how = how
        self._settings = settings

    def suits(self, label: Label) -> bool:
        readable = label.durability != NOT_KEPT and label.system != "disk"
        return readable and label.settings in self._settings

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(system, case) as stream:
            supply = Supply(
                case, clock, effort.warm_up_s if warm_up else effort.write_s, effort.bytes_max
            )
            await stream.write_all(supply)
            started, cpu_before = clock.now(), clock.own_cpu()
            read = await _read(stream, self._how)
            seconds, own = clock.now() - started, clock.own_cpu() - cpu_before
            verified = read == supply.events and await holds_exactly(stream, case, supply.events)
        return Sample(read, seconds, own, verified)


async def _read(stream: Stream, how: ReadingWay) -> int:
    """How many events there are."""
    if isinstance(stream, ReadInWays):
        return await stream.read_in(how)
    read = 0
    async for batch in stream.read_back():
        read += len(batch)
    return read
