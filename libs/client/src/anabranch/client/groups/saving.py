"""When a group's reader saves, and how long asking for the next event waits for that.

    asked ──a save is due──► the membership saves ──saved──► the next event is handed out
                                     └──not within an interval──► so it is, while the lease runs

The membership saves in the background, once per interval. An application that works synchronously
in the event loop's thread never lets the background run. Asking for more therefore waits for a due
save. If a reader dies, its unsaved events are at most those since its last ask and in the interval
before.

A group log that does not answer delays the application once, for one interval. From then on every
ask lets the event loop turn once, until a save succeeds.
"""

import asyncio
from math import inf

from anabranch.common.runtime.clock import Clock


class Saving:
    """Times the saves. `asked` wakes the membership; `due_s` is a monotonic time."""

    def __init__(self, clock: Clock, asked: asyncio.Event) -> None:
        self.due_s = inf
        self.is_asked = False
        self._clock = clock
        self._asked = asked
        self._interval_s = inf
        self._is_overdue = False
        self._saved = asyncio.Event()

    def begin(self, interval_s: float) -> None:
        """Start: the membership saves once per interval from now on."""
        self._interval_s = interval_s
        self.due_s = self._clock.monotonic() + interval_s

    def saved(self, begun_s: float) -> None:
        """Note that the group's log has all progress as of `begun_s`."""
        self.due_s = begun_s + self._interval_s
        self._is_overdue = False
        self._saved.set()

    def end(self) -> None:
        """Note that the membership saves no more."""
        self.due_s = inf
        self._saved.set()

    async def wait(self) -> None:
        """If a save is due, wait for it, at most one interval."""
        if self._clock.monotonic() < self.due_s:
            return
        if self._is_overdue:
            await self._clock.sleep(0)
            return
        self.is_asked = True
        self._asked.set()
        self._saved.clear()
        try:
            async with asyncio.timeout(self._interval_s):
                await self._saved.wait()
        except TimeoutError:
            self._is_overdue = True
