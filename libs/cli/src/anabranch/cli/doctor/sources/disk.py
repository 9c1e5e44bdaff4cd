"""The disk of a directory: its room, its kind, and how fast it syncs. Blocking.

The measurement writes to a temporary file without a name, so that nothing is left however this
process ends.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from anabranch.cli.doctor.decisions.disks import UNTIERED_BYTES_MAX, Disk, SyncTimes
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.mounts import mount_at

WRITE_COUNT = 50
WRITE_BYTES = 4096
MEASURE_S_MAX = 3.0
UNTIERED_VARIABLE = "ANABRANCH_SEGSTORE_UNTIERED_BYTES_MAX"


def existing(directory: Path) -> Path:
    """The directory, or its nearest parent that exists."""
    path = directory.absolute()
    while not path.is_dir():
        path = path.parent
    return path.resolve()


def disk_of(directory: Path, environment: Mapping[str, str]) -> Disk:
    """The disk under a data directory, which need not exist yet. Raises OSError."""
    path = existing(directory)
    found, mount = os.statvfs(path), mount_at(path)
    stores = [one for one in directory.glob("segstore*") if one.is_dir()]
    untiered = environment.get(UNTIERED_VARIABLE, "")
    return Disk(
        path=str(path),
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_favail,
        file_system="unknown" if mount is None else mount.kind,
        read_only=bool(found.f_flag & os.ST_RDONLY),
        writable=os.access(path, os.W_OK | os.X_OK),
        store_count=max(len(stores), 1),
        journal_bytes=sum(_allocated(store / "journal") for store in stores),
        untiered_bytes_max=int(untiered) if untiered.isdigit() else UNTIERED_BYTES_MAX,
    )


def sync_times(directory: Path, clock: Clock, *, count: int = WRITE_COUNT) -> SyncTimes:
    """Write and sync 4 KiB again and again, for at most three seconds. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=".anabranch-doctor-", dir=existing(directory))
    try:
        os.unlink(name)  # noqa: PTH108 - at once, so that it cannot be left behind
        took_ms: list[float] = []
        block = os.urandom(WRITE_BYTES)
        _write_synced(descriptor, block)  # The first one also allocates the block.
        begun_s = clock.monotonic()
        while len(took_ms) < count and clock.monotonic() - begun_s < MEASURE_S_MAX:
            start_s = clock.monotonic()
            _write_synced(descriptor, block)
            took_ms.append((clock.monotonic() - start_s) * 1000)
    finally:
        os.close(descriptor)
    return SyncTimes(tuple(sorted(took_ms)))


def _write_synced(descriptor: int, block: bytes) -> None:
    os.pwrite(descriptor, block, 0)
    os.fdatasync(descriptor)


def _allocated(folder: Path) -> int:
    """The bytes that the files of a folder occupy; a file that goes meanwhile counts nothing."""
    total = 0
    for path in folder.glob("journal-*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue
    return total
