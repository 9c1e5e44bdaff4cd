"""Time for measurements. The only module of the benchmark that may read the system's clocks."""

import time
from typing import Protocol


class Stopwatch(Protocol):
    def now(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...

    def own_cpu(self) -> float:
        """Seconds of processor time that this process has used."""
        ...


class SystemStopwatch:
    """The machine's best clocks."""

    def now(self) -> float:
        return time.perf_counter()

    def own_cpu(self) -> float:
        return time.process_time()


def utc_text() -> str:
    """Now, to the second, as in 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
