"""What every `ports.Disk` does: the simulated one and the machine's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import ObjectExists, ObjectNotFound
from anabranch.common.storage.ports import Disk
from kit.simdisk import SimDisk

MakeDisk = Callable[[Path], Disk]


@pytest.fixture(params=[lambda _: SimDisk(), LocalDisk], ids=["simulated", "local"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: MakeDisk = request.param
    return make(tmp_path)


def contents(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    return data


def make(disk: Disk, path: str, data: bytes = b"data") -> None:
    file = disk.create(path)
    file.write([data], 0)
    file.close()


def test_a_created_file_holds_zeros_of_its_size(disk: Disk) -> None:
    file = disk.create("a", 1000)
    assert file.size() == 1000
    assert file.read(0, 2000) == bytes(1000)
    file.close()


def test_creating_a_file_twice_is_refused(disk: Disk) -> None:
    make(disk, "a")
    with pytest.raises(ObjectExists):
        disk.create("a")
    assert contents(disk, "a") == b"data"


def test_a_missing_file_is_not_found(disk: Disk) -> None:
    for attempt in (disk.open, disk.unlink, lambda path: disk.rename(path, "b")):
        with pytest.raises(ObjectNotFound):
            attempt("a")
    with pytest.raises(ObjectNotFound):
        disk.link("a", "b")
    with pytest.raises(ObjectNotFound):
        disk.create("nowhere/a")


def test_what_is_written_is_read_at_once(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"one", bytearray(b"two"), memoryview(b"three")], 2)
    assert file.read(0, 100) == b"\0\0onetwothree"
    file.write_synced([b"TWO"], 5)
    assert file.read(2, 6) == b"oneTWO"
    assert file.size() == 13
    file.sync()
    assert file.read_stored(0, 13) == b"\0\0oneTWOthree"
    file.close()


def test_what_is_stored_is_read_from_any_place_and_up_to_the_end(disk: Disk) -> None:
    data = b"".join(b"%07d;" % index for index in range(300_000))
    file = disk.create("a")
    file.write_synced([data], 0)
    for offset, length in ((0, len(data)), (5000, 3), (4095, 4098), (len(data) - 10, 100)):
        assert file.read_stored(offset, length) == data[offset : offset + length]
    assert file.read_stored(len(data), 10) == b""
    assert file.read_stored(len(data) + 8192, 10) == b""
    file.write([b"unsynced"], 0)
    assert file.read_stored(0, 8) == b"unsynced", "what is dirty is written to the disk first"
    file.close()


def test_more_buffers_than_one_call_takes_are_written_in_order(disk: Disk) -> None:
    parts = [b"%06d" % index for index in range(2500)]
    file = disk.create("a")
    file.write(parts, 3)
    file.write_synced(parts, 3 + 15000)
    assert file.read(3, 40000) == b"".join(parts) * 2
    file.close()


def test_empty_buffers_write_nothing(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"", b"x", b""], 0)
    file.write_synced([b""], 5)
    assert file.read(0, 10) == b"x"
    file.close()


def test_names_are_listed_in_order(disk: Disk) -> None:
    disk.make_directory("d/e")
    for path in ("b", "a", "d/z", "d/e/y"):
        make(disk, path)
    assert list(disk.list()) == ["a", "b", "d"]
    assert list(disk.list("d")) == ["e", "z"]
    assert list(disk.list("d/e")) == ["y"]
    assert list(disk.list("nowhere")) == []
    assert disk.exists("d/e/y")
    assert not disk.exists("d/y")


def test_making_a_directory_twice_is_success(disk: Disk) -> None:
    disk.make_directory("d")
    make(disk, "d/a")
    disk.make_directory("d")
    disk.sync_directory("d")
    disk.sync_directory()
    assert contents(disk, "d/a") == b"data"


def test_a_link_is_a_second_name_and_never_replaces(disk: Disk) -> None:
    make(disk, "a")
    disk.link("a", "b")
    disk.unlink("a")
    assert contents(disk, "b") == b"data"
    make(disk, "c")
    with pytest.raises(ObjectExists):
        disk.link("b", "c")


def test_a_rename_replaces_its_target(disk: Disk) -> None:
    make(disk, "a", b"new")
    make(disk, "b", b"old")
    disk.rename("a", "b")
    assert contents(disk, "b") == b"new"
    assert not disk.exists("a")


def test_an_open_file_outlives_its_name(disk: Disk) -> None:
    file = disk.create("a")
    file.write([b"data"], 0)
    disk.unlink("a")
    assert file.read(0, 4) == b"data"
    file.close()
