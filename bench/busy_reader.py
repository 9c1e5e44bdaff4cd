"""Reads a stream from its head to its tail again and again until it is stopped: W7's load.

    python -m bench.busy_reader ENDPOINTS_FILE STREAM BEGUN_FILE

Bounded in rounds, and ends by itself after the last.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from anabranch.client import connect

ROUNDS_MAX = 10_000


async def read(endpoints_file: Path, stream: str, tell_begun: Callable[[], None]) -> None:
    async with connect(endpoints_file, name="busy-reader") as client:
        for _ in range(ROUNDS_MAX):
            async with client.reader(stream, until_tail=True) as reader:
                async for _ in reader.batches():
                    tell_begun()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(read(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).touch))
