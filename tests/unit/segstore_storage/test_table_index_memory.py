"""The faults of the table index in memory."""

from pathlib import Path

import pytest

from anabranch.common.errors import IndexDamaged, NoRoom, Unavailable
from anabranch.segstore.adapters.table_index.index import (
    SLICE_ROWS_MAX,
    SLICES_BETWEEN_PAUSES,
    RowIndex,
)
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes, MemoryRows
from anabranch.segstore.domain.table.tail import TailEntry
from anabranch.segstore.ports_table import IndexState, TableIndex
from kit.table_index import WHOLE, TableModel, closing, holds, write
from kit.table_index_child import TABLES, write_number

WRITES = 20
LONG = SLICES_BETWEEN_PAUSES * SLICE_ROWS_MAX


def filled(index: TableIndex, first: int, count: int, models: list[TableModel]) -> None:
    for number in range(first, first + count):
        model = models[number % TABLES]
        before = model.state
        model.write(*write_number(number))
        write(index, before, *write_number(number))


@pytest.mark.parametrize("lost", [0, 1, 7, WRITES])
def test_a_crash_loses_the_newest_writes(tmp_path: Path, lost: int) -> None:
    indexes = MemoryIndexes()
    index: TableIndex = indexes.open(tmp_path)
    models = [TableModel(IndexState(table)) for table in range(TABLES)]
    filled(index, 1, WRITES - lost, models)
    ahead = [model.copy() for model in models]
    filled(index, WRITES - lost + 1, lost, ahead)
    indexes.crash(tmp_path, lost)
    with pytest.raises(Unavailable):
        index.state(1)
    with closing(indexes.open(tmp_path)) as index:
        assert holds(index, models)
        filled(index, WRITES - lost + 1, lost, models)
        assert holds(index, ahead)


def test_a_crash_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    indexes = MemoryIndexes()
    index: TableIndex = indexes.open(tmp_path)
    models = [TableModel(IndexState(table)) for table in range(TABLES)]
    filled(index, 1, 5, models)
    index.flush()
    filled(index, 6, 5, [model.copy() for model in models])
    indexes.crash(tmp_path)
    with closing(indexes.open(tmp_path)) as index:
        assert holds(index, models)
    indexes.crash(tmp_path)
    with closing(indexes.open(tmp_path)) as index:
        assert holds(index, models)


def test_a_damaged_row_or_directory_raises(tmp_path: Path) -> None:
    indexes = MemoryIndexes()
    models = [TableModel(IndexState(table)) for table in range(TABLES)]
    with closing(indexes.open(tmp_path)) as index:
        before = models[1].state
        models[1].write(*write_number(1))
        write(index, before, *write_number(1))
        assert holds(index, models)
        indexes.damage(tmp_path, 3)
        with pytest.raises(IndexDamaged):
            holds(index, models)
    indexes.damage(tmp_path)
    with pytest.raises(IndexDamaged):
        indexes.open(tmp_path)
    indexes.destroy(tmp_path)
    with closing(indexes.open(tmp_path)) as index:
        assert index.state(1) is None


def test_a_full_directory_refuses_writes(tmp_path: Path) -> None:
    indexes = MemoryIndexes()
    models = [TableModel(IndexState(table)) for table in range(TABLES)]
    with closing(indexes.open(tmp_path)) as index:
        filled(index, 1, 3, models)
        indexes.full.add(tmp_path)
        with pytest.raises(NoRoom):
            filled(index, 4, 1, [model.copy() for model in models])
        assert holds(index, models)
        indexes.full.clear()
        filled(index, 4, 1, models)


class PausedRows(MemoryRows):
    """Counts the pauses."""

    pauses = 0

    def pause(self) -> None:
        self.pauses += 1


def test_a_long_scan_pauses_for_other_threads(tmp_path: Path) -> None:
    rows = PausedRows()
    index = RowIndex(rows, 10)
    entries = {b"%06d" % key: TailEntry(1, 0, b"") for key in range(2 * LONG + 1)}
    write(index, IndexState(1), 1, (0, 0), entries, {})
    assert rows.pauses == 0
    assert len(index.scan(1, *WHOLE, values=True).rows.keys) == len(entries)
    assert rows.pauses == 2
