"""Iterates over entries in the order of their table keys, across partitions.

    partition ──pages──┐
    partition ──pages──┼── rows up to the lowest last key of all present pages, sorted ──► entries
    partition ──pages──┘

Each partition reads one page ahead, and the partitions share the read-ahead evenly, so memory is
bounded. An update during the scan may be seen or not; an entry that does not change is seen exactly
once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Generic, NamedTuple, Self, TypeVar, cast

from anabranch.client.serializers import Serializer
from anabranch.client.tables.entries import Entry, K, V, Version
from anabranch.client.tables.keys import TableKeyRange, TableKeys
from anabranch.client.tables.pages import Page, PageSize, PartitionPages
from anabranch.client.tables.parts import TableParts
from anabranch.common.contracts.tables import Partition
from anabranch.common.errors import SerializationFailed

T = TypeVar("T")

PAGE_SIZE_BYTES_MAX = 2 * 1024 * 1024
PAGE_SIZE_BYTES_MIN = 4 * 1024


class ScanPlan(NamedTuple):
    """The partitions and the range to read, and the size of pages."""

    partitions: Sequence[Partition]
    keys: TableKeyRange
    page: PageSize


def planned(
    partitions: Sequence[Partition],
    keys: TableKeyRange,
    parts: TableParts,
    page_size: int | None,
    *,
    values: bool,
) -> ScanPlan:
    """The plan of a scan of the range; pages of at most `page_size` entries."""
    if keys.is_empty:
        partitions = ()
    elif keys.partition is not None:
        partitions = (partitions[keys.partition],)
    share = parts.settings.read_ahead_bytes // (2 * max(1, len(partitions)))
    size = PageSize(
        page_size or parts.settings.page_size,
        max(PAGE_SIZE_BYTES_MIN, min(share, PAGE_SIZE_BYTES_MAX)),
        values,
    )
    return ScanPlan(partitions, keys, size)


def pages_of(plan: ScanPlan, parts: TableParts) -> list[PartitionPages]:
    """The pages of each partition of the plan."""
    return [
        PartitionPages(each.segment, parts, plan.keys.start, plan.keys.end, plan.page)
        for each in plan.partitions
    ]


StoredEntry = Entry[bytes, bytes]
"""An entry with its table key, and its value as it is stored."""


def stored_entries(segment_id: int, page: Page) -> list[StoredEntry]:
    """The entries of a page of the partition."""
    rows = page.rows
    columns = (rows.keys(), rows.values(), rows.versions, rows.expires_ms)
    return joined_entries(segment_id, page.segment_number, columns)


def joined_entries(
    segment_id: int,
    segment_number: int,
    columns: tuple[Sequence[bytes], Sequence[bytes], Sequence[int], Sequence[int]],
) -> list[StoredEntry]:
    """The entries of these table keys, values, numbers of versions, and expiries."""
    keys, values, numbers, expires_ms = columns
    # `tuple.__new__` is what `_make` calls, from Python: without it a row costs half of the time.
    versions = map(_NEW_VERSION, zip(repeat(segment_id), repeat(segment_number), numbers))
    rows = zip(keys, values, versions, expires_ms, strict=True)
    return cast("list[StoredEntry]", list(map(_NEW_ENTRY, rows)))


_NEW_VERSION = partial(tuple.__new__, Version)
_NEW_ENTRY = partial(tuple.__new__, Entry)


class _Run:
    """The entries of a partition that were read and not yielded, ascending from `at`."""

    __slots__ = ("at", "entries", "pages", "segment_id")

    def __init__(self, segment_id: int, pages: PartitionPages) -> None:
        self.segment_id = segment_id
        self.pages = pages
        self.entries: list[StoredEntry] = []
        self.at = 0

    def begin(self) -> None:
        """Ask for a page if no entry is left."""
        if self.at == len(self.entries):
            self.pages.begin()

    async def fill(self) -> bool:
        """Read the next page if none is left; return whether there is an entry."""
        if self.at == len(self.entries):
            page = await self.pages.next()
            self.entries = [] if page is None else stored_entries(self.segment_id, page)
            self.at = 0
        return bool(self.entries)

    def up_to(self, key: bytes) -> list[StoredEntry]:
        """Take the entries whose keys are at most `key`."""
        low, high = self.at, len(self.entries)
        if self.entries[-1].key <= key:
            self.at = high
            return self.entries[low:] if low else self.entries
        while low < high:  # bisection, because bisect would compare whole entries
            middle = (low + high) // 2
            if self.entries[middle].key <= key:
                low = middle + 1
            else:
                high = middle
        taken, self.at = self.entries[self.at : low], low
        return taken


class _Merge:
    """The entries of all runs in the order of their keys, in batches of any size."""

    def __init__(self, runs: list[_Run]) -> None:
        self._runs = runs

    async def next(self) -> list[StoredEntry]:
        """The next batch; empty at the end. A cancelled or failed call can be repeated."""
        for run in self._runs:
            run.begin()
        for run in tuple(self._runs):
            if not await run.fill():
                self._runs.remove(run)
        if not self._runs:
            return []
        lowest_last = min(run.entries[-1].key for run in self._runs)
        taken = [entries for run in self._runs if (entries := run.up_to(lowest_last))]
        if len(taken) == 1:
            return taken[0]
        batch = [entry for entries in taken for entry in entries]
        batch.sort(key=itemgetter(0))  # finds the sorted parts, and merges them
        return batch


class Scan(Generic[T]):
    """Entries or keys in the order of the table keys; made by `Table.entries` and `Table.keys`.

    ::

        async for entry in table.entries(prefix="app"):
            print(entry.key, entry.value, entry.version)

    It reads when it is iterated, and can be iterated once. An entry that cannot be deserialized
    raises SerializationFailed, and the next call continues with the entry after it.
    """

    def __init__(
        self,
        plan: ScanPlan,
        parts: TableParts,
        convert: Callable[[Sequence[StoredEntry]], Iterable[T | SerializationFailed]],
    ) -> None:
        self._pages = pages_of(plan, parts)
        segments = zip(plan.partitions, self._pages, strict=True)
        self._merge = _Merge([_Run(each.segment_id, pages) for each, pages in segments])
        self._convert = convert
        self._ready: Iterator[T | SerializationFailed] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next one. Raises TableNotFound, Unavailable, Closed, SerializationFailed."""
        while True:
            for item in self._ready:
                if type(item) is SerializationFailed:
                    raise item
                return cast(T, item)
            batch = await self._merge.next()
            if not batch:
                raise StopAsyncIteration
            self._ready = iter(self._convert(batch))

    def next_nowait(self) -> T | None:
        """The next one that was read already; None: iterate to read more.

        ::

            entry = scan.next_nowait()
        """
        for item in self._ready:
            if type(item) is SerializationFailed:
                raise item
            return cast(T, item)
        return None

    def close(self) -> None:
        """Stop reading; later iterations raise Closed. Repeatable.

        ::

            scan.close()
        """
        for pages in self._pages:
            pages.close()


