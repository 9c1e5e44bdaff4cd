"""Readers of a group at work, and what must be true of what they were given."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anabranch.client import Client
from anabranch.client.groups.group import ReaderGroup
from anabranch.client.groups.reader import GroupReaderSettings


@dataclass
class Ledger:
    """What all readers together have processed, in the order of processing."""

    given: list[tuple[str, str, int]] = field(default_factory=list)
    """(reader, key, number of the event of its key)"""

    def note(self, reader_id: str, key: str | None, payload: bytes) -> None:
        self.given.append((reader_id, key or "", int(payload)))

    def count(self) -> int:
        """How many different events were processed."""
        return len({(key, number) for _, key, number in self.given})

    def assert_exactly_once_in_order(self, expected: dict[str, int]) -> None:
        """Each key's events 0, 1, … once each, in this order, whoever processed them."""
        by_key: dict[str, list[int]] = defaultdict(list)
        for _, key, number in self.given:
            by_key[key].append(number)
        assert {key: len(numbers) for key, numbers in by_key.items()} == expected
        for key, numbers in by_key.items():
            assert numbers == list(range(len(numbers))), f"key {key}: {numbers}"


@asynccontextmanager
async def reading(
    group: ReaderGroup,
    reader_id: str,
    ledger: Ledger,
    settings: GroupReaderSettings | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """A reader that processes whatever it is given, until the block ends; it leaves cleanly."""

    joined = asyncio.Event()

    async def work() -> None:
        async with group.reader(reader_id, settings) as reader:
            joined.set()
            try:
                async for event in reader:
                    ledger.note(reader_id, event.key, event.payload)
            except asyncio.CancelledError:
                reader.ack()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await asyncio.wait(
            {task, tasks.create_task(joined.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        try:
            yield task
        finally:
            task.cancel()


async def write_numbers(client: Client, stream: str, keys: int, first: int, count: int) -> None:
    """For each of so many keys the events `first`, `first` + 1, …, as text."""
    async with client.writer(stream) as writer:
        for number in range(first, first + count):
            for key in range(keys):
                writer.write(str(number), f"key-{key}")
            await writer.drain()


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until it holds; an AssertionError after that long."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  several tasks work on it
            await asyncio.sleep(0.02)
