"""The simulated disk forgets exactly what was not synced."""

import errno

import pytest

from anabranch.common.errors import DiskFailed
from kit.rng import seeded
from kit.simdisk import (
    KEEP_ALL,
    KEEP_CONTENTS,
    KEEP_NAMES,
    LOSE_ALL,
    Crashed,
    RandomSurvival,
    SimDisk,
)


def disk_with(data: bytes, *, synced: bool = True) -> SimDisk:
    disk = SimDisk()
    file = disk.create("a")
    file.write([data], 0)
    if synced:
        file.sync()
        disk.sync_directory()
    return disk


def contents(disk: SimDisk, path: str = "a") -> bytes:
    file = disk.open(path)
    return file.read(0, file.size())


def test_a_power_loss_takes_unsynced_contents_and_names_apart() -> None:
    for survival, names, data in (
        (LOSE_ALL, [], b""),
        (KEEP_NAMES, ["a"], b""),
        (KEEP_CONTENTS, [], b""),
        (KEEP_ALL, ["a"], b"data"),
    ):
        disk = disk_with(b"data", synced=False)
        disk.power_loss(survival)
        assert list(disk.list()) == names
        if names:
            assert contents(disk) == data


def test_a_power_loss_keeps_what_was_synced() -> None:
    disk = disk_with(b"data")
    disk.open("a").write([b"more"], 4)
    disk.power_loss(LOSE_ALL)
    assert contents(disk) == b"data"


def test_a_kill_keeps_what_was_written_but_unsynced() -> None:
    disk = disk_with(b"data", synced=False)
    old = disk.open("a")
    disk.kill()
    assert contents(disk) == b"data"
    with pytest.raises(Crashed):
        old.read(0, 1)
    disk.power_loss(LOSE_ALL)
    assert list(disk.list()) == []


def test_a_write_is_torn_at_sectors() -> None:
    outcomes = set()
    for seed in range(200):
        disk = disk_with(bytes(2048))
        disk.open("a").write([b"x" * 1600], 100)
        disk.power_loss(RandomSurvival(seeded(seed)))
        data = contents(disk)
        assert len(data) == 2048
        outcomes.add(tuple(data[at] == ord("x") for at in (100, 511, 512, 1023, 1024, 1699)))
    for first, first_end, second, second_end, *_ in outcomes:
        assert first == first_end
        assert second == second_end
    assert len(outcomes) == 2**4, "every subset of the four sectors"


def test_an_unlink_that_was_not_synced_may_be_undone() -> None:
    disk = disk_with(b"data")
    disk.unlink("a")
    disk.power_loss(LOSE_ALL)
    assert contents(disk) == b"data"


def test_a_directory_that_was_not_synced_takes_its_files_along() -> None:
    disk = SimDisk()
    disk.make_directory("d")
    disk.create("d/a").write_synced([b"data"], 0)
    disk.sync_directory("d")
    disk.power_loss(LOSE_ALL)
    assert list(disk.list()) == []
    assert not disk.exists("d/a")


def test_a_failed_sync_drops_the_dirty_pages_but_shows_them() -> None:
    disk = disk_with(b"data")
    file = disk.open("a")
    file.write([b"more"], 4)
    disk.fail_at(disk.calls + 1, errno.EIO)
    with pytest.raises(DiskFailed):
        file.sync()
    file.sync()
    assert contents(disk) == b"datamore"
    twin = disk.fork()
    twin.power_loss(KEEP_ALL)
    assert contents(twin) == b"data"
    assert file.read_stored(0, 100) == b"data", "what a direct read shows"


def test_a_full_disk_takes_a_part_of_the_write() -> None:
    disk = disk_with(b"data")
    disk.fail_at(disk.calls + 1, errno.ENOSPC)
    with pytest.raises(DiskFailed, match="No space"):
        disk.open("a").write_synced([b"more"], 4)
    assert contents(disk) == b"datamo"


def test_a_planned_crash_comes_before_during_or_after_the_call() -> None:
    for when, seen, durable in (
        ("before", b"", b""),
        ("during", b"data", b""),
        ("after", b"data", b"data"),
    ):
        disk = disk_with(b"")
        disk.crash_at(disk.calls + 1, when)  # type: ignore[arg-type]
        with pytest.raises(Crashed):
            disk.open("a").write_synced([b"data"], 0)
        with pytest.raises(Crashed):
            disk.exists("a")
        disk.kill()
        assert contents(disk) == seen
        disk.power_loss(LOSE_ALL)
        assert contents(disk) == durable


def test_a_fork_is_independent() -> None:
    disk = disk_with(b"data", synced=False)
    twin = disk.fork()
    twin.open("a").write([b"twin"], 0)
    twin.power_loss(LOSE_ALL)
    assert contents(disk) == b"data"
    assert [call.verb for call in disk.trace] == ["create", "write"]