class Decoding(Generic[K, V]):
    """Turns stored entries into a program's entries, or keys; errors take the places of those that
    cannot be deserialized."""

    def __init__(self, keys: TableKeys[K], values: Serializer[V] | None) -> None:
        self._keys = keys
        self._values = values

    @property
    def is_trivial(self) -> bool:
        """Whether stored entries are the program's entries."""
        return self._values is None and self._keys.are_stored_unchanged

    def entry(self, stored: StoredEntry) -> Entry[K, V]:
        """One entry. Raises SerializationFailed."""
        key, value, version, expires_ms = stored
        loaded = value if self._values is None else self._values.deserialize(value)
        return Entry(self._keys.decode(key), cast(V, loaded), version, expires_ms)

    def entries(self, batch: Sequence[StoredEntry]) -> Iterable[Entry[K, V] | SerializationFailed]:
        """The entries."""
        if self.is_trivial:
            return cast(Sequence[Entry[K, V]], batch)
        return _attempted(self.entry, batch)

    def without_values(
        self, batch: Sequence[StoredEntry]
    ) -> Iterable[Entry[K, None] | SerializationFailed]:
        """The entries, with None as value."""

        def decode(stored: StoredEntry) -> Entry[K, None]:
            key, _, version, expires_ms = stored
            return Entry(self._keys.decode(key), None, version, expires_ms)

        return _attempted(decode, batch)

    def keys(self, batch: Sequence[StoredEntry]) -> Iterable[K | SerializationFailed]:
        """The keys alone."""
        return _attempted(lambda stored: self._keys.decode(stored.key), batch)


def _attempted(
    decode: Callable[[StoredEntry], T], batch: Sequence[StoredEntry]
) -> Iterator[T | SerializationFailed]:
    for stored in batch:
        try:
            decoded = decode(stored)
        except SerializationFailed as error:
            yield error
        else:
            yield decoded
