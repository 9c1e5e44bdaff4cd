"""A writer's buffer: how much of it is in use, and who waits for room."""

import asyncio
from collections.abc import Callable

from anabranch.common.errors import BufferFull


class Room:
    """At most `limit` bytes are taken. `LaneWriter.write` adds to `used` directly."""

    __slots__ = ("_refused", "_waiters", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._refused = 0
        self._waiters: list[asyncio.Future[None]] = []

    def require(self, cost: int) -> None:
        """Raises BufferFull unless `cost` more bytes fit."""
        if self.used + cost > self.limit:
            self._refused = max(self._refused, cost)
            raise BufferFull("the writer's buffer is full", used=self.used, limit=self.limit)

    def release(self, size: int) -> None:
        """So many bytes are free again."""
        self.used -= size
        if self._has_room():
            self.wake()

    async def wait(self, check: Callable[[], None]) -> None:
        """Until less than half is in use and what was refused has room, or `check` raises.

        Whoever ends the writer calls `wake`, so that `check` is called.
        """
        while not self._has_room():
            check()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        self._refused = 0

    def wake(self) -> None:
        """Let everybody who waits look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _has_room(self) -> bool:
        return self.used * 2 < self.limit and self.used + self._refused <= self.limit
