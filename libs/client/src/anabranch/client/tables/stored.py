"""The partitions of an open table by index, for parts of the client that keep rows of their own.

Keys and values are as they are stored; keys from `RESERVED_KEYS` on are permitted. A partition is
named by its index, so a reserved key may lie in any of them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from anabranch.client.tables.entries import K
from anabranch.client.tables.keys import TableKeys
from anabranch.client.tables.lookups import Found
from anabranch.client.tables.partitions import Partitions
from anabranch.client.tables.units import Outcome, size_of


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """An atomic update of one partition: table keys, values (None removes) and conditions.

    The versions in the conditions are of the segment with the number `segment_number`; 0: there are
    none.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    conditions: Sequence[int]
    segment_number: int


class StoredTable(Generic[K]):
    """See the module. Every call raises as those of `Table` do."""

    def __init__(self, keys: TableKeys[K], partitions: Partitions, ttl_ms: int) -> None:
        self._keys = keys
        self._partitions = partitions
        self._ttl_ms = ttl_ms

    @property
    def partition_count(self) -> int:
        return len(self._partitions.described)

    def places(self, keys: Sequence[K]) -> tuple[Sequence[int], Sequence[bytes]]:
        """The partition and the table key of each key. Raises InvalidKey, SerializationFailed.

        ::

            indexes, stored = table.stored.places(["apple", "pear"])
        """
        return self._keys.places(keys)

    async def look_up(self, index: int, keys: Sequence[bytes]) -> asyncio.Future[Found]:
        """Ask for the entries of at most `GET_KEYS_MAX` table keys.

        ::

            found = await (await table.stored.look_up(0, [b"apple"]))
        """
        return await self._partitions.look_up(index, keys, sum(map(len, keys)))

    async def update(self, index: int, update: StoredUpdate) -> asyncio.Future[Outcome]:
        """Send the update; entries get the table's time to live, except those of reserved keys.

        ::

            outcome = await (await table.stored.update(0, update))
        """
        return await self._partitions.update(
            index,
            (update.keys, update.values, update.conditions),
            size=size_of(update.keys, update.values),
            segment_number=update.segment_number,
            ttl_ms=self._ttl_ms,
        )
