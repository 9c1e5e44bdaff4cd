"""Writes to a stream as fast as it goes until it is stopped: the load of W3 busy.

    python -m bench.busy_writer ENDPOINTS_FILE STREAM BEGUN_FILE

Bounded in bytes, and ends by itself when they are used up.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from anabranch.cli.perf.load.appends import take
from anabranch.client import connect
from bench.case import MIB, case_of

BYTES_MAX = 16 * 1024 * MIB


async def write(endpoints_file: Path, stream: str, tell_begun: Callable[[], None]) -> None:
    events = case_of(1_024).events
    async with (
        connect(endpoints_file, name="busy-writer") as client,
        client.writer(stream) as writer,
    ):
        for number in range(BYTES_MAX // (1_024 * len(events))):
            await take(writer, events)
            await writer.drain()
            if number == 0:
                tell_begun()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).touch))
