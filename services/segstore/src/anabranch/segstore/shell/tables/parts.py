"""The parts that the tables of all containers of a store share, and their limits."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
    """Entries that were read from indexes, the least recently used dropped first.

    An entry belongs to a tail, and is the latest one of its key unless the tail knows a later one.
    When a segment leaves the memory, its next tail finds none of them. None: the key has no entry.
    `size` in bytes.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._entries: OrderedDict[tuple[object, bytes], TailEntry | None] = OrderedDict()
        self._keys: dict[object, set[bytes]] = {}
        """The keys of the kept entries, by the token of their tail."""
        self.size = 0
        self.hits = 0
        self.misses = 0

    def look(self, tail: TableTail, key: bytes) -> tuple[TailEntry | None] | None:
        """The key's entry, in a tuple; None if it is not here."""
        name = (tail.token, key)
        try:
            entry = self._entries[name]
        except KeyError:
            self.misses += 1
            return None
        self._entries.move_to_end(name)
        self.hits += 1
        return (entry,)

    def keep(self, tail: TableTail, key: bytes, entry: TailEntry | None) -> None:
        """Keep the entry, the latest one of those that the tail has dropped."""
        name = (tail.token, key)
        if name in self._entries:
            self.size -= _size(key, self._entries.pop(name))
        self._entries[name] = entry
        self._keys.setdefault(tail.token, set()).add(key)
        self.size += _size(key, entry)
        while self.size > self._size_max:
            (token, oldest), dropped = self._entries.popitem(last=False)
            self._forget(token, oldest)
            self.size -= _size(oldest, dropped)

    def _forget(self, token: object, key: bytes) -> None:
        keys = self._keys[token]
        keys.remove(key)
        if not keys:
            del self._keys[token]

    def replace(self, tail: TableTail, dropped: Iterable[TableChange]) -> None:
        """Replace the kept entries by those that the tail dropped, in their order."""
        for change in dropped:
            kept = self._keys.get(tail.token)
            if kept is None:
                return
            for key in kept.intersection(change.block.keys):
                self.keep(tail, key, change.entry(change.places[key]))


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
