"""A process that is killed while it writes leaves an index as it was after some earlier write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.ports_table import IndexState
from kit.table_index import SMALL, TableModel, closing, holds
from kit.table_index_child import TABLES, write_number
from kit.thorough import is_thorough

KILLED_AFTER = (40, 333, 700) if not is_thorough() else tuple(range(20, 3000, 61))


def kill_after(directory: Path, writes: int) -> int:
    """Kill the child some time after this write; returns the last one that it told of."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "kit.table_index_child", str(directory)],
        stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdout is not None
    with child:
        last = 0
        for line in child.stdout:
            last = int(line.split()[1])
            if last == writes:
                child.kill()
    return last


@pytest.mark.parametrize("writes", KILLED_AFTER)
def test_state_and_rows_agree_after_a_kill(tmp_path: Path, writes: int) -> None:
    last = kill_after(tmp_path / "index", writes)
    assert last >= writes
    with closing(RocksIndexes(SMALL).open(tmp_path / "index")) as index:
        states = [index.state(table) for table in range(TABLES)]
        kept = max((state.anchor // 100 for state in states if state), default=0)
        assert kept > last - 100, "memtables of 64 KiB do not hold that many writes"
        models = [TableModel(IndexState(table)) for table in range(TABLES)]
        for number in range(1, kept + 1):
            models[number % TABLES].write(*write_number(number))
        assert holds(index, models)
