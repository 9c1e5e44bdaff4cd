"""The file appears whole or not at all, for its user alone, within its budget."""

import os
import tarfile
from pathlib import Path

import pytest

from anabranch.cli.support.archive import RESERVED_BYTES, Archive
from anabranch.common.errors import DirectoryUnusable, NoRoom

MIB = 1024 * 1024


def archive(file: Path, bytes_max: int = 10 * MIB) -> Archive:
    return Archive(file, folder="bundle", bytes_max=bytes_max, now_s=1_700_000_000)


def test_a_finished_archive_holds_its_documents_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    with archive(file) as one:
        assert one.add("a/b.txt", b"content")
        assert not file.exists()
        size = one.finish()
    assert (file.stat().st_mode & 0o777, file.stat().st_size) == (0o600, size)
    with tarfile.open(file) as found:
        member = found.extractfile("bundle/a/b.txt")
        assert member is not None
        assert member.read() == b"content"
        assert (found.getmembers()[0].uname, found.getmembers()[0].mode) == ("", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_an_archive_that_is_left_early_leaves_no_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with archive(tmp_path / "b.tar.gz") as one:
            one.add("a", os.urandom(300_000))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_document_beyond_the_budget_is_refused_and_a_smaller_one_fits(tmp_path: Path) -> None:
    with archive(tmp_path / "b.tar.gz", RESERVED_BYTES + 10_000) as one:
        assert not one.add("large", bytes(10_000))
        assert one.add("small", bytes(5_000))
        assert one.left_bytes < 5_000
        assert one.add("manifest", bytes(50_000), reserved=True)
        one.finish()


class FullDisk(Archive):
    """Its draft lies on a device that is always full."""

    def __enter__(self) -> "FullDisk":
        super().__enter__()
        assert self._raw is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, self._raw.fileno())
        os.close(full)
        return self


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_full_disk_is_told_and_leaves_no_file(tmp_path: Path, size: int) -> None:
    def written() -> None:
        with FullDisk(tmp_path / "b.tar.gz", folder="x", bytes_max=10 * MIB, now_s=1) as one:
            one.add("a", os.urandom(size))
            one.finish()

    with pytest.raises(NoRoom, match="no room for the support bundle") as told:
        written()
    assert "--out" in told.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="No such file"), archive(tmp_path / "no" / "b.gz"):
        pass
