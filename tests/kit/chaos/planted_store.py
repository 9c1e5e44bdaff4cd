"""``python -m kit.chaos.planted_store``: the segment store with a bug, to see it found.

Commits are acknowledged before they are written, ten at a time, so a kill loses some of them.
"""

import sys
from collections.abc import Sequence
from unittest.mock import patch

from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore import __main__ as program
from anabranch.segstore.adapters.journal.files import FileWriter, LiveFile
from anabranch.segstore.domain.log.formats import FrameContent

HELD_MAX = 10


class _Late:
    """Takes the place of a journal's file while a commit is written, and writes it later."""

    def __init__(self) -> None:
        self.file: DiskFile
        self._held: list[tuple[DiskFile, list[bytes], int]] = []

    def write_synced(self, buffers: Sequence[Buffer], offset: int) -> None:
        if len(self._held) == HELD_MAX:
            self.catch_up()
        self._held.append((self.file, [bytes(part) for part in buffers], offset))

    def catch_up(self) -> None:
        """Write what is held."""
        for file, buffers, offset in self._held:
            file.write_synced(buffers, offset)
        self._held.clear()


def plant() -> None:
    """Acknowledge each commit before it is written."""
    write, roll, late = FileWriter.write, FileWriter.roll, _Late()

    def write_late(self: FileWriter, contents: Sequence[FrameContent]) -> list[int]:
        late.file = self._file
        with patch.object(self, "_file", late):
            return write(self, contents)

    def roll_in_time(self: FileWriter) -> LiveFile:
        late.catch_up()
        return roll(self)

    FileWriter.write = write_late  # type: ignore[method-assign]
    FileWriter.roll = roll_in_time  # type: ignore[method-assign]


def main() -> int:
    """Plant the bug and serve."""
    plant()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
