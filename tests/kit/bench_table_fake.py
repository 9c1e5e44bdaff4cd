"""A system with key-value tables in memory, which can be told to do one thing wrong.

The clock moves by a millisecond for each call, and every call lets the other callers run.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NoReturn

from bench.systems.port import Label
from bench.systems.table import Entry, Held, Version
from kit.bench_fake import FakeStopwatch

CALL_SECONDS = 0.001
Fault = Literal[
    "none", "loses updates", "ignores versions", "refuses", "misreads", "leaves out", "miscounts"
]


class FakeTable:
    """Entries with versions that count their updates."""

    def __init__(self, clock: FakeStopwatch, fault: Fault) -> None:
        self._clock = clock
        self._fault = fault
        self._held: dict[bytes, Held] = {}

    async def create(self, key: bytes, value: bytes) -> Version:
        await self._turn()
        self._held[key] = Held(value, 1)
        return 1

    async def replace(self, key: bytes, value: bytes, version: Version) -> Version | None:
        await self._turn()
        old = self._held[key].version
        if self._fault == "refuses" or (version != old and self._fault != "ignores versions"):
            return None
        assert isinstance(old, int)
        if self._fault != "loses updates":
            self._held[key] = Held(value, old + 1)
        return old + 1 if self._fault != "loses updates" else old

    async def get(self, key: bytes) -> Held:
        await self._turn()
        return self._read(key)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        await self._turn()
        for key, value in list(entries.items())[1 if self._fault == "leaves out" else 0 :]:
            self._held[key] = Held(value, 1)

    async def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        await self._turn()
        return [self._read(key).value for key in keys]

    async def scan(self) -> int:
        await self._turn()
        return len(self._held) - (self._fault == "miscounts")

    async def scan_arrow(self) -> int:
        return await self.scan()

    async def read_back(self) -> AsyncIterator[Sequence[Entry]]:
        yield [(key, held.value) for key, held in self._held.items()]

    def _read(self, key: bytes) -> Held:
        held = self._held[key]
        return Held(bytes(len(held.value)), held.version) if self._fault == "misreads" else held

    async def _turn(self) -> None:
        self._clock.advance(CALL_SECONDS)
        await asyncio.sleep(0)


class FakeTableSystem:
    """A system whose every table has the same fault."""

    def __init__(
        self, clock: FakeStopwatch, fault: Fault = "none", label: Label | None = None
    ) -> None:
        self.label = label or Label("redis", "in memory", "D2")
        self._clock = clock
        self._fault = fault

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        yield

    def pids(self) -> list[int]:
        return []

    def stream(self, case: object) -> NoReturn:
        raise AssertionError(f"has no streams: {case}")

    @asynccontextmanager
    async def table(self) -> AsyncIterator[FakeTable]:
        yield FakeTable(self._clock, self._fault)
