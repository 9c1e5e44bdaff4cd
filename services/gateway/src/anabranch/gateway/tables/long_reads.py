"""Reads whose answers take long: a scan of a whole range, and a watch of the changes.

Each holds a read's place and its table until the caller closes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

from anabranch.client import Scan, Watch
from anabranch.common.errors import TableNotFound
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.tables.keys import KeyedEntry, StoredKey
from anabranch.gateway.tables.open_tables import OpenTable, OpenTables
from anabranch.gateway.tables.records import StoredChange

T = TypeVar("T")

PIECE_COUNT_MAX = 1000
PIECE_SIZE_BYTES = 256 * 1024
"""A piece of an answer ends with the value that reaches this size."""
PATIENCE_S = 0.5
"""How often a waiting watch checks whether the gateway is stopping."""


class WholeScan:
    """A scan of a whole range, of which the first entry was read."""

    def __init__(
        self, scan: Scan[KeyedEntry], first: KeyedEntry | None, held: AsyncExitStack
    ) -> None:
        self._scan = scan
        self._first = first
        self._held = held

    async def next(self, count_max: int = PIECE_COUNT_MAX) -> Sequence[KeyedEntry]:
        """The entries that were read already, at least one; none at the end. Raises the errors of
        the scan."""
        entry, self._first = self._first, None
        if entry is None:
            entry = await anext(self._scan, None)
        if entry is None or count_max < 1:
            return ()
        return _ready(entry, self._scan.next_nowait, min(count_max, PIECE_COUNT_MAX))

    async def close(self) -> None:
        """Stop reading. Repeatable."""
        self._scan.close()
        await self._held.aclose()


class FollowedTable:
    """An entered watch of one caller."""

    def __init__(self, watch: Watch[StoredKey, bytes], clock: Clock, held: AsyncExitStack) -> None:
        self._watch = watch
        self._clock = clock
        self._held = held

    def position(self) -> str:
        """The token of the current position."""
        return str(self._watch.position)

    async def next(
        self, heartbeat_s: float, stopping: Callable[[], bool]
    ) -> Sequence[StoredChange] | None:
        """The changes that have arrived.

        There are none after `heartbeat_s` without a change, or if the gateway stops. Returns None
        if the table is sealed and all its changes were read. Raises the errors of the watch.
        """
        deadline_s = self._clock.monotonic() + heartbeat_s
        while not stopping() and self._clock.monotonic() < deadline_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    change = await anext(self._watch, None)
                if change is None:
                    return None
                return _ready(change, self._watch.next_nowait, PIECE_COUNT_MAX)
        return ()

    async def close(self) -> None:
        """Stop watching. Repeatable."""
        await self._watch.close()
        await self._held.aclose()


Begin = Callable[[OpenTable, AsyncExitStack], Awaitable[T]]


async def held(places: ReadPlaces, tables: OpenTables, name: str, begin: Begin[T]) -> T:
    """Begin a read that holds a place and the open table by a stack, which `begin` takes over.

    If the open table is gone, begins again with a newly opened one. Raises Overloaded, and the
    errors of opening a table and of `begin`.
    """
    with suppress(TableNotFound):
        return await _held(places, tables, name, begin)
    return await _held(places, tables, name, begin)


async def _held(places: ReadPlaces, tables: OpenTables, name: str, begin: Begin[T]) -> T:
    async with AsyncExitStack() as stack:
        stack.enter_context(places.taken())
        table = await stack.enter_async_context(tables.use(name))
        return await begin(table, stack)


E = TypeVar("E", KeyedEntry, StoredChange)


def _ready(first: E, next_nowait: Callable[[], E | None], count_max: int) -> list[E]:
    """The first one and those that were read already, up to the bounds of a piece."""
    found = [first]
    size_bytes = len(first.value or b"")
    while len(found) < count_max and size_bytes < PIECE_SIZE_BYTES:
        item = next_nowait()
        if item is None:
            break
        found.append(item)
        size_bytes += len(item.value or b"")
    return found
