"""Updates entries of open tables; each request is one `Change` that may outlive it.

An update is performed once, however often the table's client sends it. If it is refused, nothing
was stored, so that its Idempotency-Key may be used again. If its outcome is unknown, it is
remembered as such.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from anabranch.client import Insert, Put, Remove, Replace, Version
from anabranch.client.tables.entries import TableUpdate
from anabranch.common.errors import AnabranchError, Unknown
from anabranch.common.workflow.containment import naming_defects, tell_defect
from anabranch.gateway.bounds.changes import Change, Changes, Idempotency, Outcome
from anabranch.gateway.tables.keys import EntryKey, StoredKey
from anabranch.gateway.tables.open_tables import OpenTable, OpenTables
from anabranch.gateway.tables.records import EntryUpdate

T = TypeVar("T")

ENTRY_COST_BYTES = 128
"""The estimated overhead of an entry beside its bytes."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """The table, the time to live of the entries (None: the table's), and the caller's key."""

    table: str
    ttl_ms: int | None = None
    idempotency: Idempotency | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a batch: `count` consecutive ones. A remembered answer needs no more."""

    first: Version
    count: int

    @property
    def last(self) -> Version:
        return self.first._replace(number=self.first.number + self.count - 1)

    def __iter__(self) -> Iterator[Version]:
        """Each version, in the order of the updates."""
        numbers = range(self.first.number, self.first.number + self.count)
        return (self.first._replace(number=number) for number in numbers)


class Updates:
    """See the module. Every method raises the errors of the table, and as `Changes.perform`."""

    def __init__(self, tables: OpenTables, changes: Changes) -> None:
        self._tables = tables
        self._changes = changes

    async def update(self, request: UpdateRequest, update: EntryUpdate) -> Version:
        """Perform one update; return the new version."""

        async def one(open_table: OpenTable) -> Version:
            table, key = open_table.table, open_table.key(update.key)
            match update:
                case Put(value=value):
                    return await table.put(key, value, ttl_ms=request.ttl_ms)
                case Insert(value=value):
                    return await table.insert(key, value, ttl_ms=request.ttl_ms)
                case Replace(value=value, version=version):
                    return await table.replace(key, value, version, ttl_ms=request.ttl_ms)
                case Remove(version=expected):
                    return await table.remove(key, expected)

        return await self._perform(request, _cost(update), one)

    async def batch(self, request: UpdateRequest, updates: Sequence[EntryUpdate]) -> Versions:
        """Perform all updates or none; return their versions."""

        async def all_of_them(open_table: OpenTable) -> Versions:
            own = [_keyed(each, open_table.key(each.key)) for each in updates]
            return _run_of(await open_table.table.update(own, ttl_ms=request.ttl_ms))

        return await self._perform(request, sum(map(_cost, updates)), all_of_them)

    async def put_many(
        self, request: UpdateRequest, entries: Sequence[tuple[EntryKey, bytes]]
    ) -> int:
        """Put all entries, not atomically; return their number."""

        async def every_one(open_table: OpenTable) -> int:
            own = [(open_table.key(key), value) for key, value in entries]
            return len(await open_table.table.put_many(own, ttl_ms=request.ttl_ms))

        size_bytes = sum([_key_cost(key) + len(value) for key, value in entries])
        return await self._perform(request, size_bytes, every_one)

    async def _perform(
        self,
        request: UpdateRequest,
        size_bytes: int,
        work: Callable[[OpenTable], Awaitable[T]],
    ) -> T:
        perform = partial(self._attempt, request.table, work)
        change = Change("entries", "table", request.table, size_bytes, perform)
        return await self._changes.perform(change, request.idempotency)

    async def _attempt(self, table: str, work: Callable[[OpenTable], Awaitable[T]]) -> Outcome[T]:
        try:
            with naming_defects("updating entries"):
                return Outcome(None, True, await self._tables.call(table, work))
        except AnabranchError as error:
            tell_defect(error)
            return Outcome(error, isinstance(error, Unknown))


def _keyed(update: EntryUpdate, key: StoredKey) -> TableUpdate[StoredKey, bytes]:
    """The update with the key as the table takes it."""
    match update:
        case Put(value=value):
            return Put(key, value)
        case Insert(value=value):
            return Insert(key, value)
        case Replace(value=value, version=version):
            return Replace(key, value, version)
        case Remove(version=expected):
            return Remove(key, expected)


def _cost(update: EntryUpdate) -> int:
    return _key_cost(update.key) + (0 if isinstance(update, Remove) else len(update.value))


def _key_cost(key: EntryKey) -> int:
    return len(key.primary) + len(key.secondary or b"") + ENTRY_COST_BYTES


def _run_of(versions: Sequence[Version]) -> Versions:
    found = Versions(versions[0], len(versions))
    assert found.last == versions[-1], "a batch is one block, whose versions are consecutive"
    return found
