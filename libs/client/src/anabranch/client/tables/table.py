"""An open key-value table: updates and reads of its entries, scans, and watches.

    call ──► `keys` ──► partition ──► `updates`, `reads` ──► store

Updates and look-ups that wait together travel together. Not thread-safe: use a table from its event
loop only. Calls that are made concurrently may be performed in any order, also for the same key; a
call that has returned comes before any later one.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self, overload

from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import TableSettings
from anabranch.client.tables.arrow_scan import ArrowScan
from anabranch.client.tables.entries import Entry, K, TableUpdate, V, Version
from anabranch.client.tables.fate import TableFate
from anabranch.client.tables.keys import KeySerializers, TableKeys
from anabranch.client.tables.partitions import Partitions
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.reads import Reads
from anabranch.client.tables.scan import Scan
from anabranch.client.tables.stored import StoredTable
from anabranch.client.tables.updates import Updates
from anabranch.client.tables.watch import Watch, WatchStart
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.contracts.tables import TableDescription
from anabranch.common.errors import Closed, Remedy
from anabranch.common.model.table import TableRef
from anabranch.common.wire.table_columns import ABSENT, ANY


class _Opened(Generic[K, V]):
    """The parts that exist while the table is open."""

    def __init__(
        self,
        described: TableDescription,
        keys: TableKeys[K],
        values: Serializer[V] | None,
        parts: TableParts,
    ) -> None:
        self.described = described
        self.keys = keys
        self.partitions = Partitions(described.partitions, parts)
        self.updates = Updates(parts.fate.table, described.config, keys, values, self.partitions)
        self.reads = Reads(described, keys, values, self.partitions, parts)

    async def close(self) -> None:
        await self.reads.close()
        await self.partitions.close()


class Table(Generic[K, V]):
    """The entries of a key-value table; made by `Client.table`. K and V are the types of its keys
    and values.

    ::

        async with client.table("shop/stock", value=JsonSerializer()) as table:
            version = await table.put("apple", 5)
            await table.replace("apple", 6, version)

    An async context manager; or await `open`, and later `close`. It ends with the client at the
    latest. Every call raises TableNotFound if the table is gone, Unavailable if no store answers
    in time, Closed, and InvalidKey for a key that does not fit the table. An update also raises
    TableSealed, BufferFull, and OutcomeUnknown: it may have been performed, and may even be
    performed later.
    """

    def __init__(
        self,
        table: TableRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: TableSettings,
        key: KeySerializers = None,
        value: Serializer[V] | None = None,
    ) -> None:
        self.table = table
        self._fate = TableFate(table, control)
        self._parts = TableParts(self._fate, directory, runtime, settings)
        self._key = key
        self._value = value
        self._opened: _Opened[K, V] | None = None

    # --- life -----------------------------------------------------------------------------

    async def open(self) -> Self:
        """Find the partitions. A sealed table can be opened and read. Repeatable.

        Raises TableNotFound, ScopeNotFound, Unavailable, and InvalidRequest for serializers that do
        not fit the keys.

        ::

            table = await client.table("shop/stock").open()
        """
        if self._opened is None:
            described = await self._fate.describe()
            self._fate.incarnation = described.incarnation
            keys = TableKeys[K](described, self._key)
            await self._parts.directory.prepare(each.segment for each in described.partitions)
            if self._opened is None:  # no other call was faster
                self._opened = _Opened(described, keys, self._value, self._parts)
                self._parts.runtime.open_parts.add(self)
        return self

    async def close(self) -> None:
        """Stop; pending calls raise. Repeatable.

        ::

            await table.close()
        """
        opened, self._opened = self._opened, None
        self._parts.runtime.open_parts.discard(self)
        if opened is not None:
            await opened.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _open(self) -> _Opened[K, V]:
        if self._opened is None:
            raise Closed(
                "the table is not open",
                remedy=Remedy(api="use it as `async with client.table(...)`, or await its `open`"),
                table=str(self.table),
            )
        return self._opened

    @property
    def description(self) -> TableDescription:
        """The table as it was when it was opened.

        ::

            print(table.description.config.ttl_ms, len(table.description.partitions))
        """
        return self._open().described

    @property
    def stored(self) -> StoredTable[K]:
        """The partitions by index, for parts of the client that keep rows of their own.

        ::

            print(table.stored.partition_count)
        """
        opened = self._open()
        return StoredTable(opened.keys, opened.partitions, opened.described.config.ttl_ms)

    # --- updates --------------------------------------------------------------------------

    async def put(self, key: K, value: V, *, ttl_ms: int | None = None) -> Version:
        """Put a value, whether or not the key has an entry. Returns the new version.

        The entry expires after `ttl_ms` milliseconds (0: never); without it, after the time to live
        that the table had when it was opened. Raises as described in the class.

        ::

            version = await table.put("apple", 5)
        """
        return await self._open().updates.put(key, value, ANY, ttl_ms)

    async def insert(self, key: K, value: V, *, ttl_ms: int | None = None) -> Version:
        """Put a value if the key has no entry. Raises KeyExists (fields: version), and as `put`.

        ::

            version = await table.insert("apple", 5)
        """
        return await self._open().updates.put(key, value, ABSENT, ttl_ms)

    async def replace(
        self, key: K, value: V, version: Version, *, ttl_ms: int | None = None
    ) -> Version:
        """Put a value if the entry has this version.

        Raises VersionMismatch (fields: version, which `Version.parse` reads), KeyNotFound, and as
        `put`.

        ::

            version = await table.replace("apple", 6, version)
        """
        return await self._open().updates.put(key, value, version, ttl_ms)

    async def remove(self, key: K, version: Version | None = None) -> Version:
        """Remove the entry of the key; with a `version`, only if the entry has it.

        Without one, succeeds for a key without an entry. Returns the version of the removal, which
        a watch yields. Raises VersionMismatch, KeyNotFound, and as `put`.

        ::

            await table.remove("apple", version)
        """
        return await self._open().updates.remove(key, ANY if version is None else version)

    async def put_many(
        self, pairs: Iterable[tuple[K, V]] | Mapping[K, V], *, ttl_ms: int | None = None
    ) -> Sequence[Version]:
        """Put all entries, and return their versions in this order.

        The entries of each partition travel in batches of up to 4,096 entries and about 1 MiB; each
        batch is atomic, all of them together are not. If a call fails, some batches may have been
        performed. Of two entries with the same key the later one stays. Raises as `put`.

        ::

            versions = await table.put_many([("apple", 5), ("pear", 7)])
        """
        return await self._open().updates.put_many(pairs, ttl_ms)

    async def update(
        self, updates: Sequence[TableUpdate[K, V]], *, ttl_ms: int | None = None
    ) -> Sequence[Version]:
        """Perform all updates as one atomic batch, or none; return their versions in this order.

        All keys share one primary key, unless the table has a single partition. A batch has up to
        4,096 updates and 8 MiB; a later update of a key sees the earlier ones. Raises KeyExists,
        VersionMismatch or KeyNotFound for the first update whose condition does not hold (fields:
        key), InvalidRequest, and as `put`.

        ::

            await table.update([Put(("shop", "apple"), 5), Remove(("shop", "pear"))])
        """
        return await self._open().updates.batch(updates, ttl_ms)

    # --- reads ----------------------------------------------------------------------------

    async def get(self, key: K) -> Entry[K, V] | None:
        """The entry of the key, or None. It includes every update that has returned.

        Raises SerializationFailed, and as described in the class.

        ::

            entry = await table.get("apple")
        """
        return await self._open().reads.get(key)

    async def get_many(self, keys: Iterable[K]) -> list[Entry[K, V] | None]:
        """The entry of each key, in their order; None for a key without one. Raises as `get`.

        The entries are not of one instant.

        ::

            apple, pear = await table.get_many(["apple", "pear"])
        """
        return await self._open().reads.get_many(keys)

    async def exists(self, key: K) -> bool:
        """Whether the key has an entry. Raises as `get`.

        ::

            assert await table.exists("apple")
        """
        return await self._open().reads.exists(key)

    @overload
    def entries(
        self,
        *,
        start: Any = None,
        end: Any = None,
        prefix: Any = None,
        primary: Any = None,
        values: Literal[True] = True,
        page_size: int | None = None,
    ) -> Scan[Entry[K, V]]: ...

    @overload
    def entries(
        self,
        *,
        start: Any = None,
        end: Any = None,
        prefix: Any = None,
        primary: Any = None,
        values: Literal[False],
        page_size: int | None = None,
    ) -> Scan[Entry[K, None]]: ...

    def entries(
        self,
        *,
        start: Any = None,
        end: Any = None,
        prefix: Any = None,
        primary: Any = None,
        values: bool = True,
        page_size: int | None = None,
    ) -> Scan[Entry[K, V]] | Scan[Entry[K, None]]:
        """Iterate over the entries with keys in [start, end) that begin with `prefix`, in the order
        of their bytes.

        With secondary keys, a bound is a pair or a primary key, and entries are in the order of
        primary, then secondary keys. `primary` chooses the family of one primary key; the other
        bounds are then secondary keys. Without `values`, every value is None. The store is asked
        for `page_size` entries at once; a page is a snapshot, the whole is not: an update during
        the iteration may be seen or not. Raises InvalidKey; `Scan` has the errors of iterating.

        ::

            async for entry in table.entries(prefix="app"):
                print(entry.key, entry.value)
        """
        opened = self._open()
        keys = opened.keys.range(start=start, end=end, prefix=prefix, primary=primary)
        if values:
            return opened.reads.entries(keys, page_size)
        return opened.reads.without_values(keys, page_size)

    def keys(
        self,
        *,
        start: Any = None,
        end: Any = None,
        prefix: Any = None,
        primary: Any = None,
        page_size: int | None = None,
    ) -> Scan[K]:
        """Iterate over the keys alone; the parameters are those of `entries`.

        ::

            async for key in table.keys(prefix="app"):
                print(key)
        """
        opened = self._open()
        keys = opened.keys.range(start=start, end=end, prefix=prefix, primary=primary)
        return opened.reads.keys(keys, page_size)

    def scan_arrow(
        self,
        *,
        start: Any = None,
        end: Any = None,
        prefix: Any = None,
        primary: Any = None,
        page_size: int | None = None,
    ) -> ArrowScan:
        """Iterate over pyarrow record batches, without an object per entry; the parameters are
        those of `entries`.

        Keys and values are as they are stored, see `ArrowScan`. Raises InvalidKey, and CodecMissing
        without pyarrow.

        ::

            async for batch in table.scan_arrow(page_size=10_000):
                print(batch.num_rows)
        """
        opened = self._open()
        keys = opened.keys.range(start=start, end=end, prefix=prefix, primary=primary)
        return opened.reads.arrow(keys, page_size)

    def watch(self, start: WatchStart = None) -> Watch[K, V]:
        """Iterate over the changes of the table, without end unless it is sealed.

        `start`: None yields all entries first, and then every change since; ``"now"`` yields later
        changes only, ``"earliest"`` also those that compaction has left, and a position (or its
        text) those after it. With None, a change around the beginning may be yielded twice. Raises
        InvalidRequest, InvalidPosition; `Watch` has the errors of iterating.

        ::

            async for change in table.watch():
                print(change.key, change.value, change.version)
        """
        return self._open().reads.watch(start)
