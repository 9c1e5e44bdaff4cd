"""Works for a view as one reader of its group: rounds of blocks, until the group ends.

    next_batch, next_batch_nowait ──► blocks ──divided──► partitions ──save──► ack ──► …

The reader acknowledges a round when every partition has saved its part. The group's position
therefore never gets ahead of the rows. If a session ends early, the next one skips the events that
the rows reflect already.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.reading.events import EventBatch
from anabranch.client.views.partition import PartitionView
from anabranch.client.views.ports import ViewReader, ViewTable
from anabranch.client.views.rounds import Recipe, divided
from anabranch.client.views.saving import save
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock

E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")

CHECK_S = 0.1
"""How often a session looks whether it has reached its goal."""
ROUND_SIZE_BYTES = 4 * 1024 * 1024
"""About the stored size of a round's blocks."""
Reached = Callable[[], Awaitable[bool]]


class ViewSession(Generic[E, K, V]):
    """One membership. `new_partition` makes the view of a partition, which lives as long."""

    def __init__(
        self,
        reader: ViewReader,
        table: ViewTable[K],
        recipe: Recipe[E, K, V],
        *,
        new_partition: Callable[[int], PartitionView[E, V]],
        new_backoff: Callable[[], Backoff],
        clock: Clock,
        round_events: int,
    ) -> None:
        self._reader = reader
        self._table = table
        self._recipe = recipe
        self._new_partition = new_partition
        self._new_backoff = new_backoff
        self._clock = clock
        self._round_events = round_events
        self._partitions: dict[int, PartitionView[E, V]] = {}

    async def run(self, reached: Reached | None = None) -> None:
        """Perform rounds until the group has nothing left for ever, or `reached` says so.

        Raises the errors of the reader, of `save`, and of the recipe's functions.
        """
        checked_s = self._clock.monotonic()
        while True:
            if reached is not None and self._clock.monotonic() - checked_s >= CHECK_S:
                if await reached():
                    return
                checked_s = self._clock.monotonic()
            try:
                async with asyncio.timeout(None if reached is None else CHECK_S):
                    first = await self._reader.next_batch()
            except TimeoutError:
                continue
            if first is None:
                return
            batches, failure = self._with_more(first)
            await self._round(batches)
            if failure is not None:
                raise failure

    def _with_more(self, first: EventBatch) -> tuple[list[EventBatch], AnabranchError | None]:
        """The block, and those that were read ahead, as far as they fit into a round; and the error
        that comes after them."""
        batches, count, size = [first], len(first), first.size
        while count < self._round_events and size < ROUND_SIZE_BYTES:
            try:
                batch = self._reader.next_batch_nowait()
            except AnabranchError as failure:
                return batches, failure
            if batch is None:
                break
            batches.append(batch)
            count, size = count + len(batch), size + batch.size
        return batches, None

    async def _round(self, batches: list[EventBatch]) -> None:
        partitions: list[PartitionView[E, V]] = []
        for index, own in divided(batches, self._recipe, self._table).items():
            if index not in self._partitions:
                self._partitions[index] = self._new_partition(index)
            partitions.append(self._partitions[index])
            partitions[-1].begin(own)
        await save(partitions, self._table, self._clock, self._new_backoff)
        self._reader.ack()
