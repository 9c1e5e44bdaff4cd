"""Writers and readers of one stream that somebody scales, through any client.

Every event is read exactly once by each reader, and those of one key in the order of their writing.
"""

import asyncio
from dataclasses import dataclass, field

from anabranch.client import Client
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    NewRange,
    ScaleStream,
    TruncateStream,
)
from anabranch.common.errors import BufferFull
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import SegmentId, StreamRef
from anabranch.common.model.stream import SegmentOffset
from kit.history import KeyedHistory

WRITERS = 8
KEYS = 5
SCALES = (4, 2, 8)
READ_S_MAX = 60.0
COMMAND_S_MAX = 30.0


@dataclass
class Traffic:
    """Of one stream: what was written, and how much of it the first reader has read."""

    client: Client
    stream: StreamRef
    history: KeyedHistory = field(default_factory=KeyedHistory)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    written: int = 0
    read: int = 0

    async def write(self, name: str) -> None:
        """Keyed events until `done`."""
        number = 0
        async with self.client.writer(self.stream) as writer:
            while not self.done.is_set():
                for _ in range(20):
                    key, payload = f"{name} {number % KEYS}", b"%s %d" % (name.encode(), number)
                    try:
                        writer.write(payload, key)
                    except BufferFull:
                        await writer.drain()
                        continue
                    self.history.wrote(payload, key)
                    number += 1
                    self.written += 1
                await asyncio.sleep(0.005)

    async def read_from_head(self) -> list[tuple[str | None, bytes]]:
        """To the end of the stream."""
        found: list[tuple[str | None, bytes]] = []
        async with self.client.reader(self.stream) as reader:
            async for event in reader:
                found.append((event.key, event.payload))
                self.read = len(found)
        return found

    async def read_in_two_lives(self) -> list[tuple[str | None, bytes]]:
        """As `read_from_head`, by one reader after the other, each for about 300 events."""
        found: list[tuple[str | None, bytes]] = []
        positions: dict[str, tuple[int, int]] = {}
        while True:
            async with self.client.reader(self.stream, positions) as reader:
                for _ in range(300):
                    event = await anext(reader, None)
                    if event is None:
                        return found
                    found.append((event.key, event.payload))
                positions = dict(reader.positions())

    async def goes_on(self) -> None:
        """Return when more was written and read since the call."""
        written, read = self.written + 500, self.read + 500
        async with asyncio.timeout(READ_S_MAX):
            while self.written < written or self.read < read:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def scale_to(client: Client, stream: StreamRef, count: int) -> None:
    """All current segments → `count` even ranges; returns when the scale is done."""
    listed = await client.ranges().segments(stream)
    await _execute(
        client,
        ScaleStream(
            command_id=_new_id(client),
            scope=stream.scope,
            stream=stream.stream,
            seal=tuple(SegmentId(each.segment_id) for each in listed.segments),
            new_ranges=tuple(
                NewRange(key_start=keys.start, key_end=keys.end) for keys in even_ranges(count)
            ),
        ),
    )


async def truncate_to_current(client: Client, stream: StreamRef) -> None:
    """Give up all before the current segments."""
    listed = await client.ranges().segments(stream)
    cut = sorted(SegmentOffset(SegmentId(each.segment_id), 0) for each in listed.segments)
    command = TruncateStream(
        command_id=_new_id(client), scope=stream.scope, stream=stream.stream, cut=tuple(cut)
    )
    await _execute(client, command)


def _new_id(client: Client) -> str:
    return client._control.new_command_id()


async def _execute(client: Client, command: CommandBase) -> None:
    # The administration is not what is tested.
    await client._control.execute(command, timeout_s=COMMAND_S_MAX)


async def check_traffic_over_scales(client: Client, stream: StreamRef) -> None:
    """Write and read the stream, which has one segment, while it is scaled; then seal it."""
    traffic = Traffic(client, stream)
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(traffic.read_from_head())]
        reading.append(tasks.create_task(traffic.read_in_two_lives()))
        writing = [tasks.create_task(traffic.write(f"w{n}")) for n in range(WRITERS)]
        for count in SCALES:
            await traffic.goes_on()
            await scale_to(client, stream, count)
        await traffic.goes_on()
        traffic.done.set()
        await asyncio.wait(writing)
        await client.streams.seal(str(stream))
        async with asyncio.timeout(READ_S_MAX):
            for reader in reading:
                traffic.history.check(await reader)
    assert len((await client.ranges().segments(stream)).segments) == SCALES[-1]
    runs = await client.ranges().runs(stream)
    assert len(runs) == 1 + sum(SCALES)
