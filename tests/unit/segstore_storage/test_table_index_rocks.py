"""RocksDB as a table index: a full disk, a slow one, and its end beside calls."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.common.errors import NoRoom, Overloaded, Unavailable
from anabranch.segstore.adapters.table_index import rocks
from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.domain.table.tail import TailEntry
from anabranch.segstore.ports_table import IndexState, TableIndex
from kit.small_disk import SmallDisk, small_disk, why_no_small_disk
from kit.table_index import SMALL, closing, columns

SIZE = 16 << 20
ROWS = 40
WRITES_MAX = 100
GRACE_S = 0.05


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    missing = why_no_small_disk()
    if missing:
        pytest.skip(missing)
    with small_disk(tmp_path, SIZE) as disk:
        yield disk


def write(index: TableIndex, before: IndexState) -> IndexState:
    at = before.indexed
    rows = {b"%06d" % number: TailEntry(number, 0, bytes(1000)) for number in range(at, at + ROWS)}
    return index.write(before, at + ROWS, (at, 0), columns(rows), {})


def test_a_full_disk_refuses_writes_and_loses_nothing(disk: SmallDisk) -> None:
    indexes = RocksIndexes(SMALL)
    directory = disk.root / "index"
    index: TableIndex = indexes.open(directory)
    state = write(index, IndexState(1))
    index.flush()
    disk.fill()
    with suppress(NoRoom):
        for _ in range(WRITES_MAX):
            state = write(index, state)
    with pytest.raises(NoRoom):
        write(index, state)
    assert index.state(1) == state
    assert len(index.scan(1, b"", b"", 10**6, 1 << 30, values=True).rows.keys) == state.entries
    index.close()
    disk.free()
    with closing(indexes.open(directory)) as index:
        again = index.state(1)
        assert again is not None
        assert ROWS <= again.entries <= state.entries
        assert write(index, again).entries == again.entries + ROWS


def test_a_write_waits_only_so_long_for_compactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RocksIndexes(SMALL).open(tmp_path)) as index:
        state = write(index, IndexState(1))
        monkeypatch.setattr(rocks, "_LEVEL_0_FILES_MAX", -1)
        monkeypatch.setattr(rocks, "_ROOM_PAUSES_MAX", 2)
        with pytest.raises(Overloaded):
            write(index, state)
        assert index.state(1) == state


def test_closing_waits_for_an_iteration(tmp_path: Path) -> None:
    indexes = RocksIndexes(SMALL)
    index = indexes.open(tmp_path)
    index.flush()
    closer = threading.Thread(target=index.close)
    with index._rows.iterate(b"") as rows:
        closer.start()
        while not is_closed(index):
            pass
        closer.join(GRACE_S)
        assert closer.is_alive()
        assert len(rows.take(10)) == 1
    closer.join()
    indexes.open(tmp_path).close()


def is_closed(index: TableIndex) -> bool:
    try:
        index.state(1)
    except Unavailable:
        return True
    return False
