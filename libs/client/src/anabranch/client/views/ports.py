"""The ports of a view: the table by its partitions, and the group's events block by block."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeVar

from anabranch.client.reading.events import EventBatch
from anabranch.client.tables.lookups import Found
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Outcome

K = TypeVar("K", contravariant=True)


class ViewTable(Protocol[K]):
    """The table of a view: a `StoredTable`. Partitions are named by their index."""

    @property
    def partition_count(self) -> int: ...

    def places(self, keys: Sequence[K]) -> tuple[Sequence[int], Sequence[bytes]]:
        """The partition and the table key of each key. Raises InvalidKey, SerializationFailed."""
        ...

    async def look_up(self, index: int, keys: Sequence[bytes]) -> asyncio.Future[Found]:
        """Ask for the entries of at most `GET_KEYS_MAX` table keys; waits for room alone."""
        ...

    async def update(self, index: int, update: StoredUpdate) -> asyncio.Future[Outcome]:
        """Send the update; waits for room alone. The future raises OutcomeUnknown, among others."""
        ...


class ViewReader(Protocol):
    """The events of the group's segments that this process has: a `GroupReader`."""

    async def next_batch(self) -> EventBatch | None: ...

    def next_batch_nowait(self) -> EventBatch | None: ...

    def ack(self) -> None:
        """Mark every received event as processed."""
        ...
