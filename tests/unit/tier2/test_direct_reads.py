"""What the disk holds is read past the page cache, where the file system can do that."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import LocalDisk, LocalFile
from anabranch.common.errors import DiskFailed

DATA = b"".join(b"%015d;" % number for number in range(4096))


def pages_cached(path: Path) -> int:
    """How many pages of the file are in the page cache (mincore)."""
    size = path.stat().st_size
    count = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    found = (ctypes.c_ubyte * count)()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        result = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), found
        )
        del start
    assert result == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


@pytest.fixture
def file(tmp_path: Path) -> LocalFile:
    made = LocalDisk(tmp_path).create("a")
    made.write_synced([DATA], 0)
    made.sync()
    return made


def test_a_read_of_what_is_stored_leaves_nothing_in_the_page_cache(
    file: LocalFile, tmp_path: Path
) -> None:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if pages_cached(tmp_path / "a"):
        pytest.skip("this file system is its own page cache")
    assert file.read_stored(0, len(DATA)) == DATA
    assert pages_cached(tmp_path / "a") == 0, "the bytes came from the disk"
    assert file.read(0, len(DATA)) == DATA
    assert pages_cached(tmp_path / "a") > 0, "and an ordinary read would have been seen"
    file.close()


@pytest.mark.parametrize("refuses", ["open", "read"])
def test_without_direct_reads_the_pages_are_dropped_before_the_read(
    file: LocalFile, refuses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_, advise, calls = os.open, os.posix_fadvise, list[object]()

    def refusing_open(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT and refuses == "open":
            raise OSError(errno.EINVAL, "no direct reads here")
        return open_(path, flags, mode)

    def refusing_read(fd: int, buffers: list[mmap.mmap], offset: int) -> int:
        raise OSError(errno.EINVAL, "no direct reads here")

    def noting_advise(fd: int, offset: int, length: int, advice: int) -> None:
        calls.append(advice)
        advise(fd, offset, length, advice)

    monkeypatch.setattr(os, "open", refusing_open)
    if refuses == "read":
        monkeypatch.setattr(os, "preadv", refusing_read)
    monkeypatch.setattr(os, "posix_fadvise", noting_advise)
    assert file.read_stored(100, 5000) == DATA[100:5100]
    assert calls == [os.POSIX_FADV_DONTNEED]
    file.close()


def test_a_disk_that_cannot_read_is_no_reason_to_ask_the_page_cache(
    file: LocalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_read(fd: int, buffers: list[mmap.mmap], offset: int) -> int:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(os, "preadv", failing_read)
    with pytest.raises(DiskFailed, match="direct read"):
        file.read_stored(0, 100)
    file.close()


def test_short_direct_reads_are_continued(file: LocalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv

    def short(fd: int, buffers: list[mmap.mmap], offset: int) -> int:
        return real(fd, [memoryview(buffers[0])[:4096]], offset)

    monkeypatch.setattr(os, "preadv", short)
    assert file.read_stored(10, len(DATA) - 20) == DATA[10:-10]
    file.close()
