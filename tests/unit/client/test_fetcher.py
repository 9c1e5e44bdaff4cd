"""One segment's fetcher against a connection that answers when it is told."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from anabranch.client.backoff import Backoff
from anabranch.client.reading.fetcher import SegmentFetcher
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.wire.control import SegmentDirectory
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import AnabranchError, CorruptBlock
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import ReadSegment, SegmentRead
from kit.rng import seeded

SEGMENT = "plant/sensors/0.#epoch.0"
BLOCK = encode_block([b"event"], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


@dataclass
class OneConnection:
    """Both the directory and the connection: every read is answered with one block of `data`."""

    data: bytes
    asked: list[int] = field(default_factory=list)

    async def connect(self, _: str) -> tuple["OneConnection", SegmentLocation]:
        location = SegmentLocation(segment=SEGMENT, container=0, container_epoch=1)
        return self, location

    async def request(
        self,
        message: ReadSegment,
        _: type[SegmentRead],
        *,
        timeout_s: float,
        payload: bytes = b"",
    ) -> tuple[SegmentRead, bytes]:
        assert timeout_s > 0
        assert not payload
        offset = message.offset
        self.asked.append(offset)
        await asyncio.sleep(0)
        data = self.data[offset : offset + len(BLOCK)]
        return SegmentRead(offset=offset, end_of_segment=offset + len(data) == len(self.data)), data


@dataclass
class Run:
    """What a fetcher did: (offset of the block, reads sent when it was handed over)."""

    handed: list[tuple[int, int]] = field(default_factory=list)
    ended: list[AnabranchError | None] = field(default_factory=list)
    at_end: bool | None = None
    """Whether the segment ended."""


async def fetch(
    data: bytes, *, share: int = 1 << 20, end: int | None = None, consume: bool = True
) -> tuple[Run, OneConnection]:
    run, connection = Run(), OneConnection(data)
    async with asyncio.TaskGroup() as tasks:

        def fetched(block: FetchedBlock) -> None:
            run.handed.append((block.offset, len(connection.asked)))
            if consume:
                fetcher.consumed(block.block.header.size)

        fetcher = SegmentFetcher(
            SEGMENT,
            settings=ReaderSettings(),
            share_bytes=share,
            directory=cast("SegmentDirectory", connection),
            clock=SystemClock(),
            backoff=Backoff(BackoffSettings(), seeded(1), 1.0),
            tasks=tasks,
            fetched=fetched,
        )
        fetcher.place.end_offset = end

        async def until_ended() -> None:
            try:
                run.at_end = await fetcher.run()
                run.ended.append(None)
            except AnabranchError as error:
                run.ended.append(error)

        running = tasks.create_task(until_ended())
        await _until(lambda: bool(run.ended) or (not consume and len(run.handed) > 1))
        running.cancel()
    return run, connection


async def _until(condition: Callable[[], Any]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("nothing happens any more")


async def test_the_next_read_is_sent_before_the_last_one_is_verified() -> None:
    run, _ = await fetch(BLOCK * 4)
    size = len(BLOCK)
    assert run.handed == [(0, 2), (size, 3), (2 * size, 4), (3 * size, 4)]
    assert (run.ended, run.at_end) == ([None], True)


async def test_nothing_is_read_on_beyond_the_end_that_was_set() -> None:
    run, connection = await fetch(BLOCK * 4, end=2 * len(BLOCK))
    assert [offset for offset, _ in run.handed] == [0, len(BLOCK)]
    assert connection.asked == [0, len(BLOCK)]
    assert run.at_end is False


async def test_nothing_is_read_on_without_room_for_it() -> None:
    _, connection = await fetch(BLOCK * 9, share=2 * len(BLOCK), consume=False)
    assert connection.asked == [0, len(BLOCK)]


async def test_a_damaged_block_ends_the_fetcher_and_the_read_under_way() -> None:
    damaged = bytearray(BLOCK * 4)
    damaged[len(BLOCK) + 70] ^= 1
    run, _ = await fetch(bytes(damaged))
    assert [offset for offset, _ in run.handed] == [0]
    (error,) = run.ended
    assert isinstance(error, CorruptBlock)
