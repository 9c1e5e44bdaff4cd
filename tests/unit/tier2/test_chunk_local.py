"""The directory of tier 2: its start-up checks, its leftovers, its failures."""

import errno
from collections.abc import Sequence

import pytest

from anabranch.common.adapters.chunk_local import FORMAT_FILE, LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import (
    DirectoryUnusable,
    DiskFailed,
    FormatTooNew,
    InvalidName,
    InvalidSetting,
    NoRoom,
    ObjectExists,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer
from anabranch.common.storage.probe import probe_create_only
from kit.simdisk import KEEP_ALL, LOSE_ALL, Crashed, SimDisk

NAME = "c3/m/0000000001"


def _storage(disk: SimDisk, owner: str = "node-1", seed: int = 1) -> LocalChunkStorage:
    return LocalChunkStorage(disk, SeededIds(seed), owner, in_threads=False)


def _opened(disk: SimDisk, owner: str = "node-1", seed: int = 1) -> LocalChunkStorage:
    storage = _storage(disk, owner, seed)
    storage.open()
    return storage


def _write(disk: SimDisk, path: str, data: bytes) -> None:
    disk.create(path).write([data], 0)


def test_a_newer_format_is_refused_before_anything_is_touched() -> None:
    disk = SimDisk()
    _write(disk, FORMAT_FILE, b"anabranch tier 2 format 2\n")
    calls = disk.calls
    with pytest.raises(FormatTooNew):
        _storage(disk).open()
    assert disk.calls == calls


def test_a_strange_format_file_makes_the_directory_unusable() -> None:
    disk = SimDisk()
    _write(disk, FORMAT_FILE, b"shopping list")
    with pytest.raises(DirectoryUnusable):
        _storage(disk).open()


@pytest.mark.parametrize("verb", ["create", "write", "sync", "sync_directory"])
def test_a_directory_that_cannot_be_written_is_named_with_a_remedy(verb: str) -> None:
    rehearsal = SimDisk()
    _opened(rehearsal)
    disk = SimDisk()
    disk.fail_at(next(call.number for call in rehearsal.trace if call.verb == verb), errno.EROFS)
    with pytest.raises(DirectoryUnusable) as refused:
        _storage(disk).open()
    assert "writable" in refused.value.remedy


def test_leftovers_of_the_same_store_go_and_those_of_another_stay() -> None:
    disk = SimDisk()
    _opened(disk, "node-1")
    _opened(disk, "node-2")
    _write(disk, "tmp/node-1/left-1", b"x")
    _write(disk, "tmp/node-2/busy-1", b"x")
    _opened(disk, "node-1", seed=2)
    assert disk.list("tmp/node-1") == []
    assert disk.list("tmp/node-2") == ["busy-1"]


async def test_a_put_leaves_no_temporary_even_if_the_disk_is_full() -> None:
    disk = SimDisk()
    storage = _opened(disk)
    disk.fail_at(disk.calls + 2, errno.ENOSPC)
    with pytest.raises(DiskFailed):
        await storage.put_new(NAME, [b"x"])
    assert disk.list("tmp/node-1") == []
    await storage.put_new(NAME, [b"y"])
    assert await storage.get(NAME) == b"y"


async def test_a_full_directory_is_opened_and_read_and_refuses_puts_by_name() -> None:
    disk = SimDisk()
    await _opened(disk).put_new(NAME, [b"x"])
    disk.capacity = disk.used
    storage = _opened(disk)
    assert await storage.get(NAME) == b"x"
    with pytest.raises(NoRoom):
        await storage.put_new(f"{NAME}-2", [b"y"])
    disk.capacity = None
    await storage.put_new(f"{NAME}-2", [b"y"])


def test_a_full_directory_that_is_no_tier_two_yet_is_refused() -> None:
    disk = SimDisk()
    disk.capacity = 0
    with pytest.raises(DirectoryUnusable):
        _opened(disk)


@pytest.mark.parametrize("verb", ["sync", "sync_directory"])
async def test_after_a_failed_sync_nothing_is_created_any_more(verb: str) -> None:
    rehearsal = SimDisk()
    storage = _opened(rehearsal)
    before = rehearsal.calls
    await storage.put_new(NAME, [b"x"])
    number = next(call.number for call in rehearsal.trace[before:] if call.verb == verb)
    disk = SimDisk()
    storage = _opened(disk)
    disk.fail_at(number)
    with pytest.raises(DiskFailed):
        await storage.put_new(NAME, [b"x"])
    with pytest.raises(DiskFailed, match="earlier sync"):
        await storage.put_new("c3/m/0000000002", [b"x"])


async def test_a_refused_put_means_that_the_other_object_is_durable() -> None:
    # given a process killed after its link, before the directory was synced
    disk = SimDisk()
    storage = _opened(disk)
    disk.crash_at(disk.calls + len(["create", "write", "sync", "make_directory", "link"]), "after")
    with pytest.raises(Crashed):
        await storage.put_new(NAME, [b"first"])
    assert disk.trace[-1].verb == "link"
    disk.kill()
    # when the next process finds the name taken, and then the power fails
    with pytest.raises(ObjectExists):
        await _opened(disk, seed=2).put_new(NAME, [b"second"])
    disk.power_loss(LOSE_ALL)
    # then the object is still there
    assert await _opened(disk, seed=3).get(NAME) == b"first"


class _TakenOverDisk(SimDisk):
    """Another process removes this one's leftovers just before a link."""

    def link(self, source: str, target: str) -> None:
        if target != FORMAT_FILE:
            self.unlink(source)
        super().link(source, target)


async def test_a_process_whose_temporary_was_removed_gets_an_error_not_an_ack() -> None:
    storage = _opened(_TakenOverDisk())
    with pytest.raises(DiskFailed):
        await storage.put_new(NAME, [b"x"])
    assert await storage.list("") == []


@pytest.mark.parametrize(
    "name", ["", "/a", "a//b", "../a", "a/./b", "A", "a b", "tmp/x", "a.obj/b"]
)
async def test_names_that_could_leave_the_directory_are_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        await _opened(SimDisk()).put_new(name, [b"x"])


async def test_files_of_others_in_the_directory_do_no_harm() -> None:
    disk = SimDisk()
    storage = _opened(disk)
    _write(disk, "lost.txt", b"x")
    assert await storage.list("") == []
    disk.power_loss(KEEP_ALL)


class _Careless(MemoryChunkStorage):
    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.objects[name] = b"".join(parts)


async def test_a_back_end_that_lets_two_win_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="several writers"):
        await probe_create_only(_Careless(), SeededIds(1))


async def test_the_probe_names_the_error_of_a_broken_disk() -> None:
    disk = SimDisk()
    storage = _opened(disk)
    disk.fail_at(disk.calls + 3)
    with pytest.raises(DiskFailed):
        await probe_create_only(storage, SeededIds(1))
