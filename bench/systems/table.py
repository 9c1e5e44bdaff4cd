"""What the workloads ask of a key-value table. The systems' tables and the tests' fake fulfil it.

One client serves all callers of a table at once. Whatever returns from an update is acknowledged
with the durability of the system's class.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, runtime_checkable

from bench.systems.port import System

Entry = tuple[bytes, bytes]
"""(key, value)"""
Version = object
"""Whatever the system says that an entry's version is."""


class Held(NamedTuple):
    """An entry's value, and the version to update it with."""

    value: bytes
    version: Version


@runtime_checkable
class Table(Protocol):
    """A fresh table. Keys are ASCII letters, digits and hyphens."""

    async def create(self, key: bytes, value: bytes) -> Version:
        """Put the value of a key that has no entry → its version."""
        ...

    async def replace(self, key: bytes, value: bytes, version: Version) -> Version | None:
        """Put the value if the entry has this version → its next version; None: it has another."""
        ...

    async def get(self, key: bytes) -> Held:
        """The entry of a key that has one."""
        ...

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Put values without a condition; the entries need not appear together."""
        ...

    def read_back(self) -> AsyncIterator[Sequence[Entry]]:
        """All entries, in any order and not necessarily fast."""
        ...


@runtime_checkable
class BulkTable(Table, Protocol):
    """A table whose client has calls to read many entries."""

    async def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """The values of keys that have entries."""
        ...

    async def scan(self) -> int:
        """Iterate over all entries, as a program does → how many there are."""
        ...


@runtime_checkable
class ArrowTable(BulkTable, Protocol):
    """A table whose client scans into batches of Arrow."""

    async def scan_arrow(self) -> int:
        """As `scan`, in batches."""
        ...


@runtime_checkable
class TableSystem(System, Protocol):
    """A system with key-value tables."""

    def table(self) -> AbstractAsyncContextManager[Table]:
        """A fresh table, deleted after the block."""
        ...
