"""A process that reads for a group and notes every event in a file before it asks for the next.

A line: moment of the hand-out in ns of the machine's monotonic clock, segment, ownership, key,
payload. It ends when its standard input does, leaving the group; a kill leaves what is written.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from anabranch.client import Event, GroupReader, connect
from anabranch.common.errors import ReaderRemoved


async def read(nats: str, group: str, reader_id: str, file: int) -> None:
    """Until standard input ends; a reader that was taken for dead joins again."""
    loop = asyncio.get_running_loop()
    async with connect(nats) as client, asyncio.TaskGroup() as tasks:
        told = loop.run_in_executor(None, sys.stdin.read)
        while not told.done():
            reading = tasks.create_task(
                _read_once(client.reader_group(group).reader(reader_id), file)
            )
            await asyncio.wait({reading, told}, return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            await asyncio.wait({reading})


async def _read_once(reader: GroupReader, file: int) -> None:
    try:
        async with reader:
            try:
                async for event in reader:
                    _note(file, event, time.monotonic_ns(), reader.ownership(event.segment))
            except asyncio.CancelledError:
                reader.ack()
                await reader.close()
                raise
    except ReaderRemoved:
        return


def _note(file: int, event: Event, at_ns: int, ownership: int) -> None:
    line = f"{at_ns} {event.segment} {ownership} {event.key} {event.payload.decode()}\n"
    os.write(file, line.encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="kit.soak.reader")
    for name in ("--nats", "--group", "--id", "--file"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    file = os.open(Path(options.file), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    asyncio.run(read(options.nats, options.group, options.id, file))


if __name__ == "__main__":
    main()
