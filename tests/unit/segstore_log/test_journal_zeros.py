"""Zeros ahead of small commits in a new file, and the next file, which is made ahead of need."""

import errno

from anabranch.common.errors import DiskFailed
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.domain.log.formats import FILE_HEADER_SIZE_BYTES, FRAME_HEADER_SIZE_BYTES
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import LOSE_ALL, SimDisk

FILE_SIZE = 16 * 1024
"""One write of zeros has 8 KiB, a small commit at most 2 KiB; zeros follow 512 bytes of them."""
SMALL = 500
LARGE = 3000


class Opened:
    """A journal with one container on a simulated disk."""

    def __init__(self, disk: SimDisk, epoch: int = 1) -> None:
        self.disk = disk
        self.callbacks = Callbacks()
        self.journal = open_journal(
            disk, ids=SeededIds(epoch), schedule=self.callbacks, file_size=FILE_SIZE
        )
        run_at_once(self.journal.create_log(0, "log"))
        self.source = ScriptedSource()
        self.view = run_at_once(self.journal.open_log(0, "log", epoch, self.source))

    def append(self, *sizes: int) -> None:
        """One commit for each size."""
        for size in sizes:
            self.source.put(b"x" * size)
            self.view.ready()
            self.callbacks.run()

    def release(self) -> None:
        run_at_once(self.view.release(max(self.source.durable)))

    def writes(self, *sizes: int) -> int:
        """The synced writes of these commits."""
        before = self.disk.calls
        self.append(*sizes)
        return sum(call.verb == "write_synced" for call in self.disk.trace[before:])

    def named(self, kind: str) -> list[str]:
        return [name for name in self.disk.list() if name.startswith(kind)]


def test_zeros_are_written_ahead_of_small_commits_that_follow_each_other() -> None:
    opened = Opened(SimDisk())
    assert opened.writes(SMALL) == 2, "the commit, and zeros"
    assert opened.writes(*[SMALL] * 11) == 11, "commits into these zeros"
    assert opened.writes(SMALL) == 2, "their end is near"
    rest = (FILE_SIZE - FILE_HEADER_SIZE_BYTES) // (FRAME_HEADER_SIZE_BYTES + SMALL) - 13
    assert opened.writes(*[SMALL] * rest) == rest, "zeros end with the file"


def test_a_large_commit_gets_no_zeros_and_ends_the_run_of_small_ones() -> None:
    opened = Opened(SimDisk())
    assert opened.writes(100, LARGE, 100, LARGE, 100, LARGE) == 6


def test_a_file_that_is_used_again_gets_no_zeros() -> None:
    opened = Opened(SimDisk())
    for _ in range(3):
        opened.append(*[LARGE] * 5)
        opened.release()
    assert opened.named("spare-")
    opened.append(LARGE)
    assert opened.writes(*[SMALL] * 10) == 10


def test_the_next_file_is_made_after_the_first_commit_and_not_tried_for_each_one() -> None:
    opened = Opened(SimDisk())
    assert not opened.named("spare-")
    opened.disk.capacity = opened.disk.used
    opened.append(LARGE)
    before = opened.disk.calls
    opened.append(LARGE)
    assert not opened.named("spare-")
    assert [call.verb for call in opened.disk.trace[before:]] == ["write_synced"]
    opened.disk.capacity = None
    opened.journal.try_again()
    assert len(opened.named("spare-")) == 1


def test_zeros_that_cannot_be_written_end_the_journal_and_nothing_acknowledged_is_lost() -> None:
    for error in (errno.EIO, errno.ENOSPC):
        disk = SimDisk()
        opened = Opened(disk)
        opened.append(100)
        disk.fail_at(disk.calls + 2, error)
        opened.append(SMALL)
        assert sorted(opened.source.durable) == [1, 2]
        assert [type(failure) for failure in opened.source.failures] == [DiskFailed]
        disk.power_loss(LOSE_ALL)
        assert replayed(Opened(disk, 2).view) == opened.source.durable
