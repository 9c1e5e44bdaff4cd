"""The live files of the journal, their frames, and the containers that pin them.

A file may be removed when every container with operations in it has released them and every older
file is gone. Files are removed oldest first, so that an open finds a sequence without a hole; the
present file is never removed. An open reads all live files, however little of them is needed. Their
size bounds a recovery, not the bytes that tier 2 lacks.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from anabranch.common.storage.ports import DiskFile
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.replay import FrameEntry


@dataclass(slots=True)
class LiveFile:
    """A readable file of the log. `last_sequences`: container → last operation in it.

    `size`: bytes that an open reads; set for the present file only when the next one begins.
    """

    file_id: int
    file: DiskFile
    last_sequences: dict[int, int] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True)
class _ContainerFrames:
    """The journal's record of one container: unreleased frames, highest epoch and sequence
    numbers."""

    entries: deque[FrameEntry]
    highest_epoch: int
    last_sequence: int = 0
    released_sequence: int = 0


class LiveFiles:
    """The files of one open journal, oldest first, the present one last."""

    def __init__(
        self,
        files: Iterable[LiveFile],
        entries: Mapping[int, list[FrameEntry]],
        highest_epochs: Mapping[int, int],
    ) -> None:
        self._files = {live.file_id: live for live in files}
        self._closed_size = sum(live.size for live in self._files.values())
        self._frames = {
            container: _ContainerFrames(
                deque(found), highest_epochs[container], found[-1].last_sequence if found else 0
            )
            for container, found in entries.items()
        }

    # --- files --------------------------------------------------------------------------------

    def get(self, file_id: int) -> LiveFile | None:
        return self._files.get(file_id)

    def begin(self, live: LiveFile, former_end: int) -> None:
        """Make `live` the present file; the one before it ended at `former_end`."""
        if self._files:
            former = next(reversed(self._files.values()))
            if not former.size:
                former.size = max(former.file.size(), former_end)
                self._closed_size += former.size
        self._files[live.file_id] = live

    @property
    def oldest_id(self) -> int | None:
        """The oldest file, None if there is none."""
        return next(iter(self._files), None)

    def oldest_free(self) -> Sequence[LiveFile]:
        """The oldest files, up to the first one that a container pins, without the newest."""
        *older, _ = self._files.values() or (None,)
        return list(takewhile(lambda live: not self._pinned_by(live), older))

    def next_id(self, live: LiveFile) -> int:
        """The file after this one, which is not the newest."""
        ids = list(self._files)
        return ids[ids.index(live.file_id) + 1]

    def remove(self, live: LiveFile) -> None:
        """Remove a file that is durably gone."""
        del self._files[live.file_id]
        self._closed_size -= live.size

    def size(self, present_end: int) -> int:
        """Bytes that an open would read; `present_end` is the end of the present file."""
        return self._closed_size + present_end

    def facts(self, present_end: int) -> Sequence[LiveLogFile]:
        """The size of each file and the containers that pin it, oldest first."""
        return [
            LiveLogFile(live.size or present_end, self._pinned_by(live))
            for live in self._files.values()
        ]

    def _pinned_by(self, live: LiveFile) -> frozenset[int]:
        return frozenset(
            container
            for container, last in live.last_sequences.items()
            if self._frames[container].released_sequence < last
        )

    def close(self) -> None:
        """Close every file."""
        for live in self._files.values():
            live.file.close()
        self._files.clear()

    # --- containers ---------------------------------------------------------------------------

    def highest_epoch(self, container: int) -> int:
        """The highest known container epoch; 0 for a container without frames."""
        return self._of(container).highest_epoch

    def take_epoch(self, container: int, container_epoch: int) -> None:
        """Note that the container was opened under this epoch."""
        self._of(container).highest_epoch = container_epoch

    def _of(self, container: int) -> _ContainerFrames:
        return self._frames.setdefault(container, _ContainerFrames(deque(), 0))

    def add(self, container: int, entry: FrameEntry) -> None:
        """Add a frame that became durable."""
        frames = self._frames[container]
        assert frames.last_sequence in (0, entry.first_sequence - 1), "a gap in a log"
        frames.last_sequence = entry.last_sequence
        frames.entries.append(entry)
        self._files[entry.file_id].last_sequences[container] = entry.last_sequence

    def has_frames(self, container: int) -> bool:
        """Whether the container has frames that were not released."""
        return bool(self._of(container).entries)

    def oldest_sequence(self, container: int) -> int:
        """The first operation of the container's frames that were not released; 0 without one."""
        entries = self._of(container).entries
        return entries[0].first_sequence if entries else 0

    def forget(self, container: int) -> None:
        """Forget the container's removed log, which then pins no file; its epoch is kept."""
        self._frames[container] = _ContainerFrames(deque(), self.highest_epoch(container))
        for live in self._files.values():
            live.last_sequences.pop(container, None)

    def entries(self, container: int) -> list[FrameEntry]:
        """The container's frames that were not released, in order."""
        return list(self._frames[container].entries)

    def release(self, container: int, applied_sequence: int) -> None:
        """Note that the container's operations up to this one are durable in tier 2."""
        frames = self._frames[container]
        frames.released_sequence = max(frames.released_sequence, applied_sequence)
        # A repaired journal may lack operations that tier 2 has; the log continues after these.
        frames.last_sequence = max(frames.last_sequence, applied_sequence)
        while frames.entries and frames.entries[0].last_sequence <= applied_sequence:
            frames.entries.popleft()
