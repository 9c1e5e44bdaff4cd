"""The parts that the tables of all containers of a store share, and their limits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Protocol, TypeVar

from anabranch.segstore.domain.table.tail import TableChange, TableTail, TailEntry
from anabranch.segstore.ports_table import TableIndexes
from anabranch.segstore.shell.memory.catch_up import CatchUp

T = TypeVar("T")

_ENTRY_SIZE_BYTES = 250
"""About what a kept entry costs beyond its key and value."""


class Run(Protocol):
    """Runs a blocking call without holding up the event loop."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Sizes in bytes, times in seconds.

    `unindexed_max`: above this many bytes of one table segment that the index lacks, updates are
    refused as Overloaded. `hot_size_max`: the memory for entries that were read. A segment is
    compacted when less than `live_share` of it is live and it has `compact_size_min` bytes, at
    checks every `compact_s`.
    """

    unindexed_max: int = 64 * 1024 * 1024
    hot_size_max: int = 64 * 1024 * 1024
    live_share: float = 0.5
    compact_size_min: int = 4 * 1024 * 1024
    compact_s: float = 30.0


class HotEntries:
    """Entries that were read from indexes. None: the key has no entry. `size` in bytes.

    An entry belongs to a tail, and is the latest one of its key unless the tail knows a later one.
    When a segment leaves the memory, its next tail finds none of them. There are two generations:
    an entry that is read moves to the young one, and when this has half of the size, it becomes the
    old one, and the old one is dropped. So a read of many keys needs no work for each of them.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._young = _Generation()
        self._old = _Generation()

    @property
    def size(self) -> int:
        return self._young.size + self._old.size

    def look(self, tail: TableTail, keys: Sequence[bytes]) -> dict[bytes, TailEntry | None]:
        """The entries of those of the keys that are here."""
        young = self._young.entries.get(tail.token, {})
        found = dict(zip(keys, map(young.get, keys, repeat(_UNKNOWN)), strict=False))
        missing = [key for key, entry in found.items() if entry is _UNKNOWN]
        for key in missing:
            entry = self._old.pop(tail.token, key)
            if entry is _UNKNOWN:
                del found[key]
            else:
                found[key] = entry
                self.keep(tail, key, entry)
        return found

    def keep(self, tail: TableTail, key: bytes, entry: TailEntry | None) -> None:
        """Keep the entry, the latest one of those that the tail has dropped."""
        for each in (self._young, self._old):
            each.pop(tail.token, key)
        self._young.put(tail.token, key, entry)
        self._make_room()

    def _make_room(self) -> None:
        if self._old.size > self._size_max // 2:
            self._old = _Generation()
        if self._young.size > self._size_max // 2:
            self._young, self._old = _Generation(), self._young

    def replace(self, tail: TableTail, dropped: Iterable[TableChange]) -> None:
        """Replace the kept entries by those that the tail dropped, in their order."""
        for change in dropped:
            for generation in (self._young, self._old):
                kept = generation.entries.get(tail.token)
                if not kept:
                    continue
                for key in filter(kept.__contains__, change.places):
                    generation.put(tail.token, key, change.entry(change.places[key]))
            self._make_room()


_UNKNOWN = TailEntry(-1, 0, None)
"""In the place of an entry that is not kept."""


class _Generation:
    """Entries by the token of their tail and key, and about their size in bytes."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[object, dict[bytes, TailEntry | None]] = {}
        self.size = 0

    def put(self, token: object, key: bytes, entry: TailEntry | None) -> None:
        """Put or replace the entry of the key."""
        entries = self.entries.setdefault(token, {})
        if key in entries:
            self.size -= _size(key, entries[key])
        entries[key] = entry
        self.size += _size(key, entry)

    def pop(self, token: object, key: bytes) -> TailEntry | None:
        """Remove the entry of the key, and return it; `_UNKNOWN`: it is not here."""
        entry = self.entries.get(token, {}).pop(key, _UNKNOWN)
        if entry is not _UNKNOWN:
            self.size -= _size(key, entry)
        return entry


def _size(key: bytes, entry: TailEntry | None) -> int:
    value = entry.value if entry is not None else None
    return len(key) + len(value or b"") + _ENTRY_SIZE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """`directory` holds a directory for the index of each container. `reading` and `writing` run
    calls of the indexes in threads of their own: writes of all containers one after the other,
    reads beside them."""

    indexes: TableIndexes
    directory: Path
    reading: Run
    writing: Run
    catch_up: CatchUp
    limits: TableLimits
    hot: HotEntries = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hot", HotEntries(self.limits.hot_size_max))
