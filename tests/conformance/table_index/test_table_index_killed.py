"""A process that is killed while it writes leaves an index as it was after some earlier write, and
one that exits does so without an accident."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.ports_table import IndexState
from kit.table_index import SMALL, TableModel, closing, holds
from kit.table_index_child import TABLES, write_number
from kit.thorough import is_thorough

Child = subprocess.Popen[str]
KILLED_AFTER = (40, 333, 700) if not is_thorough() else tuple(range(20, 3000, 61))


def end_after(directory: Path, writes: int, end: Callable[[Child], None]) -> tuple[int, int]:
    """End the child some time after this write; returns the last one that it told of, and its exit
    code."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "kit.table_index_child", str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        last = 0
        for line in child.stdout:
            last = int(line.split()[1])
            if last == writes:
                end(child)
    return last, child.returncode


def close_input(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.close()


def last_kept(directory: Path) -> int:
    """The last write that the index has; it has exactly those up to this one."""
    with closing(RocksIndexes(SMALL).open(directory)) as index:
        states = [index.state(table) for table in range(TABLES)]
        kept = max((state.anchor // 100 for state in states if state), default=0)
        models = [TableModel(IndexState(table)) for table in range(TABLES)]
        for number in range(1, kept + 1):
            models[number % TABLES].write(*write_number(number))
        assert holds(index, models)
    return kept


@pytest.mark.parametrize("writes", KILLED_AFTER)
def test_state_and_rows_agree_after_a_kill(tmp_path: Path, writes: int) -> None:
    last, _ = end_after(tmp_path, writes, Child.kill)
    assert last >= writes
    assert last_kept(tmp_path) > last - 100, "memtables of 64 KiB do not hold that many writes"


def test_a_process_may_exit_while_a_thread_writes(tmp_path: Path) -> None:
    last, code = end_after(tmp_path, 50, close_input)
    assert code == 0
    assert last_kept(tmp_path) >= last, "the index is closed at the exit"
