"""The segment of a stream's watermarks: its tail is read back, and it stays small."""

from unittest.mock import patch

import pytest

from anabranch.common.errors import CorruptBlock, SegmentNotFound, StaleRequest, Unavailable
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.watermark import (
    MarkedSegment,
    Watermark,
    decode_watermark,
    watermark_segment,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Stamp
from anabranch.controller.projections import watermark_log
from anabranch.controller.projections.watermark_log import Tail, WatermarkLog
from kit.fake_stores import FakeSegmentStores

STREAM = stream_ref("s/x")
SEGMENT = watermark_segment(STREAM)


def watermark(time_ms: int, incarnation: int = 1, segments: int = 1) -> Watermark:
    """With a cut at as many bytes."""
    bounds = [index / segments for index in range(segments)] + [1.0]
    cut = tuple(
        MarkedSegment(segment_id(0, n), KeyRange(bounds[n], bounds[n + 1]), time_ms)
        for n in range(segments)
    )
    return Watermark(incarnation, time_ms, time_ms, cut)


class Log(WatermarkLog):
    """With the stores that it is in."""

    def __init__(self) -> None:
        self.stores = FakeSegmentStores()
        super().__init__(self.stores, SeededIds(1))

    async def filled(self, count: int, segments: int = 1) -> Tail:
        tail = await self.tail(STREAM, 1)
        for time_ms in range(count):
            tail = await self.append(STREAM, tail, watermark(time_ms, segments=segments), 0)
        return tail

    def times(self) -> list[int]:
        found = self.stores.segments[SEGMENT]
        kept = [block for offset, block in found.blocks.items() if offset >= found.start]
        return [decode_watermark(Block(block)[0]).lower_ms for block in kept]


@pytest.fixture
def log() -> Log:
    return Log()


async def test_a_segment_that_is_not_there_yet_has_an_empty_tail(log: Log) -> None:
    tail = await log.tail(STREAM, 1)

    assert (tail.start, tail.length, tail.last, tail.exists) == (0, 0, None, False)
    assert log.stores.segments == {}


@pytest.mark.parametrize("segments", [1, 1000])
async def test_the_last_watermark_is_read_back_from_the_end_of_a_long_segment(
    log: Log, segments: int
) -> None:
    written = await log.filled(12, segments)

    with patch.object(watermark_log, "READ_SIZE_BYTES", 100):
        tail = await log.tail(STREAM, 1)

    assert (tail.length, tail.last) == (written.length, watermark(11, segments=segments))


async def test_an_append_after_a_new_look_goes_on_with_a_new_writer(log: Log) -> None:
    await log.filled(2)

    tail = await log.append(STREAM, await log.tail(STREAM, 1), watermark(2), 0)
    await log.append(STREAM, tail, watermark(3), 0)

    assert log.times() == [0, 1, 2, 3]


async def test_a_watermark_of_another_life_is_passed_over(log: Log) -> None:
    tail = await log.filled(2)
    await log.append(STREAM, tail, watermark(9, incarnation=7), 0)

    with patch.object(watermark_log, "READ_SIZE_BYTES", 100):
        assert (await log.tail(STREAM, 1)).last == watermark(1)
        assert (await log.tail(STREAM, 2)).last is None


async def test_the_segment_of_a_deleted_stream_is_not_made_again(log: Log) -> None:
    tail = await log.tail(STREAM, 1)
    await log.stores.delete_segment(SEGMENT, Stamp(1, 5))

    with pytest.raises(StaleRequest):
        await log.append(STREAM, tail, watermark(1), 0)
    assert log.stores.live() == []


async def test_an_append_to_a_segment_that_was_deleted_is_refused(log: Log) -> None:
    tail = await log.filled(1)
    await log.stores.delete_segment(SEGMENT, Stamp(1, 5))

    with pytest.raises(SegmentNotFound):
        await log.append(STREAM, tail, watermark(1), 0)


async def test_damage_and_newer_formats_are_told(log: Log) -> None:
    await log.filled(1)
    block = encode_block(
        [b"\x95\x02"], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0
    )
    log.stores.append_now(SEGMENT, block)

    with pytest.raises(CorruptBlock):
        await log.tail(STREAM, 1)


# --- how much stays -----------------------------------------------------------------------------


async def trimmed(log: Log, tail: Tail, head: int, step: int = 200) -> Tail:
    with patch.object(watermark_log, "TRIM_STEP_BYTES", step):
        return await log.trim(STREAM, tail, lambda one: one.cut[0].offset <= head)


async def test_a_small_segment_is_left_as_it_is(log: Log) -> None:
    tail = await log.filled(10)

    assert await log.trim(STREAM, tail, lambda _one: True) == tail
    assert log.times() == list(range(10))


async def test_watermarks_before_the_head_go_but_for_the_last_of_them(log: Log) -> None:
    tail = await log.filled(1000)
    assert tail.length > tail.trim_at

    after = await trimmed(log, tail, head=600)

    assert 590 < log.times()[0] <= 600
    assert log.times()[-1] == 999
    assert (await log.tail(STREAM, 1)).start == after.start
    assert after.trim_at > after.length


async def test_nothing_goes_that_lies_behind_the_head(log: Log) -> None:
    tail = await log.filled(1000)

    await trimmed(log, tail, head=-1)

    assert log.times() == list(range(1000))


async def test_a_segment_that_is_too_large_loses_its_beginning(log: Log) -> None:
    tail = await log.filled(1000)

    with (
        patch.object(watermark_log, "KEPT_SIZE_BYTES_MAX", 50_000),
        patch.object(watermark_log, "KEPT_SIZE_BYTES", 40_000),
    ):
        after = await trimmed(log, tail, head=-1)

    assert 39_000 < after.length - after.start <= 40_000
    assert log.times()[-1] == 999


async def test_a_trim_without_an_answer_changes_nothing(log: Log) -> None:
    tail = await log.filled(1000)
    log.stores.down = True
    with pytest.raises(Unavailable):
        await trimmed(log, tail, head=600)
    log.stores.down = False

    assert log.times() == list(range(1000))
