"""The disk of a data directory: room, speed, and kind. Pure.

A store's journal grows to the limit of untiered bytes and a quarter more before the store refuses
appends, and it allocates files of 64 MiB (docs/operations.md). A full disk is thus a failure long
before its last byte.
"""

from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, ok, warning
from anabranch.cli.figures import counted, duration, size
from anabranch.common.storage.mounts import is_network

JOURNAL_FILE_BYTES = 64 * 1024 * 1024
UNTIERED_BYTES_MAX = 1024 * 1024 * 1024
"""The default of ANABRANCH_SEGSTORE_UNTIERED_BYTES_MAX."""
FREE_SHARE_MIN = 0.1
SYNC_GOOD_MS = 1.0
SYNC_SLOW_MS = 20.0
SYNC_STALLED_MS = 200.0
_VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_STACKED = frozenset({"overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})
_ROOM_REMEDY = "free space on this disk, or move the data directory to a larger one"


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a directory. `path` is the directory, or its nearest parent that exists.

    `journal_bytes`: the present size of the journals in the directory. `inodes` 0: the file system
    does not count them.
    """

    path: str
    total_bytes: int
    free_bytes: int
    inodes: int
    inodes_free: int
    file_system: str
    read_only: bool
    writable: bool
    store_count: int = 1
    journal_bytes: int = 0
    untiered_bytes_max: int = UNTIERED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Durations of synced writes of 4 KiB, sorted."""

    took_ms: tuple[float, ...]

    def quantile_ms(self, hundredths: int) -> float:
        """The duration below which so many hundredths of the writes stayed."""
        return self.took_ms[min(len(self.took_ms) * hundredths // 100, len(self.took_ms) - 1)]


def journal_need_bytes(disk: Disk) -> int:
    """The bytes by which the journals may still grow."""
    limit = max(disk.untiered_bytes_max, 4 * JOURNAL_FILE_BYTES)
    return max(disk.store_count * limit * 5 // 4 - disk.journal_bytes, 0)


def space(disk: Disk) -> Finding:
    """Whether the journals can grow to their limit."""
    share = disk.free_bytes / max(disk.total_bytes, 1)
    need = journal_need_bytes(disk)
    free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)} are free ({share:.0%})"
    figures = {"free_bytes": disk.free_bytes, "free_share": round(share, 3), "need_bytes": need}
    if disk.free_bytes < 2 * JOURNAL_FILE_BYTES * disk.store_count:
        return failure(
            f"{free}: a store refuses appends without room for its next journal file",
            _ROOM_REMEDY,
            **figures,
        )
    if disk.free_bytes < need:
        return warning(f"{free}, but journals may take {size(need)} more", _ROOM_REMEDY, **figures)
    if share < FREE_SHARE_MIN:
        return warning(f"{free}", _ROOM_REMEDY, **figures)
    return ok(f"{free}; journals may take {size(need)} more", **figures)


def inodes(disk: Disk) -> Finding:
    """Whether the file system can take more files."""
    if not disk.inodes:
        return ok("this file system has no fixed number of files")
    share = disk.inodes_free / disk.inodes
    told = f"{disk.inodes_free:,} of {disk.inodes:,} inodes are free ({share:.0%})"
    if share < FREE_SHARE_MIN:
        return warning(told, "delete small files on this disk", free_share=round(share, 3))
    return ok(told, free_share=round(share, 3))


def writable(disk: Disk) -> Finding:
    """Whether this user can write there."""
    if disk.read_only:
        return failure(
            f"the file system of {disk.path} is mounted read-only",
            "look for disk errors in the kernel's log, then mount it read-write",
        )
    if not disk.writable:
        return failure(
            f"{disk.path} is not writable for this user",
            "run as the user that started the cluster, or choose another directory",
        )
    return ok(f"{disk.path} is writable")


def file_system(disk: Disk) -> Finding:
    """Whether the kind of file system keeps its data."""
    kind = disk.file_system
    if is_network(kind):
        return warning(
            f"{disk.path} lies on {kind}, a network file system: stores refuse it for a journal",
            "keep the data directory on a local disk; tier 2 may lie on the network",
            file_system=kind,
        )
    if kind in _VOLATILE:
        return warning(
            f"{disk.path} lies on {kind}: its data ends with the machine",
            "keep the data directory on a disk",
            file_system=kind,
        )
    if kind in _STACKED:
        return warning(
            f"{disk.path} lies on {kind}: its data ends with the container, and syncs are slower",
            "mount a volume for the data directory",
            file_system=kind,
        )
    return ok(f"{disk.path} lies on {kind}", file_system=kind)


def sync(times: SyncTimes) -> Finding:
    """Whether the disk syncs fast: every acknowledgement waits for a sync."""
    p50, p99 = times.quantile_ms(50), times.quantile_ms(99)
    count = len(times.took_ms)
    told = f"{counted(count, 'synced write')} of 4 KiB took "
    told += f"{duration(p50)} (p50) and {duration(p99)} (p99)"
    figures = {"p50_ms": round(p50, 3), "p99_ms": round(p99, 3), "writes": count}
    if p50 > SYNC_SLOW_MS or p99 > SYNC_STALLED_MS:
        return warning(
            f"{told}: each acknowledgement waits for one",
            "use a local disk whose write cache is safe against power loss",
            **figures,
        )
    return ok(f"{told}: a fast disk" if p50 <= SYNC_GOOD_MS else told, **figures)
