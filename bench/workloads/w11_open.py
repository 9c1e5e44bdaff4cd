"""W11: from `kill -9` of a store with 256 MB in its journal to the next acknowledgement.

Nothing was moved to tier 2, so all of it is read back, verified and indexed before the store
serves. The time includes noticing the death, a new process, its imports, and the client finding it.
"""

import os
import signal

from bench.case import Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.systems.anabranch import APART, NOT_FLUSHING, AnabranchApart
from bench.systems.port import Label, System
from bench.workloads.port import Meter, holds_exactly

UNAPPLIED_BYTES = 256_000_000


class OpenAfterKill:
    name = "W11"
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
        size = case.pool_bytes if warm_up else UNAPPLIED_BYTES
        async with system.cluster(NOT_FLUSHING) as cluster, cluster.stream(case) as stream:
            supply = Supply(case, clock, float("inf"), size)
            await stream.write_all(supply)
            meter = Meter(system, clock)
            for pid in cluster.pids_of("segstore"):
                os.kill(pid, signal.SIGKILL)
            await stream.append(case.events[0])
            seconds, _ = meter.read()
            verified = await holds_exactly(stream, case, supply.events + 1)
        return Sample(supply.events, seconds, None, verified, notes={"seconds": seconds})
