"""``python -m kit.chaos.planted_store``: the segment store with a bug, to see it found.

Commits are acknowledged before they are written, ten at a time, so a kill loses some of them.
"""

import os
import sys
from collections.abc import Sequence

from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore import __main__ as program
from anabranch.segstore.adapters.journal.commits import Ended, InlineCommits
from anabranch.segstore.adapters.journal.files import FileWriter
from anabranch.segstore.adapters.journal.live import LiveFile

HELD_MAX = 10


def plant() -> None:
    """Acknowledge each commit before it is written."""
    held: list[tuple[DiskFile, list[bytes], int]] = []
    start, roll = InlineCommits.start, FileWriter.roll
    ended: list[Ended] = []

    def catch_up() -> None:
        for file, buffers, offset in held:
            file.write_synced(buffers, offset)
        held.clear()

    def start_noting(self: InlineCommits, told: Ended) -> None:
        ended.append(told)
        start(self, told)

    def write_late(
        _: InlineCommits, file: DiskFile, buffers: Sequence[Buffer], offset: int
    ) -> None:
        if len(held) == HELD_MAX:
            catch_up()
        held.append((file, [bytes(part) for part in buffers], offset))
        ended[-1](None)

    def roll_in_time(self: FileWriter) -> LiveFile:
        catch_up()
        return roll(self)

    InlineCommits.start = start_noting  # type: ignore[method-assign,assignment]
    InlineCommits.write = write_late  # type: ignore[method-assign,assignment]
    FileWriter.roll = roll_in_time  # type: ignore[method-assign]
    os.environ["ANABRANCH_SEGSTORE_JOURNAL_WRITER"] = "inline"


def main() -> int:
    """Plant the bug and serve."""
    plant()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
