"""Time as a parameter. The only module that may read the system's clocks."""

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

        They count the time for which the machine was suspended: a lease that ran out meanwhile
        has ended. Time-outs and pauses of asyncio go by the loop's own clock, which stands still
        then, so they come later by as much; who wakes up reads this clock before it goes on.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...


def _monotonic() -> float:
    """By CLOCK_BOOTTIME where there is one (Linux); else by what the platform has."""
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        """Unix time in nanoseconds, as spans have it."""
        return time.time_ns()

    def monotonic(self) -> float:
        return _monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
