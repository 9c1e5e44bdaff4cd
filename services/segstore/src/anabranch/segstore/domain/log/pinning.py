"""Which containers to flush so that the journal can let go of its oldest file.

Files of the journal go oldest first, and all of them are read at an open. One container that
rarely writes can therefore hold up everything behind it. It is flushed by force

    when the files exceed half of what they may take, or the disk has no room for the next one, or
    when a newer file is free already, and only the oldest one is in its way
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveLogFile:
    """A file that an open would read: `size` in bytes, and the containers that need it."""

    size: int
    pinned_by: frozenset[int]


def containers_to_flush(
    files: Sequence[LiveLogFile], bytes_max: int, *, disk_full: bool = False
) -> frozenset[int]:
    """The containers that pin the oldest file, when it is time; `files` oldest first, the present
    one, which never goes, last. `disk_full`: the disk has no room for the next file."""
    if len(files) < 2:
        return frozenset()
    oldest, *newer = files[:-1]
    crowded = disk_full or sum(file.size for file in files) * 2 > bytes_max
    held_up = any(not file.pinned_by for file in newer)
    return oldest.pinned_by if crowded or held_up else frozenset()
