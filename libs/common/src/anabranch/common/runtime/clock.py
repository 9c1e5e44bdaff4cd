"""Time as a parameter. Only this module may read the system's clocks."""

import asyncio
import time
from typing import Protocol

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Unix time in milliseconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything.

        They include the time for which the machine was suspended, so a lease that expired meanwhile
        has ended. Timeouts and pauses of asyncio follow the loop's own clock, which stands still
        during a suspension, so they end late. A task reads this clock after every wait.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...


def _monotonic() -> float:
    """Read CLOCK_BOOTTIME where it exists (Linux), otherwise the platform's monotonic clock."""
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        """Unix time in nanoseconds, the unit of spans."""
        return time.time_ns()

    def monotonic(self) -> float:
        return _monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
