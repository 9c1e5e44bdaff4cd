"""Writes to a stream as fast as it goes until it is stopped: the load of W3 busy.

    python -m bench.busy_writer ENDPOINTS_FILE STREAM PROGRESS_FILE

Bounded in bytes, and ends by itself when they are used up. The file contains the acknowledged bytes
as a number of 8 bytes, and is empty before the first batch is sent.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from anabranch.cli.perf.load.appends import take
from anabranch.client import connect
from bench.case import MIB, case_of

BYTES_MAX = 16 * 1024 * MIB


def acknowledged_bytes(progress_file: Path) -> int:
    """The bytes that the writer of this file has had acknowledged so far."""
    return int.from_bytes(progress_file.read_bytes(), "little")


async def write(endpoints_file: Path, stream: str, note: Callable[[int], None]) -> None:
    """Write, and note the acknowledged bytes after each batch."""
    events = case_of(1_024).events
    taken = 0
    async with (
        connect(endpoints_file, name="busy-writer") as client,
        client.writer(stream) as writer,
    ):
        while taken < BYTES_MAX:
            await take(writer, events)
            await writer.drain()
            taken += 1_024 * len(events)
            note(max(0, taken - writer.used_bytes))


def main() -> None:
    """See the module."""
    with (
        Path(sys.argv[3]).open("wb", buffering=0) as progress,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):

        def note(acknowledged: int) -> None:
            os.pwrite(progress.fileno(), acknowledged.to_bytes(8, "little"), 0)

        runner.run(write(Path(sys.argv[1]), sys.argv[2], note))


if __name__ == "__main__":
    main()
