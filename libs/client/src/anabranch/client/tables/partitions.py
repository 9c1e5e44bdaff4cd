"""The partitions of an open table: their writers and look-ups, which begin when they are used."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from anabranch.client.tables.lookups import KEY_OVERHEAD_BYTES, Found, LookUp, PartitionLookups
from anabranch.client.tables.partition_writer import PartitionWriter
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.units import UNIT_SIZE_BYTES_MAX, Outcome, Unit
from anabranch.client.writing.room import Room
from anabranch.common.contracts.tables import Partition
from anabranch.common.errors import BufferFull, Closed, InvalidRequest, Remedy
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX

_LARGER = Remedy(
    "wait for earlier calls, then try again",
    api="wait for earlier calls, or give the table `TableSettings(buffer_size_bytes=...)` with "
    "more",
)


class Partitions:
    """By index, as in the table's description. Owns the buffers of updates and of look-ups."""

    def __init__(self, partitions: Sequence[Partition], parts: TableParts) -> None:
        self.described = partitions
        self._parts = parts
        self._writers: dict[int, PartitionWriter] = {}
        self._lookups: dict[int, PartitionLookups] = {}
        self._updates_room = Room(parts.settings.buffer_size_bytes)
        self._lookups_room = Room(parts.settings.buffer_size_bytes)
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def update(
        self,
        index: int,
        content: tuple[Sequence[bytes], Sequence[bytes | None], Sequence[int]],
        *,
        size: int,
        segment_number: int = 0,
        ttl_ms: int = 0,
    ) -> asyncio.Future[Outcome]:
        """Send a unit of (table keys, values, conditions), when there is room for it.

        Raises InvalidRequest (too large for a batch), BufferFull (no room in time), Closed.
        """
        keys, values, conditions = content
        if size > UNIT_SIZE_BYTES_MAX or len(keys) > UPDATE_ENTRIES_MAX:
            raise InvalidRequest(
                "a batch is over the limit",
                remedy="divide it, if it need not be atomic", size=size, entries=len(keys),
            )  # fmt: skip
        deadline_s, room = self._deadline_s(), self._updates_room
        if room.used + size > room.limit:
            await self._wait_for(room, size)
        writer = self._writers.get(index)
        if writer is None:
            segment = self.described[index].segment
            writer = self._writers[index] = PartitionWriter(segment, self._parts, room)
        told: asyncio.Future[Outcome] = self._loop.create_future()
        writer.send(Unit(keys, values, conditions, segment_number, ttl_ms, size, told, deadline_s))
        room.used += size
        return told

    async def look_up(self, index: int, keys: Sequence[bytes], size: int) -> asyncio.Future[Found]:
        """Send a look-up of at most `GET_KEYS_MAX` keys, when there is room for it.

        Raises BufferFull (no room in time).
        """
        deadline_s, room = self._deadline_s(), self._lookups_room
        size += KEY_OVERHEAD_BYTES * len(keys)
        if room.used + size > room.limit:
            await self._wait_for(room, size)
        lookups = self._lookups.get(index)
        if lookups is None:
            segment = self.described[index].segment
            lookups = self._lookups[index] = PartitionLookups(segment, self._parts, room)
        told: asyncio.Future[Found] = self._loop.create_future()
        lookups.send(LookUp(keys, size, told, deadline_s))
        room.used += size
        return told

    def _deadline_s(self) -> float:
        return self._parts.runtime.clock.monotonic() + self._parts.settings.retry_timeout_s

    async def _wait_for(self, room: Room, size: int) -> None:
        """Wait for room; the caller takes it before it waits again. Raises BufferFull, Closed.

        If the size is over the limit, it waits until the buffer is empty.
        """
        size = min(size, room.limit)
        try:
            async with asyncio.timeout(self._parts.settings.retry_timeout_s):
                while room.used + size > room.limit:
                    with suppress(BufferFull):
                        room.require(size)
                    await room.wait(self._check_open)
        except TimeoutError:
            raise BufferFull(
                "the table's buffer is full", remedy=_LARGER, used=room.used, limit=room.limit
            ) from None
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the table was closed", table=str(self._parts.fate.table))

    async def close(self) -> None:
        """End all work; every pending call raises."""
        self._closed = True
        for writer in self._writers.values():
            await writer.close()
        for lookups in self._lookups.values():
            await lookups.close()
        for room in (self._updates_room, self._lookups_room):
            room.wake()
