"""The end of a measurement: its time is up, or Ctrl-C was pressed.

The first Ctrl-C ends the load in order, so that the figures so far are shown and the stream of the
measurement is deleted. A second one cancels that too.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from anabranch.common.runtime.clock import Clock

EXIT_INTERRUPTED = 130


class Ending:
    """Over so many seconds after `begin`; None: only by Ctrl-C."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = float("inf") if seconds is None else seconds
        self._ends_at = float("inf")
        self._interrupted = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    def begin(self) -> None:
        """The time runs from now on."""
        self._ends_at = self._clock.monotonic() + self._seconds

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self._interrupted.is_set()

    @property
    def is_over(self) -> bool:
        return self.interrupted or self._clock.monotonic() >= self._ends_at

    def interrupt(self) -> None:
        """End it now."""
        self._interrupted.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until Ctrl-C."""
        try:
            async with asyncio.timeout(seconds):
                await self._interrupted.wait()
        except TimeoutError:
            return

    @asynccontextmanager
    async def cutting_off(self) -> AsyncIterator[None]:
        """Begin, and cancel the rest of the block when it is over; no error leaves the block."""
        self.begin()
        seconds = None if self._seconds == float("inf") else self._seconds
        self._limit = asyncio.timeout(0 if self.interrupted else seconds)
        try:
            async with self._limit:
                yield
        except TimeoutError:
            if not self._limit.expired():
                raise
        finally:
            self._limit = None


@contextmanager
def ended_by_ctrl_c(ending: Ending) -> Iterator[None]:
    """Within the block Ctrl-C ends the measurement, and a second one cancels the present task.

    A command that was cancelled by it raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    task, loop, again = asyncio.current_task(), asyncio.get_running_loop(), False
    assert task is not None

    def pressed() -> None:
        nonlocal again
        if ending.interrupted:
            again = True
            task.cancel()
        ending.interrupt()

    loop.add_signal_handler(signal.SIGINT, pressed)
    try:
        yield
    except asyncio.CancelledError:
        if again:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
