"""Directories of this machine: which may hold a journal, who holds them, how fast they sync."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import (
    LocalDisk,
    lock_directory,
    prepare_directory,
)
from anabranch.common.errors import (
    DirectoryInUse,
    DirectoryUnusable,
    DiskFailed,
    FormatTooNew,
    NoRoom,
)
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.local import open_local_journal, probe_sync
from kit.log_driver import Callbacks
from kit.simdisk import SimDisk


@pytest.mark.parametrize("kind", ["nfs4", "9p", "cifs"])
def test_a_journal_is_refused_on_a_network_file_system(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"9 1 0:9 / {tmp_path} rw - {kind} host:/x rw\n")
    with pytest.raises(DirectoryUnusable, match=f"network file system.*{kind}"):
        prepare_directory(tmp_path / "journal", mount_table=mounts)
    mounts.write_text(f"9 1 0:9 / {tmp_path} rw - xfs /dev/vdb rw\n")
    prepare_directory(tmp_path / "journal", mount_table=mounts)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DirectoryUnusable):
        prepare_directory(tmp_path / "file")


def test_missing_parents_are_made(tmp_path: Path) -> None:
    prepare_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_locked_directory_names_its_holder(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)
    with pytest.raises(DirectoryInUse) as refusal:
        lock_directory(tmp_path)
    assert refusal.value.fields["pid"] == str(os.getpid())
    lock_directory(tmp_path, take_over=True).release()
    lock.release()
    lock.release()
    lock_directory(tmp_path).release()


def test_a_newer_format_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("anabranch journal\nformat 7\n")
    with pytest.raises(FormatTooNew):
        open_local_journal(tmp_path, ids=SeededIds(1), schedule=Callbacks())
    assert [child.name for child in tmp_path.iterdir()] == ["format"]


def test_a_journal_that_cannot_be_opened_leaves_the_directory_unlocked(tmp_path: Path) -> None:
    (tmp_path / "journal-0000000100000001").write_bytes(b"")
    (tmp_path / "format").write_text("anabranch journal\nformat 1\n")
    for _ in range(2):
        with pytest.raises(Exception, match="damaged"):
            open_local_journal(tmp_path, ids=SeededIds(1), schedule=Callbacks())
    lock_directory(tmp_path).release()


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
        data = b"".join(buffers)[:7]
        return real(fd, [data], offset, flags)

    monkeypatch.setattr(os, "pwritev", short)
    file = LocalDisk(tmp_path).create("a")
    file.write_synced([b"0123456789", memoryview(b"abcdef"), b"", b"XYZ" * 9], 0)
    assert file.read(0, 100) == b"0123456789abcdef" + b"XYZ" * 9
    file.close()


def test_a_file_system_without_synced_writes_gets_an_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    synced: list[int] = []

    def refusing(fd: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(95, "not supported")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", refusing)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = LocalDisk(tmp_path).create("a")
    file.write_synced([b"one"], 0)
    file.write_synced([b"two"], 3)
    assert file.read(0, 6) == b"onetwo"
    assert len(synced) == 2
    file.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_without_room_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def full(_fd: int, _offset: int, _size: int) -> None:
        raise OSError(error, os.strerror(error))

    disk = LocalDisk(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(2):
        with pytest.raises(NoRoom):
            disk.create("a", 1000)
    assert not disk.exists("a")


def test_a_file_system_that_cannot_allocate_gets_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_supported(_fd: int, _offset: int, _size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", not_supported)
    size = 2 * 1024 * 1024 + 100
    with closing(LocalDisk(tmp_path).create("a", size)) as file:
        assert file.size() == size
        assert (tmp_path / "a").stat().st_blocks * 512 >= size

    monkeypatch.setattr(os, "pwrite", lambda _fd, part, _offset: len(part) - 1)
    with pytest.raises(NoRoom):
        LocalDisk(tmp_path).create("b", size)
    assert not (tmp_path / "b").exists()


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """The process has as many files open as it may."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/dev/null", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, limits[1]))
    filling = []
    try:
        while True:
            filling.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for fd in filling:
        os.close(fd)


def test_directories_that_are_held_are_synced_without_a_descriptor(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    disk, plain = LocalDisk(tmp_path, hold_directories=True), LocalDisk(tmp_path)
    disk.make_directory("sub")
    disk.sync_directory()
    disk.sync_directory("sub")
    request.getfixturevalue("no_descriptors")
    disk.sync_directory()
    disk.sync_directory("sub")
    for refused in (plain.sync_directory, plain.list, lambda: plain.create("a")):
        with pytest.raises(NoRoom):
            refused()
    disk.close()


def test_a_failed_sync_is_never_taken_for_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = LocalDisk(tmp_path)
    file = disk.create("a")
    monkeypatch.setattr(os, "fdatasync", full)
    monkeypatch.setattr(os, "fsync", full)
    for sync in (file.sync, disk.sync_directory):
        with pytest.raises(DiskFailed) as failed:
            sync()
        assert not isinstance(failed.value, NoRoom)
    file.close()


def test_a_lock_is_held_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: bytes, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    lock = lock_directory(tmp_path)
    with pytest.raises(DirectoryInUse):
        lock_directory(tmp_path)
    lock.release()


def test_a_full_disk_is_a_disk_failure_by_name(tmp_path: Path) -> None:
    file = LocalDisk(Path("/dev")).open("full")
    with pytest.raises(DiskFailed, match="No space"):
        file.write([b"data"], 0)
    file.close()


def test_the_probe_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for disk in (SimDisk(), LocalDisk(tmp_path)):
        probe = probe_sync(disk, SystemClock())
        assert 0 <= probe.p10_ms <= probe.p50_ms <= probe.p99_ms
        assert list(disk.list()) == []
