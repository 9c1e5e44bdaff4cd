"""Table indexes for tests: places where one lives, and a model of what it holds."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch.common.wire.messages import REQUESTS_REMEMBERED
from anabranch.common.wire.table_columns import EntryColumns
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from anabranch.segstore.adapters.table_index.rocks import IndexLimits, RocksIndexes
from anabranch.segstore.domain.table.tail import Requests, TailEntry
from anabranch.segstore.ports_table import IndexPage, IndexState, TableIndex, TableIndexes

SMALL = IndexLimits(cache_size_bytes=4 << 20, memtable_size_bytes=64 << 10, clients_max=10)
WHOLE = (b"", b"", 1 << 30, 1 << 30)
"""The bounds of a scan of a whole table."""


def columns(entries: Mapping[bytes, TailEntry]) -> EntryColumns:
    """The entries as `TableIndex.write` takes them."""
    versions, expires_ms, values = zip(*entries.values(), strict=True) if entries else ((), (), ())
    return EntryColumns(list(entries), versions, expires_ms, values)


Written = tuple[int, tuple[int, int], Mapping[bytes, TailEntry], Mapping[bytes, Requests]]
"""The arguments of `TableIndex.write` after the state, with entries by key."""


def write(index: TableIndex, before: IndexState, *written: *Written) -> IndexState:
    """Write these entries to the index."""
    indexed, anchor, entries, requests = written
    return index.write(before, indexed, anchor, columns(entries), requests)


def rows_of(page: IndexPage) -> list[tuple[bytes, TailEntry]]:
    """The rows of a scan, one by one."""
    keys, *rest = page.rows
    return list(zip(keys, map(TailEntry, *rest), strict=True))


@dataclass
class Place:
    """A directory with an index, and a way to kill what has opened it."""

    indexes: TableIndexes
    directory: Path
    kill: Callable[[TableIndex], None]
    """Leave the directory as the end of the process would, with the index open."""

    def open(self) -> TableIndex:
        return self.indexes.open(self.directory)

    def killed(self, index: TableIndex) -> TableIndex:
        """Kill it, then open it again."""
        self.kill(index)
        return self.open()

    def reopened(self, index: TableIndex) -> TableIndex:
        index.close()
        return self.open()


def rocks_place(root: Path, clients_max: int = 10) -> Place:
    """A place on the disk, with tiny memtables."""
    directory = root / "index"

    def kill(index: TableIndex) -> None:
        copy = root / "as-killed"
        shutil.copytree(directory, copy)
        index.close()
        shutil.rmtree(directory)
        copy.rename(directory)

    return Place(RocksIndexes(replace(SMALL, clients_max=clients_max)), directory, kill)


def memory_place(root: Path, clients_max: int = 10) -> Place:
    """A place in memory."""
    indexes = MemoryIndexes(clients_max)
    return Place(indexes, root / "index", lambda _: indexes.crash(root / "index"))


PLACES: dict[str, Callable[[Path, int], Place]] = {"rocks": rocks_place, "memory": memory_place}


@contextmanager
def closing(index: TableIndex) -> Iterator[TableIndex]:
    try:
        yield index
    finally:
        index.close()


@dataclass
class TableModel:
    """What an index must hold of one table. `performed` has every request ever, by client."""

    state: IndexState
    rows: dict[bytes, TailEntry] = field(default_factory=dict)
    performed: dict[bytes, Requests] = field(default_factory=dict)

    def copy(self) -> "TableModel":
        performed = {client: dict(requests) for client, requests in self.performed.items()}
        return TableModel(self.state, dict(self.rows), performed)

    def write(
        self,
        indexed: int,
        anchor: tuple[int, int],
        entries: Mapping[bytes, TailEntry],
        requests: Mapping[bytes, Requests],
    ) -> None:
        for key, entry in entries.items():
            old = self.rows.get(key)
            if old is None or old.version < entry.version:
                self.rows.pop(key, None)
                if entry.value is not None:
                    self.rows[key] = entry
        for client, outcomes in requests.items():
            self.performed.setdefault(client, {}).update(outcomes)
        self._count(replace(self.state, indexed=indexed, anchor=anchor[0], anchor_crc=anchor[1]))

    def remove(self, keys: Mapping[bytes, int]) -> None:
        for key, version in keys.items():
            if key in self.rows and self.rows[key].version == version:
                del self.rows[key]
        self._count(self.state)

    def _count(self, state: IndexState) -> None:
        size = sum(len(key) + len(entry.value or b"") for key, entry in self.rows.items())
        self.state = replace(state, entries=len(self.rows), live_size=size)

    def in_range(self, start: bytes, end: bytes) -> Sequence[tuple[bytes, TailEntry]]:
        return [
            (key, entry)
            for key, entry in sorted(self.rows.items())
            if start <= key and (not end or key < end)
        ]


def check(index: TableIndex, model: TableModel) -> None:
    """The index holds exactly the rows of the model, and forgets requests only by saying so."""
    number = model.state.number
    page = index.scan(number, *WHOLE, values=True)
    assert rows_of(page) == model.in_range(b"", b"")
    assert not page.more
    keys = [*model.rows, b"missing"]
    assert index.get_many(number, keys) == [model.rows.get(key) for key in keys]
    for client, performed in model.performed.items():
        found, complete_from = index.requests(number, client)
        assert found.items() <= performed.items()
        assert complete_from >= model.state.complete_from
        last = sorted(performed)[-REQUESTS_REMEMBERED:]
        certain = {n for n in last if performed[n].version >= complete_from}
        assert certain <= found.keys() <= set(last)


def holds(index: TableIndex, models: Sequence[TableModel]) -> bool:
    """Whether the tables' states are those of the models; then so must be the rest."""
    empty = [replace(model.state, indexed=0) for model in models if not model.state.indexed]
    assert not [state for state in empty if state.entries]
    for model in models:
        expected = model.state if model.state.indexed else None
        if index.state(model.state.number) != expected:
            return False
    for model in models:
        check(index, model)
    return True
