"""Which small files of an archive one file replaces. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from anabranch.spark.pipelines.archiving.manifest import Contents, File, Origin, Snapshot

MIB = 1024 * 1024
SMALL_BYTES = 32 * MIB
TARGET_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True)
class Sizes:
    """Files of fewer than `small_bytes` are rewritten as files of about `target_bytes`."""

    small_bytes: int = SMALL_BYTES
    target_bytes: int = TARGET_BYTES


def partition_at(unix_ms: int, unit: str) -> str:
    """The partition of a moment."""
    form = "%Y-%m-%d" if unit == "day" else "%Y-%m-%d-%H"
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime(form)


def plan_compaction(
    contents: Contents, now_ms: int, sizes: Sizes = Sizes()
) -> tuple[tuple[File, ...], ...]:
    """Groups of small files, each of one closed partition and of two files at least.

    A partition is closed if it lies before the present day or hour.
    """
    if contents.origin is None:
        return ()
    present = partition_at(now_ms, contents.origin.unit)
    small = sorted(
        (
            file
            for file in contents.files.values()
            if file.size_bytes < sizes.small_bytes and file.partition < present
        ),
        key=lambda file: (file.partition, file.name),
    )
    groups = [
        group
        for _, files in groupby(small, key=lambda file: file.partition)
        for group in _filled(files, sizes.target_bytes)
    ]
    return tuple(group for group in groups if len(group) > 1)


def _filled(files: Iterable[File], target_bytes: int) -> Sequence[tuple[File, ...]]:
    """The files in groups of about `target_bytes`."""
    groups: list[list[File]] = []
    size = target_bytes
    for file in files:
        if size + file.size_bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return [tuple(group) for group in groups]


def compacted(
    contents: Contents, origin: Origin, groups: Iterable[Sequence[File]], written: Iterable[File]
) -> Snapshot:
    """The next generation: the files of the groups replaced by those written for them.

    The rows and sums must be the same.
    """
    gone = [file for group in groups for file in group]
    new = list(written)
    assert sum(file.rows for file in gone) == sum(file.rows for file in new)
    assert sum(file.crc_sum for file in gone) == sum(file.crc_sum for file in new)
    names = {file.name for file in gone}
    kept = [file for name, file in contents.files.items() if name not in names]
    return Snapshot(
        generation=contents.generation + 1,
        origin=origin,
        through=contents.batch,
        after=contents.after,
        files=tuple(sorted((*kept, *new), key=lambda file: (file.partition, file.name))),
    )
