"""``python -m kit.chaos.planted_store``: the segment store with a bug, to see it found.

Each commit is acknowledged at once and written when ten more have come, so a kill loses ten.
"""

import os
import sys
from collections import deque
from collections.abc import Sequence

from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore import __main__ as program
from anabranch.segstore.adapters.journal.commits import Ended, InlineCommits
from anabranch.segstore.adapters.journal.files import FileWriter
from anabranch.segstore.adapters.journal.live import LiveFile

HELD_MAX = 10


def plant() -> None:
    """Acknowledge each commit before it is written."""
    held: deque[tuple[DiskFile, list[bytes], int]] = deque()
    start, roll = InlineCommits.start, FileWriter.roll
    ended: list[Ended] = []

    def write_oldest() -> None:
        file, buffers, offset = held.popleft()
        file.write_synced(buffers, offset)

    def start_noting(self: InlineCommits, told: Ended) -> None:
        ended.append(told)
        start(self, told)

    def write_late(
        _: InlineCommits, file: DiskFile, buffers: Sequence[Buffer], offset: int
    ) -> None:
        if len(held) == HELD_MAX:
            write_oldest()
        held.append((file, [bytes(part) for part in buffers], offset))
        ended[-1](None)

    def roll_in_time(self: FileWriter, oldest: int | None) -> LiveFile:
        while held:
            write_oldest()
        return roll(self, oldest)

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
