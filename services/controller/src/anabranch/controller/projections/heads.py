"""The heads of the shards, read from the event store once for all concurrent callers.

A reading answers only callers that came before it began. Callers that come during a reading share
the next one. So at most one reading per shard is in progress, however many callers there are.
"""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.common.errors import AnabranchError
from anabranch.common.model.hashing import SHARD_COUNT


class SharedHeads:
    """Shares readings. `read` asks the event store for a shard's head; it has a deadline."""

    def __init__(self, read: Callable[[int], Awaitable[int]]) -> None:
        self._shards = [_SharedReading(read, shard) for shard in range(SHARD_COUNT)]

    async def last_sequence(self, shard: int) -> int:
        """At least the shard's last sequence on its leader at the call. Raises Unavailable."""
        return await self._shards[shard].newest()


class _SharedReading:
    """The readings of one shard, numbered from 1 as they begin."""

    def __init__(self, read: Callable[[int], Awaitable[int]], shard: int) -> None:
        self._read = read
        self._shard = shard
        self._begun = 0
        self._is_reading = False
        self._known: tuple[int, int | AnabranchError] = (0, 0)
        """Number and outcome of the last reading that ended."""
        self._ended = asyncio.Event()

    async def newest(self) -> int:
        """The outcome of a reading that begins after this call."""
        asked_at = self._begun
        while self._known[0] <= asked_at:
            if self._is_reading:
                await self._ended.wait()
            else:
                await self._perform()
        outcome = self._known[1]
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome

    async def _perform(self) -> None:
        self._is_reading = True
        self._begun += 1
        number = self._begun
        try:
            self._known = (number, await self._read(self._shard))
        except AnabranchError as error:
            self._known = (number, error)
        finally:
            # A cancelled reading has no outcome; one of the waiting callers then reads instead.
            self._is_reading = False
            self._ended.set()
            self._ended = asyncio.Event()
