"""The table of a view in memory: partitions that decide updates as segment stores do."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from zlib import crc32

from anabranch.client.tables.lookups import Found
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Outcome, Performed, Refused
from anabranch.client.views.positions import decode_position
from anabranch.common.errors import AnabranchError, OutcomeUnknown
from anabranch.common.model.table import RESERVED_KEYS
from anabranch.common.wire.table_columns import ABSENT, ANY

T = TypeVar("T")

NUMBER = 7
"""The segment number of every partition."""


@dataclass
class MemoryPartition:
    """The rows of one partition: table key → (version, value)."""

    rows: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    length: int = 0

    def look_up(self, keys: Iterable[bytes]) -> Found:
        found = [self.rows.get(key, (ABSENT, b"")) for key in keys]
        versions, values = [version for version, _ in found], [value for _, value in found]
        return Found(NUMBER, versions, [0] * len(found), values)

    def perform(self, update: StoredUpdate) -> Outcome:
        """All of the update, or nothing."""
        assert len(update.keys) == len(update.values) == len(update.conditions)
        assert len(set(update.keys)) == len(update.keys), "a view updates a row twice at once"
        if any(condition >= 0 for condition in update.conditions):
            assert update.segment_number == NUMBER
        for entry, (key, condition) in enumerate(zip(update.keys, update.conditions, strict=True)):
            version = self.rows.get(key, (ABSENT, b""))[0]
            if condition not in (ANY, version):
                return Refused(NUMBER, version, entry)
        first = self.length
        for key, value in zip(update.keys, update.values, strict=True):
            if key >= RESERVED_KEYS:
                self._check_position(key, value)
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = (self.length, value)
            self.length += 1
        return Performed(NUMBER, first)

    def _check_position(self, key: bytes, value: bytes | None) -> None:
        """Positions move forward (VIEW-2)."""
        assert value is not None, "a position disappears"
        if key in self.rows:
            assert decode_position(value) > decode_position(self.rows[key][1]), "it moves back"

    def values(self) -> Mapping[bytes, bytes]:
        """The rows of programs."""
        return {key: value for key, (_, value) in self.rows.items() if key < RESERVED_KEYS}


class MemoryTable:
    """A `ViewTable` whose answers take some turns of the loop each.

    `on_update`: called with each update before it is performed; it may raise the error that the
    caller gets instead. `lost`: the numbers of updates, from 1, that are performed without an
    answer.
    """

    def __init__(self, partition_count: int = 2) -> None:
        self.partitions = [MemoryPartition() for _ in range(partition_count)]
        self.on_update: Callable[[StoredUpdate], None] = lambda _: None
        self.lost: Collection[int] = ()
        self.updates = 0
        self.look_ups = 0

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def values(self) -> dict[bytes, bytes]:
        """The rows of programs in all partitions."""
        return {k: value for each in self.partitions for k, value in each.values().items()}

    def places(self, keys: Sequence[str]) -> tuple[Sequence[int], Sequence[bytes]]:
        stored = [key.encode() for key in keys]
        return [crc32(key) % len(self.partitions) for key in stored], stored

    async def look_up(self, index: int, keys: Sequence[bytes]) -> asyncio.Future[Found]:
        await asyncio.sleep(0)
        self.look_ups += 1
        return self._later(lambda: self.partitions[index].look_up(keys))

    async def update(self, index: int, update: StoredUpdate) -> asyncio.Future[Outcome]:
        await asyncio.sleep(0)
        self.updates += 1
        number = self.updates

        def perform() -> Outcome:
            self.on_update(update)
            outcome = self.partitions[index].perform(update)
            if number in self.lost:
                raise OutcomeUnknown("no reply to an update in time")
            return outcome

        return self._later(perform)

    def _later(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """The request arrives in the next turn of the loop, whoever waits for the answer then."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()

        def arrive() -> None:
            try:
                answer = work()
            except AnabranchError as error:
                loop.call_soon(partial(_fail, told, error))
            else:
                loop.call_soon(partial(_tell, told, answer))

        loop.call_soon(arrive)
        return told


def _tell(told: "asyncio.Future[T]", answer: T) -> None:
    if not told.done():
        told.set_result(answer)


def _fail(told: "asyncio.Future[T]", error: AnabranchError) -> None:
    if not told.done():
        told.set_exception(error)
        told.exception()  # the caller may have gone
