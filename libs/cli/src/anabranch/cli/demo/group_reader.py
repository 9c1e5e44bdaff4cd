"""The program of one reader of the demo's group; the demo runs several instances of it.

Its arguments are the cluster's endpoints file, the group, its reader id and a file, in which it
records the batches that it has processed (see `group_records`). When its standard input ends, it
leaves the group. If it was declared lost, which may happen while a segment store is away, it joins
again.
"""

import asyncio
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from anabranch.cli.demo.check import RowNumber, content_hash
from anabranch.cli.demo.group_records import Processed
from anabranch.client import EventBatch, ReaderGroup, ReaderRemoved, connect
from anabranch.common.runtime.clock import Clock, SystemClock


def noted(batch: EventBatch, at_s: float) -> bytes:
    """The line that records a processed batch."""
    decoder = msgspec.json.Decoder(RowNumber)
    record = Processed(
        at_s,
        batch.segment,
        [decoder.decode(payload).row for payload in batch.payloads],
        [content_hash(payload) for payload in batch.payloads],
        batch.keys,
    )
    return msgspec.json.encode(record) + b"\n"


async def read(group: ReaderGroup, reader_id: str, file: BinaryIO, clock: Clock) -> None:
    """Process all events that the group assigns to this reader."""
    while True:
        try:
            async with group.reader(reader_id) as reader:
                async for batch in reader.batches():
                    file.write(noted(batch, clock.monotonic()))
                return
        except ReaderRemoved:
            continue


async def until_input_ends() -> None:
    """Wait until the demo closes the standard input, or is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


async def read_until_input_ends(
    endpoints_file: Path, group: str, reader_id: str, file: BinaryIO
) -> None:
    """Run a reader of the group."""
    async with connect(endpoints_file, name=reader_id) as client, asyncio.TaskGroup() as tasks:
        work = read(client.reader_group(group), reader_id, file, SystemClock())
        reading = tasks.create_task(work)
        await until_input_ends()
        reading.cancel()


def main(endpoints_file: str, group: str, reader_id: str, path: str) -> None:
    # Unbuffered: the records must outlive the process.
    with Path(path).open("ab", buffering=0) as file:
        asyncio.run(read_until_input_ends(Path(endpoints_file), group, reader_id, file))


if __name__ == "__main__":
    main(*sys.argv[1:])
