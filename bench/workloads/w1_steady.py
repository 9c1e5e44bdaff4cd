"""W1 steady: as W1, after the journal has been filled once.

Until then every file of the journal is new, and the first use of its blocks costs the file system
more; afterwards files are used again. How many there are depends on the flushes until then.
`written/byte`: the bytes that the disk had to write per byte of payload, those for tier 2 included.
`longest wait s`: the longest time, of all 3 GiB, in which the writer could take no further batch.
"""

from collections.abc import Iterable, Iterator, Sequence

from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.machine import written_bytes
from bench.systems.anabranch import APART, AnabranchApart, flushing
from bench.systems.port import Label, System
from bench.workloads.port import Meter, holds_exactly

FIRST_BYTES = 2_048 * MIB
MEASURED_BYTES = 1_024 * MIB
FLUSH_BYTES = 64 * MIB


class SteadyWrite:
    name = "W1 steady"
    event_bytes: tuple[int, ...] = (1_024,)

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self,
        system: System,
        case: Case,
        effort: Effort,  # noqa: ARG002
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        first, size = (MIB, MIB) if warm_up else (FIRST_BYTES, MEASURED_BYTES)
        async with system.cluster(flushing(FLUSH_BYTES)) as cluster:
            async with cluster.stream(case) as filler:
                waits: list[float] = []
                filling = Supply(case, clock, float("inf"), first)
                await filler.write_all(_noting(filling, clock, waits))
                await filler.settle()
            async with cluster.stream(case) as stream:
                before = written_bytes(stream.directory) or 0
                supply = Supply(case, clock, float("inf"), size)
                meter = Meter(cluster, clock)
                await stream.write_all(_noting(supply, clock, waits))
                seconds, cpu_seconds = meter.read()
                await stream.settle()
                written = (written_bytes(stream.directory) or 0) - before
                verified = await holds_exactly(stream, case, supply.events)
        notes = {
            "written/byte": written / (supply.events * case.event_bytes),
            "longest wait s": max(waits),
        }
        return Sample(supply.events, seconds, cpu_seconds, verified, notes=notes)


def _noting(
    batches: Iterable[Sequence[bytes]], clock: Stopwatch, waits: list[float]
) -> Iterator[Sequence[bytes]]:
    """The batches; the time from each one to the request for the next one goes into `waits`."""
    for batch in batches:
        begun = clock.now()
        yield batch
        waits.append(clock.now() - begun)
