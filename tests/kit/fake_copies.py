"""Copies of a store that remember what they were asked, for tests of the way to them."""

import asyncio
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError, CorruptJournal, Deposed
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports_replica import CopyCaller, CopyState

STATE = CopyState("copy-1", (Link(1, 0, 11, 0), Link(3, 7, 37, 99)))


@dataclass
class FakeCopies:
    """`CopyHost`. `calls` has every call in order; requests wait while `gate` is closed."""

    promised: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    callers: dict[int, CopyCaller] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def note(self, *call: object) -> None:
        self.calls.append(call)
        self.news.set()

    async def until(self, *call: object) -> None:
        """Wait for a call."""
        async with asyncio.timeout(5):
            while call not in self.calls:
                self.news.clear()
                await self.news.wait()

    async def promise(
        self, container: int, log_id: str, container_epoch: int, caller: CopyCaller | None
    ) -> CopyState:
        self.note("promise", container, log_id, container_epoch)
        await self.gate.wait()
        if container_epoch < self.promised.get(container, 0):
            raise Deposed("a higher epoch was promised", container=container)
        self.promised[container] = container_epoch
        if caller is not None:
            self.callers[container] = caller
        return STATE

    async def rewind(
        self, container: int, container_epoch: int, to: Link, caller: CopyCaller
    ) -> None:
        assert caller is self.callers[container]
        self.note("rewind", container, container_epoch, to)
        await self.gate.wait()
        if to == Link(9, 9, 9):
            raise CorruptJournal("no such message")

    async def reset(
        self, container: int, log_id: str, container_epoch: int, base: Link, caller: CopyCaller
    ) -> CopyState:
        self.note("reset", container, log_id, container_epoch, base)
        return CopyState("copy-2", (base,))

    def append(
        self, container: int, container_epoch: int, message: bytes, caller: CopyCaller
    ) -> None:
        assert caller is self.callers[container]
        self.note("append", container, container_epoch, message)

    def release(
        self, container: int, container_epoch: int, sequence: int, caller: CopyCaller
    ) -> None:
        assert caller is self.callers[container]
        self.note("release", container, container_epoch, sequence)

    def lost(self, caller: CopyCaller) -> None:
        found = [key for key, value in self.callers.items() if value is caller]
        self.note("lost", *found)


class Heard:
    """`CopyListener` that remembers."""

    def __init__(self) -> None:
        self.synced: list[Position] = []
        self.flushes = 0
        self.failures: list[AnabranchError] = []
        self._news = asyncio.Event()

    def copy_synced(self, through: Position) -> None:
        self.synced.append(through)
        self._news.set()

    def flush_wanted(self) -> None:
        self.flushes += 1
        self._news.set()

    def copy_failed(self, error: AnabranchError) -> None:
        self.failures.append(error)
        self._news.set()

    async def news(self) -> None:
        """Wait for the next call."""
        async with asyncio.timeout(5):
            await self._news.wait()
        self._news.clear()
