"""W2: as W1 with a key for every event, into 16 segments; `× W1`: against one segment, no keys.

Both in every round, one after the other on the same servers. The pool has 1,000 events, and event i
has key i. A segment of Kafka is a partition.
"""

from bench.case import Case, Effort, Multiset, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch
from bench.systems.kafka.system import LABELS, Kafka
from bench.systems.port import Label, Stream, System
from bench.workloads.port import Meter
from bench.workloads.w1_max_write import MaxWrite

SEGMENTS = 16


class KeyedWrite:
    name = "W2"
    event_bytes: tuple[int, ...] = (100, 1_024)

    def __init__(self) -> None:
        self._plain = MaxWrite()

    def suits(self, label: Label) -> bool:
        ours = label.system == "anabranch" and label.settings.startswith("flush")
        return ours or label in LABELS

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch | Kafka), "the system has no segments or partitions"
        plain = await self._plain.measure(system, case, effort, clock, warm_up=warm_up)
        keys = [f"key-{index}" for index in range(len(case.events))]
        async with system.stream(case, SEGMENTS) as stream:
            seconds_max = effort.warm_up_s if warm_up else effort.write_s
            meter = Meter(system, clock)
            supply = Supply(case, clock, seconds_max, effort.bytes_max)
            await stream.write_all_keyed(supply, keys)
            seconds, cpu_seconds = meter.read()
            verified = await holds_in_any_order(stream, case, supply.batches)
        ratio = supply.events / seconds / (plain.events / plain.seconds)
        verified = verified and plain.verified
        return Sample(supply.events, seconds, cpu_seconds, verified, notes={"× W1": ratio})


async def holds_in_any_order(stream: Stream, case: Case, pools: int) -> bool:
    """Whether the system holds the pool so many times, in any order, and no more."""
    expected, found = Multiset(), Multiset()
    for _ in range(pools):
        expected.add(case.events)
    async for batch in stream.read_back():
        found.add(batch)
    return found == expected
