"""When a reader of a group saves, and how long asking for the next event waits for that.

    asked ──a save is due──► the membership saves ──saved──► the next event is handed out
                                     └──not within an interval──► so it is, while the lease runs

The membership saves in the background, once per interval. An application that works synchronously
in the event loop's thread never lets the background run. Asking for more therefore waits for a save
that is due, so a reader that dies has processed and not saved at most what it did since its last
ask and in the interval before that.

A group log that does not answer holds the application up once, for one interval. From then on every
ask lets the event loop turn once, until a save succeeds.
"""

import asyncio
from math import inf

from anabranch.common.runtime.clock import Clock


class Saving:
    """See the module. `asked` wakes the membership; `due_s` is a moment of the monotonic clock."""

    def __init__(self, clock: Clock, asked: asyncio.Event) -> None:
        self.due_s = inf
        self.is_asked = False
        self._clock = clock
        self._asked = asked
        self._interval_s = inf
        self._is_overdue = False
        self._saved = asyncio.Event()

    def begin(self, interval_s: float) -> None:
        """The membership saves that often from now on."""
        self._interval_s = interval_s
        self.due_s = self._clock.monotonic() + interval_s

    def saved(self, begun_s: float) -> None:
        """Everything that was processed at `begun_s` is in the group's log."""
        self.due_s = begun_s + self._interval_s
        self._is_overdue = False
        self._saved.set()

    def end(self) -> None:
        """Nothing will be saved any more."""
        self.due_s = inf
        self._saved.set()

    async def wait(self) -> None:
        """Have what is processed saved if that is due; waits at most one interval."""
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
