"""A writer's buffer: the bytes in use, and the calls that wait for room."""

import asyncio
from collections.abc import Callable

from anabranch.common.errors import BufferFull, Remedy

LARGER_BUFFER = Remedy(
    "split the event", api="give the writer `WriterSettings(buffer_size_bytes=...)` with more"
)


class Room:
    """A budget of `limit` bytes. `LaneWriter.write` adds to `used` directly."""

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
        """Return `size` bytes to the budget."""
        self.used -= size
        if self.has_room:
            self.wake()

    async def wait(self, check: Callable[[], None]) -> None:
        """Wait until less than half is in use and the refused write has room, or until `check`
        raises.

        A writer that ends calls `wake`, so that `check` runs.
        """
        while not self.has_room:
            check()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        self._refused = 0

    def wake(self) -> None:
        """Let every waiting call check again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def has_room(self) -> bool:
        """Whether `wait` would return at once."""
        return self.used * 2 < self.limit and self.used + self._refused <= self.limit
