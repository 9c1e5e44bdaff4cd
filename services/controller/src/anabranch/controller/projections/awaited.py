"""Waits for a growing number; each waiter is woken once, when the number is reached."""

import asyncio
import heapq
from itertools import count


class Awaited:
    """Owns the waiters by their numbers; a cancelled waiter stays until its number is reached."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turns = count()

    async def reach(self, number: int) -> None:
        """Wait until `reached` is called with this number or a higher one."""
        done = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._turns), done))
        await done

    def reached(self, number: int) -> None:
        """Wake all waiters for this number or a lower one."""
        while self._waiting and self._waiting[0][0] <= number:
            _, _, done = heapq.heappop(self._waiting)
            if not done.done():
                done.set_result(None)
