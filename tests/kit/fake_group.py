"""A reader group in memory, for what holds readers: its blocks, and how far they are processed.

All segments are read by the reader that joined first. What it was given and has not acknowledged
is given again to the next one.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from anabranch.client import Event, Position
from anabranch.common.errors import AnabranchError, ReaderInUse

BLOCK_SIZE = 100


@dataclass
class FakeBatch:
    """Events of the block at `offset`, from number `first` on."""

    segment: str
    offset: int
    payloads: list[bytes]
    first: int = 0

    def events(self) -> list[Event]:
        return [
            Event(payload, None, 0, self.segment, self.offset, index)
            for index, payload in enumerate(self.payloads, self.first)
        ]

    @property
    def next(self) -> Position:
        return Position(self.offset + BLOCK_SIZE)


@dataclass
class FakeGroup:
    """`blocks`: by segment; `processed`: by segment, Position(0) where nothing is."""

    blocks: dict[str, list[list[bytes]]] = field(default_factory=dict)
    processed: dict[str, Position] = field(default_factory=dict)
    online: dict[str, "FakeGroupReader"] = field(default_factory=dict)
    is_ended: bool = False
    """The streams are sealed."""
    is_away: bool = False
    """While set, nobody can join: opening a reader does not end."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, segment: str, *blocks: list[bytes]) -> None:
        self.blocks.setdefault(segment, []).extend(blocks)
        self.tell()

    def end(self) -> None:
        self.is_ended = True
        self.tell()

    def tell(self) -> None:
        """Something changed: every reader looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        await self._news.wait()

    def reader(self, _group: str, reader_id: str) -> "FakeGroupReader":
        return FakeGroupReader(self, reader_id)


class FakeGroupReader:
    """A `ReaderOfGroup`. `failure`: raised by the next call that asks for more."""

    def __init__(self, group: FakeGroup, reader_id: str) -> None:
        self.reader_id = reader_id
        self.failure: AnabranchError | None = None
        self.asks = 0
        self._group = group
        self._given: dict[str, Position] = {}

    async def __aenter__(self) -> Self:
        if self._group.is_away:
            await asyncio.Event().wait()
        if self.reader_id in self._group.online:
            raise ReaderInUse("a reader with this id is alive", reader=self.reader_id)
        self._group.online[self.reader_id] = self
        return self

    async def close(self) -> None:
        if self._group.online.get(self.reader_id) is self:
            del self._group.online[self.reader_id]
            self._group.tell()

    async def next_batch(self) -> FakeBatch | None:
        assert self.asks == 0, "a reader has one consumer at a time"
        self.asks += 1
        try:
            while True:
                if self.failure is not None:
                    raise self.failure
                if next(iter(self._group.online.values())) is self:
                    if (batch := self._take()) is not None:
                        return batch
                    if self._group.is_ended and self._is_all_processed():
                        return None
                await self._group.wait()
        finally:
            self.asks -= 1

    def _take(self) -> FakeBatch | None:
        for segment, blocks in self._group.blocks.items():
            at = self._given.get(segment, self._group.processed.get(segment, Position(0)))
            number = at.offset // BLOCK_SIZE
            if number < len(blocks):
                left = blocks[number][at.event_index :]
                batch = FakeBatch(segment, at.offset, left, at.event_index)
                self._given[segment] = batch.next
                return batch
        return None

    def _is_all_processed(self) -> bool:
        return all(
            self._group.processed.get(segment) == Position(len(blocks) * BLOCK_SIZE)
            for segment, blocks in self._group.blocks.items()
        )

    def ack(self, up_to: Mapping[str, Position] | None = None) -> None:
        assert up_to, "the gateway says what it acknowledges"
        for segment, position in up_to.items():
            assert position <= self._given[segment], "acknowledged, and never given"
            assert position > self._group.processed.get(segment, Position(0)), "it goes back"
            self._group.processed[segment] = position
        self._group.tell()
