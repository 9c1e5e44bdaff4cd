"""Decides when a snapshot of the catalog is due (pure). `merge.py` and `paging.py` make its
pages."""

from dataclasses import dataclass, replace

from anabranch.segstore.domain.storage.paging import PageLimits

MANIFESTS_MAX = 256
MANIFESTS_SIZE_BYTES_MAX = 8 * 1024 * 1024
RETRY_MANIFESTS_MAX = 64


@dataclass(frozen=True, slots=True)
class SnapshotLimits(PageLimits):
    """A snapshot after this many manifests or bytes of manifests, and the sizes of its pages."""

    manifests_max: int = MANIFESTS_MAX
    manifests_size_max: int = MANIFESTS_SIZE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class SinceSnapshot:
    """Manifests after the last snapshot, their bytes, and the failed attempts at the next one."""

    manifests: int
    size_bytes: int
    failures: int = 0
    retry_at: int = 0
    """The number of manifests before which no attempt is made."""


def snapshot_due(since: SinceSnapshot, limits: SnapshotLimits) -> bool:
    """Whether the next manifest must name a new snapshot."""
    reached = (
        since.manifests >= limits.manifests_max or since.size_bytes >= limits.manifests_size_max
    )
    return reached and since.manifests >= since.retry_at


def after_manifest(since: SinceSnapshot, size_bytes: int, *, new_snapshot: bool) -> SinceSnapshot:
    """The state after a committed manifest; a manifest that names a new snapshot is the first
    after it."""
    if new_snapshot:
        return SinceSnapshot(1, size_bytes)
    return replace(since, manifests=since.manifests + 1, size_bytes=since.size_bytes + size_bytes)


def after_failure(since: SinceSnapshot) -> SinceSnapshot:
    """The state after a failed attempt; the next one follows after 1, 2, 4 … 64 more manifests."""
    wait = min(2**since.failures, RETRY_MANIFESTS_MAX)
    return replace(since, failures=since.failures + 1, retry_at=since.manifests + wait)
