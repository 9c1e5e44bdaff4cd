"""Looks up entries of one partition by their keys; look-ups that wait together travel together.

    look-up ──► waiting ──all that fit, at the next turn of the loop──► GetEntries ──rows──► told

A look-up that waits costs its caller one future. A request is a task, because it is repeated until
a store answers; while as many requests are in flight as the settings permit, look-ups wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.client.tables.parts import TableParts
from anabranch.client.writing.room import Room
from anabranch.common.errors import AnabranchError, BadPacket, Closed
from anabranch.common.wire.messages import GetEntries, Request, TableRead
from anabranch.common.wire.table import GET_KEYS_MAX
from anabranch.common.wire.table_columns import encode_keys, parse_rows

KEYS_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""Of the keys of one request."""
KEY_OVERHEAD_BYTES = 64


class Found(NamedTuple):
    """Columns with one item per key of a look-up, in its order; the version ABSENT: no entry.
    `segment_number` belongs to the versions."""

    segment_number: int
    versions: Sequence[int]
    expires_ms: Sequence[int]
    values: Sequence[bytes]

    def part(self, low: int, high: int) -> "Found":
        """The items from `low` up to `high`."""
        if low == 0 and high == len(self.versions):
            return self
        return Found(
            self.segment_number,
            self.versions[low:high],
            self.expires_ms[low:high],
            self.values[low:high],
        )


@dataclass(eq=False, slots=True)
class LookUp:
    """Table keys, at most `GET_KEYS_MAX`, and the future that gets their rows. `size` is the room
    that they take."""

    keys: Sequence[bytes]
    size: int
    told: asyncio.Future[Found]
    deadline_s: float


def size_of(keys: Sequence[bytes]) -> int:
    """The room that a look-up of these keys takes."""
    return sum(map(len, keys)) + KEY_OVERHEAD_BYTES * len(keys)


class PartitionLookups:
    """The look-ups of one partition. Those that are sent have taken their size from `room`."""

    def __init__(self, segment: str, parts: TableParts, room: Room) -> None:
        self.segment = segment
        self._parts = parts
        self._room = room
        self._waiting: deque[LookUp] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def send(self, look_up: LookUp) -> None:
        """Take the look-up; never waits."""
        self._waiting.append(look_up)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._pump)

    async def close(self) -> None:
        """Stop. Look-ups without an answer raise Closed."""
        self._closed = True
        if tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self._fail(tuple(self._waiting), Closed("the table was closed during a look-up"))
        self._waiting.clear()

    def _pump(self) -> None:
        self._is_due = False
        in_flight_max = self._parts.settings.requests_in_flight_max
        while self._waiting and len(self._tasks) < in_flight_max and not self._closed:
            if look_ups := self._next_look_ups():
                self._begin(look_ups)

    def _begin(self, look_ups: Sequence[LookUp]) -> None:
        try:
            task = self._parts.runtime.start(self._perform(look_ups))
        except Closed as error:
            self._fail(look_ups, error)
            return
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._pump()

    def _next_look_ups(self) -> list[LookUp]:
        """Those of the next request. Look-ups whose callers have gone are dropped."""
        chosen: list[LookUp] = []
        count = size = 0
        while self._waiting:
            look_up = self._waiting[0]
            if look_up.told.done():
                self._room.release(self._waiting.popleft().size)
                continue
            count, size = count + len(look_up.keys), size + look_up.size
            if chosen and (count > GET_KEYS_MAX or size > KEYS_SIZE_BYTES_MAX):
                break
            chosen.append(self._waiting.popleft())
        return chosen

    async def _perform(self, look_ups: Sequence[LookUp]) -> None:
        try:
            keys = look_ups[0].keys
            if len(look_ups) > 1:
                keys = [key for look_up in look_ups for key in look_up.keys]
            found = await self._fetch(keys, min([each.deadline_s for each in look_ups]))
        except AnabranchError as error:
            self._fail(look_ups, error)
        except asyncio.CancelledError:
            self._fail(look_ups, Closed("the table was closed during a look-up"))
            raise
        else:
            at = 0
            for look_up in look_ups:
                end = at + len(look_up.keys)
                self._room.release(look_up.size)
                if not look_up.told.done():
                    look_up.told.set_result(found.part(at, end))
                at = end

    async def _fetch(self, keys: Sequence[bytes], deadline_s: float) -> Found:
        """The entries of all the keys, perhaps by several answers. Raises as `TableParts.ask`."""
        found = await self._fetch_some(keys, deadline_s)
        while (count := len(found.versions)) < len(keys):
            more = await self._fetch_some(keys[count:], deadline_s)
            found = Found(
                more.segment_number,
                [*found.versions, *more.versions],
                [*found.expires_ms, *more.expires_ms],
                [*found.values, *more.values],
            )
        return found

    async def _fetch_some(self, keys: Sequence[bytes], deadline_s: float) -> Found:
        """The entries of the first of these keys, at least of one."""

        def request(container_epoch: int) -> Request:
            return GetEntries(segment=self.segment, container_epoch=container_epoch)

        reply, data = await self._parts.ask(
            self.segment,
            request,
            TableRead,
            timeout_s=self._parts.settings.ack_timeout_s,
            retry_timeout_s=deadline_s - self._parts.runtime.clock.monotonic(),
            payload=encode_keys(keys),
        )
        rows = parse_rows(data)
        if not 0 < len(rows) <= len(keys):
            raise BadPacket("the answer to a look-up does not fit its keys", keys=len(keys))
        return Found(reply.segment_number, rows.versions, rows.expires_ms, rows.values())

    def _fail(self, look_ups: Sequence[LookUp], error: AnabranchError) -> None:
        for look_up in look_ups:
            self._room.release(look_up.size)
            if not look_up.told.done():
                look_up.told.set_exception(error.copy())
                look_up.told.exception()  # the caller may have gone
