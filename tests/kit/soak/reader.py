"""A process that reads for a group and notes every event in a file before it asks for the next.

A line: moment of the hand-out in ns of the machine's monotonic clock, segment, ownership, key,
payload, or its first bytes. It ends when its standard input does, leaving the group; a kill leaves
what is written.
"""

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from anabranch.client import Event, GroupReader, connect
from anabranch.common.errors import ReaderRemoved

NOTED_BYTES_MAX = 1024


async def read(nats: str, group: str, reader_id: str, notes: "Notes") -> None:
    """Until standard input ends; a reader that was taken for dead joins again."""
    loop = asyncio.get_running_loop()
    async with connect(nats) as client, asyncio.TaskGroup() as tasks:
        told = loop.run_in_executor(None, sys.stdin.read)
        while not told.done():
            reading = tasks.create_task(
                _read_once(client.reader_group(group).reader(reader_id), notes)
            )
            await asyncio.wait({reading, told}, return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            await asyncio.wait({reading})


async def _read_once(reader: GroupReader, notes: "Notes") -> None:
    try:
        async with reader:
            try:
                async for event in reader:
                    notes.add(event, time.monotonic_ns(), reader.ownership(event.segment))
            except asyncio.CancelledError:
                reader.ack()
                await reader.close()
                raise
    except ReaderRemoved:
        return


@dataclass(frozen=True, slots=True)
class Notes:
    """A file of lines."""

    file: int
    payload_bytes_max: int

    def add(self, event: Event, at_ns: int, ownership: int) -> None:
        """Note an event."""
        payload = event.payload[: self.payload_bytes_max].decode()
        line = f"{at_ns} {event.segment} {ownership} {event.key} {payload}\n"
        os.write(self.file, line.encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="kit.soak.reader")
    for name in ("--nats", "--group", "--id", "--file"):
        parser.add_argument(name, required=True)
    parser.add_argument("--payload-bytes-max", type=int, default=NOTED_BYTES_MAX)
    options = parser.parse_args()
    file = os.open(Path(options.file), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    notes = Notes(file, options.payload_bytes_max)
    asyncio.run(read(options.nats, options.group, options.id, notes))


if __name__ == "__main__":
    main()
