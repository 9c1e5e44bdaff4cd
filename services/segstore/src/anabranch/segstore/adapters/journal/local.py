"""Opens the journal in a local directory, and measures the speed of its syncs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.adapters.local_disk import (
    DirectoryLock,
    LocalDisk,
    lock_directory,
    prepare_directory,
)
from anabranch.common.errors import DirectoryUnusable
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.journal import (
    FILE_SIZE_BYTES_DEFAULT,
    Journal,
    open_journal,
)
from anabranch.segstore.ports import CommitWatch

_PROBE_FILE = "probe"
_PROBE_WRITE = bytes(4096)
_PROBE_COUNT_MAX = 100
_PROBE_COUNT_MIN = 11
_PROBE_SECONDS = 0.1
"""The store waits for the measurement. After this time, the minimum suffices."""
ChooseCommits = Callable[[Disk, DirectoryLock], CommitWriter]
"""Chooses the commit writer for a directory that is locked and not opened yet."""


@dataclass(frozen=True, slots=True)
class LocalJournal:
    """A journal with the lock on its directory."""

    journal: Journal
    disk: LocalDisk
    lock: DirectoryLock

    def close(self) -> None:
        """Close the journal, then unlock its directory."""
        self.journal.close()
        self.disk.close()
        self.lock.release()


def open_local_journal(
    directory: Path,
    *,
    ids: IdSource,
    schedule: Schedule,
    file_size: int = FILE_SIZE_BYTES_DEFAULT,
    take_over: bool = False,
    watch: CommitWatch | None = None,
    choose_commits: ChooseCommits = lambda _disk, _lock: InlineCommits(),
) -> LocalJournal:
    """Open (or initialise) the journal in a local directory, as its only owner.

    `take_over`: do not wait for the lock of another process; the fence deposes it. Raises
    DirectoryUnusable, DirectoryInUse, and the errors of `choose_commits` and `open_journal`. A
    newer format is refused before anything in the directory is changed.
    """
    disk = prepare_directory(directory, hold_directories=True)
    try:
        layout.check_format(disk)
        lock = lock_directory(disk.root, take_over=take_over)
        try:
            journal = open_journal(
                disk,
                ids=ids,
                schedule=schedule,
                file_size=file_size,
                watch=watch,
                commits=choose_commits(disk, lock),
                in_threads=True,
            )
        except BaseException:
            disk.close()
            lock.release()
            raise
    except PermissionError as error:
        raise DirectoryUnusable(
            "no permission to open a file in the directory", path=str(error.filename or disk.root)
        ) from error
    return LocalJournal(journal, disk, lock)


@dataclass(frozen=True, slots=True)
class SyncProbe:
    """The duration of a synced write of 4 KiB on a disk."""

    p10_ms: float
    p50_ms: float
    p99_ms: float


def probe_sync(disk: Disk, clock: Clock) -> SyncProbe:
    """Measure synced writes in a temporary file: a hundred, or fewer if they take long."""
    layout.remove_if_there(disk, _PROBE_FILE)
    file = disk.create(_PROBE_FILE, len(_PROBE_WRITE))
    try:
        file.write_synced([_PROBE_WRITE], 0)
        took_ms: list[float] = []
        begun = clock.monotonic()
        while len(took_ms) < _PROBE_COUNT_MAX:
            start = clock.monotonic()
            if len(took_ms) >= _PROBE_COUNT_MIN and start - begun >= _PROBE_SECONDS:
                break
            file.write_synced([_PROBE_WRITE], 0)
            took_ms.append((clock.monotonic() - start) * 1000)
    finally:
        file.close()
        layout.remove_if_there(disk, _PROBE_FILE)
    took_ms.sort()
    count = len(took_ms)
    return SyncProbe(took_ms[count // 10], took_ms[count // 2], took_ms[count * 99 // 100])
