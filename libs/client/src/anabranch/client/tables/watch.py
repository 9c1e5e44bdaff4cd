"""Follows the changes of a table: first its entries if the caller wants them, then every update.

    partition ──tail──┐
    partition ──tail──┼── arrivals, in the order in which they arrive ──► changes
    partition ──tail──┘

Changes of one key come in the order of their versions; there is no order across partitions. Expiry
is not a change: the value of an entry with `expires_ms` ends at that time without one.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, NamedTuple, Self, cast

from anabranch.client.serializers import Serializer
from anabranch.client.tables.entries import K, V, Version
from anabranch.client.tables.keys import TableKeys
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.position import Place, TablePosition
from anabranch.client.tables.tail import (
    Arrival,
    Arrivals,
    PartitionTail,
    StoredChange,
    compacted,
)
from anabranch.common.contracts.tables import TableDescription
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    InvalidPosition,
    InvalidRequest,
    Remedy,
)
from anabranch.common.workflow.bounded import for_each

WatchStart = TablePosition | str | None
READ_SIZE_BYTES_MAX = 2 * 1024 * 1024
READ_SIZE_BYTES_MIN = 4 * 1024
DESCRIBED_AT_ONCE = 16


class Change(NamedTuple, Generic[K, V]):
    """One update of an entry, or an entry of the snapshot with which a watch begins.

    ::

        async for change in table.watch():
            print(change.key, change.value, change.removed)

    `removed`: the update removed the entry, and `value` is None. `time_ms` is the Unix time at
    which the store took the update; 0: the change is an entry of the snapshot. A watch that starts
    at `position` continues with the next change. `expires_ms`: as in `Entry`.
    """

    key: K
    value: V | None
    version: Version
    time_ms: int
    position: TablePosition
    removed: bool = False
    expires_ms: int = 0


class Watch(Generic[K, V]):
    """The changes of a table; made by `Table.watch`.

    ::

        async for change in table.watch("now"):
            print(change.key, change.value, change.version)

    It begins with the first iteration or `async with`, and ends with the table at the latest. Of a
    sealed table it ends after the last change. A change that cannot be deserialized raises
    SerializationFailed, and the next call continues with the change after it.
    """

    def __init__(
        self,
        start: WatchStart,
        described: TableDescription,
        parts: TableParts,
        keys: TableKeys[K],
        values: Serializer[V] | None,
    ) -> None:
        """Raises InvalidRequest for a start of another table, InvalidPosition."""
        self._described = described
        self._parts = parts
        self._keys = keys
        self._values = values
        self._start = _checked(start, described)
        self._places: dict[int, Place] = {}
        self._arrivals = Arrivals()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_count = 0
        """Partitions that have not ended."""
        self._arrival: Arrival | None = None
        """The arrival that `_changes` are the rest of."""
        self._moved: tuple[int, Place] | None = None
        """The place in its partition after the last change that was yielded."""
        self._changes: deque[StoredChange] = deque()
        self._has_begun = False
        self._ended: AnabranchError | None = None

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop; later iterations raise Closed. Repeatable.

        ::

            changes = table.watch("now")
            await changes.close()
        """
        self._ended = self._ended or Closed("the watch was closed")
        self._arrivals.news.set()
        if tasks := tuple(self._tasks):
            _cancel(tasks)
            await asyncio.wait(tasks)

    async def _begin(self) -> None:
        """Take the place to begin at in every partition, and start to read. Repeatable."""
        if self._has_begun or self._ended is not None:
            return
        partitions = self._described.partitions
        places: dict[int, Place] = {}
        tails: list[PartitionTail] = []
        share = self._parts.settings.read_ahead_bytes // (2 * len(partitions))

        async def describe(index: int) -> None:
            partition = partitions[index]
            described = await self._parts.describe(partition.segment)
            match self._start:
                case TablePosition():
                    place = self._start.places[partition.segment_id]
                    if place.offset < described.start:
                        raise compacted(self._parts, partition, place.offset, described.start)
                case "earliest":
                    place = Place(described.start)
                case "now":
                    place = Place(described.length)
                case None:
                    place = Place(described.length, scanned=b"")
            places[partition.segment_id] = place
            tails.append(
                PartitionTail(
                    partition, described, place, parts=self._parts, arrivals=self._arrivals,
                    size_max=max(READ_SIZE_BYTES_MIN, min(share, READ_SIZE_BYTES_MAX)),
                    is_given=isinstance(self._start, TablePosition),
                )
            )  # fmt: skip

        await for_each(range(len(partitions)), DESCRIBED_AT_ONCE, describe)
        if self._has_begun or self._ended is not None:
            return  # another call was faster
        self._has_begun, self._places, self._open_count = True, places, len(tails)
        for tail in tails:
            task = self._parts.runtime.start(tail.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        loop = asyncio.get_running_loop()
        weakref.finalize(self, _cancel_from_any_thread, loop, self._tasks).atexit = False

    # --- changes --------------------------------------------------------------------------

    @property
    def position(self) -> TablePosition:
        """The place after the last change that was yielded. Raises InvalidRequest before the first
        iteration, unless the watch started at a position.

        ::

            async with table.watch() as changes:
                token = str(changes.position)
        """
        if self._has_begun:
            described = self._described
            table = f"{described.scope}/{described.table}"
            return TablePosition(table, described.incarnation, self._places, self._moved)
        if isinstance(self._start, TablePosition):
            return self._start
        raise InvalidRequest(
            "the watch has not begun",
            remedy=Remedy(api="enter the watch with an async with block"),
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[K, V]:
        """The next change.

        Raises VersionCompacted (fields: partition, start), TableNotFound, Unavailable, Closed,
        InvalidPosition, CorruptBlock, SerializationFailed. Every error but the last ends the watch.
        """
        await self._begin()
        while True:
            if self._ended is not None:
                raise self._ended.copy()
            if self._changes:
                return self._next_change()
            self._finish_arrival()
            if self._ended is not None:
                continue
            if self._arrivals.ready:
                self._arrival = self._arrivals.ready.popleft()
                self._changes.extend(self._arrival.changes)
            elif not self._open_count:
                raise StopAsyncIteration
            else:
                self._arrivals.news.clear()
                await self._arrivals.news.wait()

    def next_nowait(self) -> Change[K, V] | None:
        """The next change that was read already; None: iterate to wait for one.

        ::

            change = changes.next_nowait()
        """
        return self._next_change() if self._changes and self._ended is None else None

    def _next_change(self) -> Change[K, V]:
        stored, arrival = self._changes.popleft(), self._arrival
        assert arrival is not None
        segment_id = arrival.tail.partition.segment_id
        self._moved = (segment_id, stored.after)
        version = Version(segment_id, arrival.tail.segment_number, stored.number)
        value: object = stored.value
        if stored.value is not None and self._values is not None:
            value = self._values.deserialize(stored.value)
        return Change(
            self._keys.decode(stored.key), cast("V | None", value), version, stored.time_ms,
            self.position, stored.value is None, stored.expires_ms,
        )  # fmt: skip

    def _finish_arrival(self) -> None:
        """Move behind the arrival whose changes were all yielded."""
        arrival, self._arrival, self._moved = self._arrival, None, None
        if arrival is None:
            return
        arrival.tail.taken()
        self._places = {**self._places, arrival.tail.partition.segment_id: arrival.next}
        if arrival.ended:
            self._open_count -= 1
        if arrival.failure is not None:
            self._ended = arrival.failure
            _cancel(tuple(self._tasks))


def _checked(start: WatchStart, described: TableDescription) -> WatchStart:
    """The start, a position instead of its token. Raises InvalidRequest, InvalidPosition."""
    if start in (None, "earliest", "now"):
        return start
    position = start if isinstance(start, TablePosition) else TablePosition.parse(str(start))
    table = f"{described.scope}/{described.table}"
    if (position.table, position.incarnation) != (table, described.incarnation):
        raise InvalidRequest(
            "the position does not belong to this table",
            remedy="start at `earliest` or `now`, or without a position", table=table,
        )  # fmt: skip
    if position.places.keys() != {each.segment_id for each in described.partitions}:
        raise InvalidPosition("the position is not of the table's partitions", table=table)
    return position


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _cancel_from_any_thread(
    loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[None]]
) -> None:
    """End the work of a watch that was dropped without `close`."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(lambda: _cancel(tuple(tasks)))
