"""Selects the containers to flush so that the journal can remove its oldest files.

The journal removes its files oldest first, and an open reads all of them. One container that rarely
writes can therefore pin all later files. Its flush is forced

    if the files exceed half of their limit, or the disk has no room for the next one, or
    if a newer file is free already, and only the oldest one is in its way
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile


@dataclass(frozen=True, slots=True)
class LiveLogFile:
    """A file that an open would read: `size` in bytes, and the containers that need it."""

    size: int
    pinned_by: frozenset[int]


def containers_to_flush(
    files: Sequence[LiveLogFile], bytes_max: int, *, disk_full: bool = False
) -> frozenset[int]:
    """The containers that pin the oldest file that is pinned, if they must be flushed now.

    `files` are oldest first; the present file, which is never removed, is last. `disk_full`: the
    disk has no room for the next file.
    """
    pinned = list(dropwhile(lambda file: not file.pinned_by, files[:-1]))
    if not pinned:
        return frozenset()
    oldest, *newer = pinned
    crowded = disk_full or sum(file.size for file in files) * 2 > bytes_max
    held_up = any(not file.pinned_by for file in newer)
    return oldest.pinned_by if crowded or held_up else frozenset()
