"""The index of table segments in memory, for ephemeral stores and tests.

The directories' contents live as long as their `MemoryIndexes`. As on a disk, a crash loses the
newest writes, those that were not flushed, and damage shows when a row is read.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from anabranch.common.errors import DirectoryInUse, IndexDamaged, NoRoom, Unavailable
from anabranch.segstore.adapters.table_index.index import RowIndex
from anabranch.segstore.adapters.table_index.rows import LAST_KEY, LAST_ROW

CLIENTS_MAX = 10_000
UNFLUSHED_MAX = 100
"""Writes that a crash may lose; older ones count as flushed."""

_Undo = list[tuple[bytes, bytes | None]]
"""The rows before a write."""


class _Iteration:
    """See `index.Iteration`."""

    def __init__(self, rows: Iterator[tuple[bytes, bytes]]) -> None:
        self._rows = rows

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        return list(islice(self._rows, count))


@dataclass(slots=True)
class Contents:
    """What lies in a directory: the rows, their keys in order, and what undoes the last writes."""

    rows: dict[bytes, bytes] = field(default_factory=lambda: {LAST_KEY: LAST_ROW})
    keys: list[bytes] = field(default_factory=lambda: [LAST_KEY])
    unflushed: list[_Undo] = field(default_factory=list)
    is_readable: bool = True

    def change(self, changes: Iterable[tuple[bytes, bytes | None]]) -> _Undo:
        """Put rows, or remove those that are None; returns the changes that undo it."""
        undo: _Undo = []
        for key, row in changes:
            old = self.rows.get(key)
            undo.append((key, old))
            if row is not None:
                self.rows[key] = row
                if old is None:
                    insort(self.keys, key)
            elif old is not None:
                del self.rows[key]
                del self.keys[bisect_left(self.keys, key)]
        return undo[::-1]


class MemoryIndexes:
    """`TableIndexes`. `full` directories refuse writes with NoRoom."""

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._contents: dict[Path, Contents] = {}
        self._open: dict[Path, MemoryRows] = {}
        self.full: set[Path] = set()

    def open(self, directory: Path) -> RowIndex:
        contents = self._contents.setdefault(directory, Contents())
        if not contents.is_readable or contents.rows[LAST_KEY] != LAST_ROW:
            raise IndexDamaged("the table index is damaged", directory=str(directory))
        if directory in self._open and not self._open[directory].is_closed:
            raise DirectoryInUse("the table index is open", path=str(directory))
        rows = MemoryRows(contents, lambda: directory in self.full)
        self._open[directory] = rows
        return RowIndex(rows, self._clients_max)

    def destroy(self, directory: Path) -> None:
        assert directory not in self._open or self._open[directory].is_closed
        self._contents.pop(directory, None)

    # --- faults -----------------------------------------------------------------------------------

    def crash(self, directory: Path, lost: int = UNFLUSHED_MAX) -> None:
        """End the open index as a kill does: its last `lost` writes are gone, as far as they were
        not flushed."""
        if directory in self._open:
            self._open.pop(directory).is_closed = True
        contents = self._contents.get(directory, Contents())
        for _ in range(min(lost, len(contents.unflushed))):
            contents.change(contents.unflushed.pop())
        contents.unflushed.clear()

    def damage(self, directory: Path, at: int | None = None) -> None:
        """Flip a bit of one of the stored rows, the one number `at` modulo their number; None: make
        the directory one that cannot be opened."""
        contents = self._contents[directory]
        if at is None:
            contents.is_readable = False
            return
        key = contents.keys[at % len(contents.keys)]
        row = bytearray(contents.rows[key])
        row[at % len(row)] ^= 1 << at % 8
        contents.rows[key] = bytes(row)


class MemoryRows:
    """`SortedRows` over the contents of a directory, or over its own."""

    def __init__(
        self, contents: Contents | None = None, is_full: Callable[[], bool] = lambda: False
    ) -> None:
        self._contents = contents or Contents()
        self._is_full = is_full
        self._lock = threading.Lock()
        self.is_closed = False

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._lock:
            self._check()
            return [self._contents.rows.get(key) for key in keys]

    def iterate(self, start: bytes) -> AbstractContextManager["_Iteration"]:
        with self._lock:
            self._check()
            keys = self._contents.keys[bisect_left(self._contents.keys, start) :]
            rows = [(key, self._contents.rows[key]) for key in keys]
            return nullcontext(_Iteration(iter(rows)))

    def pause(self) -> None:
        """Do nothing: rows in memory are few."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        with self._lock:
            self._write([*puts, *((key, None) for key in deletes)])

    def delete_range(self, start: bytes, end: bytes) -> None:
        with self._lock:
            keys = self._contents.keys
            gone = keys[bisect_left(keys, start) : bisect_left(keys, end)]
            self._write([(key, None) for key in gone])

    def _write(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._check()
        if self._is_full():
            raise NoRoom("the table index has no room")
        self._contents.unflushed.append(self._contents.change(changes))
        del self._contents.unflushed[:-UNFLUSHED_MAX]

    def flush(self) -> None:
        with self._lock:
            self._check()
            self._contents.unflushed.clear()

    def close(self) -> None:
        with self._lock:
            if not self.is_closed:
                self._contents.unflushed.clear()
            self.is_closed = True

    def _check(self) -> None:
        if self.is_closed:
            raise Unavailable("the table index is closed")
