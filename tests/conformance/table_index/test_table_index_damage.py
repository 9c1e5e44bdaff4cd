"""Damaged table indexes: an index answers right or raises IndexDamaged, and never answers wrong."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from anabranch.common.errors import IndexDamaged
from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.adapters.table_index.rows import ENTRY, LAST_KEY, head, sealed
from anabranch.segstore.domain.table.tail import TailEntry
from anabranch.segstore.ports_table import IndexState, TableIndex
from kit.rng import Random, seeded
from kit.table_index import SMALL, WHOLE, TableModel, closing, holds, write
from kit.table_index_child import TABLES, write_number
from kit.thorough import one_in

WRITES = 90
FLIPS = 480 // one_in(12)
CUTS = 200 // one_in(10)

History = Sequence[Sequence[TableModel]]
"""The tables after each write, the first ones before all."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, History]:
    """The directory of a closed index, with files on several levels, and its past."""
    directory = tmp_path_factory.mktemp("table-index") / "whole"
    models = [TableModel(IndexState(table)) for table in range(TABLES)]
    history = [[model.copy() for model in models]]
    with closing(RocksIndexes(SMALL).open(directory)) as index:
        for number in range(1, WRITES + 1):
            model = models[number % TABLES]
            before = model.state
            model.write(*write_number(number))
            assert write(index, before, *write_number(number)) == model.state
            history.append([*history[-1]])
            history[-1][number % TABLES] = model.copy()
    return directory, history


def is_right(directory: Path, history: History) -> bool:
    """Whether the index answers right; False if it raised, and then it can be replaced."""
    indexes = RocksIndexes(SMALL)
    raised: list[IndexDamaged] = []  # with tracebacks, which must not keep the database open
    try:
        index: TableIndex = indexes.open(directory)
    except IndexDamaged as error:
        raised.append(error)
    else:
        with closing(index):
            try:
                continue_right(index, history)
            except IndexDamaged as error:
                raised.append(error)
    if not raised:
        return True
    indexes.destroy(directory)
    with closing(indexes.open(directory)) as index:
        assert index.state(0) is None
    return False


def continue_right(index: TableIndex, history: History) -> None:
    """The index is as it was after some write, and takes another one."""
    past = next((models for models in reversed(history) if holds(index, models)), None)
    assert past is not None, "an index that answers is as it was after some write"
    models = [model.copy() for model in past]
    written = write_number(WRITES + 1)
    before = models[0].state
    models[0].write(*written)
    write(index, before, *written)
    assert holds(index, models)


def test_an_undamaged_copy_is_right(whole: tuple[Path, History], tmp_path: Path) -> None:
    source, history = whole
    copy = shutil.copytree(source, tmp_path / "copy")
    assert is_right(copy, history[-1:])


Harm = Callable[[Path, Random], None]


def flip(file: Path, rng: Random) -> None:
    data = bytearray(file.read_bytes())
    data[int(rng.random() * len(data))] ^= 1 << int(rng.random() * 8)
    file.write_bytes(data)


def cut(file: Path, rng: Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(int(rng.random() * size))


def remove(file: Path, _: Random) -> None:
    file.unlink()


@pytest.mark.parametrize(
    ("harm", "count"), [(flip, FLIPS), (cut, CUTS), (remove, None)], ids=["flip", "cut", "remove"]
)
def test_a_damaged_index_answers_right_or_raises(
    whole: tuple[Path, History], tmp_path: Path, harm: Harm, count: int | None
) -> None:
    source, history = whole
    files = sorted(file.name for file in source.iterdir() if file.stat().st_size)
    assert {name.split("-")[0].split(".")[-1] for name in files} >= {"MANIFEST", "CURRENT", "sst"}
    raised = set()
    for number in range(len(files) if count is None else count):
        copy = shutil.copytree(source, tmp_path / str(number))
        name = files[number % len(files)]
        harm(copy / name, seeded(number))
        if not is_right(copy, history):
            raised.add(name)
        shutil.rmtree(copy)
    # A cut in the last bytes of a manifest, whose size differs from run to run, may lose nothing.
    assert "CURRENT" in raised
    assert sum(name.endswith(".sst") for name in raised) >= 2


def test_a_directory_of_something_else_is_damaged(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    directory.mkdir()
    (directory / "note").write_text("not an index")
    indexes = RocksIndexes(SMALL)
    with pytest.raises(IndexDamaged):
        indexes.open(directory)
    indexes.destroy(directory)
    directory.write_text("not a directory")
    with pytest.raises(IndexDamaged):
        indexes.open(directory)
    indexes.destroy(directory)
    indexes.open(directory).close()


@pytest.mark.parametrize("row", [None, sealed(LAST_KEY, b"\2\0\0\0")], ids=["none", "newer"])
def test_an_index_of_another_format_is_damaged(tmp_path: Path, row: bytes | None) -> None:
    rows = Rdict(str(tmp_path), Options(raw_mode=True))
    rows[b"key"] = b"value"
    if row is not None:
        rows[LAST_KEY] = row
    rows.close()
    indexes = RocksIndexes(SMALL)
    with pytest.raises(IndexDamaged):
        indexes.open(tmp_path)
    indexes.destroy(tmp_path)
    indexes.open(tmp_path).close()


def test_a_row_of_another_key_is_damaged(tmp_path: Path) -> None:
    """The engine's own checksums cannot see it."""
    indexes = RocksIndexes(SMALL)
    with closing(indexes.open(tmp_path)) as index:
        write(index, IndexState(1), 1, (0, 0), {b"a": TailEntry(1, 0, b"x")}, {})
    rows = Rdict(str(tmp_path), Options(raw_mode=True))
    rows[head(1, ENTRY) + b"b"] = rows[head(1, ENTRY) + b"a"]
    rows.close()
    with closing(indexes.open(tmp_path)) as index:
        assert index.get_many(1, [b"a"]) == [TailEntry(1, 0, b"x")]
        with pytest.raises(IndexDamaged):
            index.get_many(1, [b"a", b"b"])
        with pytest.raises(IndexDamaged):
            index.scan(1, *WHOLE, values=False)
