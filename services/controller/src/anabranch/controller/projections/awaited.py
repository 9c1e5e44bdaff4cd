"""Those who wait until a growing number is reached; each is woken once, when it is."""

import asyncio
import heapq
from itertools import count


class Awaited:
    """Owns who waits for which number; whoever gives up stays until his number comes."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turns = count()

    async def reach(self, number: int) -> None:
        """Until `reached` is told of that number, or of a higher one."""
        done = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._turns), done))
        await done

    def reached(self, number: int) -> None:
        """Wake all who wait for it, or for less."""
        while self._waiting and self._waiting[0][0] <= number:
            _, _, done = heapq.heappop(self._waiting)
            if not done.done():
                done.set_result(None)
