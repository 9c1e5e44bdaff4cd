"""Fetching watermarks for a position, from a fake store."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from anabranch.client.backoff import Backoff
from anabranch.client.reading.times import follower as followers
from anabranch.client.reading.times import log as logs
from anabranch.client.reading.times.follower import (
    MISSING_PAUSE_S_MAX,
    PAUSE_S_MIN,
    RETRY_TIMEOUT_S,
    TAIL_PAUSE_S_MAX,
    WatermarkFollower,
)
from anabranch.client.reading.times.log import PAGE_SIZE_BYTES, WatermarkLog
from anabranch.client.reading.times.window import Place, TimeWindow
from anabranch.client.settings import BackoffSettings
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import CorruptBlock, Unavailable
from anabranch.common.model.names import segment_id
from anabranch.common.model.watermark import watermark_segment
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.messages import GetSegmentInfo, Message, ReadSegment, SegmentInfo
from kit.client_bench import Bench, bench
from kit.fake_segstore import Direction, Fault
from kit.rng import seeded
from kit.watermarks import mark_at, store_marks


class SteppedClock(SystemClock):
    """Stands still until a test moves it; a sleeper moves it at once."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Stage:
    """A stream of one segment, its watermarks, and a follower of them."""

    b: Bench
    clock: SteppedClock = field(default_factory=SteppedClock)

    def __post_init__(self) -> None:
        log = WatermarkLog(self.b.ref, 1, self._calls)
        self.follower = WatermarkFollower(log, self.clock)

    def _calls(self, segment: str) -> SegmentCalls:
        backoff = Backoff(BackoffSettings(), seeded(1), RETRY_TIMEOUT_S)
        directory = self.b.client._directory
        return SegmentCalls(segment, directory=directory, clock=self.clock, backoff=backoff)

    def add(self, *at: int, incarnation: int = 1) -> None:
        """A watermark at each of these offsets, whose lower bound is ten times as much."""
        (segment,) = self.b.stream.listed(self.b.ref)
        marks = [
            mark_at([segment], {segment.name: each}, 10 * each, incarnation=incarnation)
            for each in at
        ]
        store_marks(self.b.store, self.b.ref, *marks)

    async def window(self, offset: int) -> TimeWindow:
        places = [Place(segment_id(0, 0), 0.0, 1.0, offset)]
        await self.follower.catch_up(places)
        return self.follower.window(places)

    @property
    def name(self) -> str:
        return watermark_segment(self.b.ref)

    def asked(self) -> list[Message]:
        """What the store was asked about watermarks."""
        return [one for one in self.b.store.requests if getattr(one, "segment", "") == self.name]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with bench() as b:
        yield Stage(b)


async def test_a_position_between_two_watermarks_has_both_bounds() -> None:
    async with stage() as s:
        s.add(10, 20, 30)
        assert await s.window(5) == TimeWindow(None, 100)
        assert await s.window(10) == TimeWindow(100, 200)
        assert await s.window(29) == TimeWindow(200, 300)
        assert await s.window(30) == TimeWindow(300, None)


async def test_a_stream_without_watermarks_is_asked_about_ever_more_seldom() -> None:
    async with stage() as s:
        times: list[float] = []
        for _ in range(400):
            before = len(s.asked())
            assert await s.window(5) == TimeWindow(None, None)
            if len(s.asked()) > before:
                times.append(s.clock.now_s)
            s.clock.now_s += 0.5
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses[:3] == [1.0, 2.0, 4.0]
        assert max(pauses) == MISSING_PAUSE_S_MAX
        s.add(10)
        s.clock.now_s += MISSING_PAUSE_S_MAX
        assert await s.window(5) == TimeWindow(None, 100)


async def test_at_the_tail_new_watermarks_are_found_after_a_pause_and_nothing_is_asked_before() -> (
    None
):
    async with stage() as s:
        s.add(10)
        assert await s.window(15) == TimeWindow(100, None)
        asked = len(s.asked())
        s.add(20)
        assert await s.window(16) == TimeWindow(100, None)
        assert len(s.asked()) == asked
        s.clock.now_s += PAUSE_S_MIN
        assert await s.window(16) == TimeWindow(100, 200)
        s.clock.now_s += TAIL_PAUSE_S_MAX
        assert await s.window(25) == TimeWindow(200, None)


async def test_far_from_the_head_the_place_is_found_with_few_requests() -> None:
    async with stage() as s:
        s.add(*range(10, 100_010, 10))
        assert len(s.b.store.segments[s.name].data) > 10 * PAGE_SIZE_BYTES
        assert await s.window(70_005) == TimeWindow(700_000, 700_100)
        assert len(s.asked()) < 24
        assert len(s.follower._known._marks) < 2000
        fresh = Stage(s.b)
        assert await fresh.window(100_000) == TimeWindow(1_000_000, None)
        assert await Stage(s.b).window(3) == TimeWindow(None, 100)


async def test_a_reader_that_moves_on_fetches_page_after_page() -> None:
    async with stage() as s:
        s.add(*range(10, 20_010, 10))
        for offset in range(5, 20_000, 500):
            lower = 10 * (offset // 10 * 10)
            assert await s.window(offset) == TimeWindow(lower or None, lower + 100)
        assert len(s.asked()) < 20


async def test_truncated_watermarks_leave_a_looser_bound() -> None:
    async with stage() as s:
        s.add(*range(10, 20_010, 10))
        assert await s.window(5) == TimeWindow(None, 100)
        segment = s.b.store.segments[s.name]
        segment.truncate(segment.boundaries[1500])
        known = await s.window(10_005)
        assert known.lower_ms is not None
        assert known.lower_ms <= 100_000
        assert await s.window(18_005) == TimeWindow(180_000, 180_100)


async def test_watermarks_truncated_before_the_first_look_are_no_obstacle() -> None:
    async with stage() as s:
        s.add(10, 20, 30)
        segment = s.b.store.segments[s.name]
        segment.truncate(segment.boundaries[1])
        assert await s.window(25) == TimeWindow(None, 300)
        assert await s.window(30) == TimeWindow(300, None)


async def test_watermarks_of_another_life_of_the_stream_are_left_out() -> None:
    async with stage() as s:
        s.add(10)
        s.add(12, incarnation=2)
        s.add(20)
        assert await s.window(15) == TimeWindow(100, 200)


async def test_a_stream_that_was_created_again_keeps_the_window_of_its_old_reader() -> None:
    async with stage() as s:
        s.add(10, 20)
        assert await s.window(25) == TimeWindow(200, None)
        del s.b.store.segments[s.name]
        s.add(3, incarnation=2)
        for _ in range(5):
            s.clock.now_s += MISSING_PAUSE_S_MAX
            assert await s.window(26) == TimeWindow(200, None)


async def test_damaged_watermarks_are_named_at_every_call() -> None:
    async with stage() as s:
        s.add(10, 20)
        segment = s.b.store.segments[s.name]
        segment.data[segment.boundaries[0] + 70] ^= 1
        for _ in range(2):
            with pytest.raises(CorruptBlock) as told:
                await s.window(5)
            assert told.value.fields["segment"] == s.name
            assert told.value.fields["offset"] == segment.boundaries[0]


async def test_while_the_store_does_not_answer_the_known_watermarks_count() -> None:
    async with stage() as s:
        s.add(10, 20)
        assert await s.window(5) == TimeWindow(None, 100)
        s.b.store.fault = _unavailable
        s.clock.now_s += TAIL_PAUSE_S_MAX
        assert await s.window(15) == TimeWindow(100, 200)
        s.b.store.fault = lambda _direction, _message: None
        s.add(30)
        s.clock.now_s += MISSING_PAUSE_S_MAX
        assert await s.window(25) == TimeWindow(200, 300)


def _unavailable(direction: Direction, message: Message) -> Unavailable | None:
    if direction == "in" and isinstance(message, ReadSegment | GetSegmentInfo):
        return Unavailable("away")
    return None


@pytest.mark.parametrize("page_size", [1, 300, 1000])
async def test_halving_finds_every_place_whatever_is_read_at_once(
    page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PAGE_SIZE_BYTES", page_size)
    async with stage() as s:
        s.add(*range(10, 510, 10))
        log = s.follower._log
        for wanted in range(0, 520, 5):
            last, end = await log.seek(lambda mark, at=wanted: mark.lower_ms <= 10 * at)  # type: ignore[misc]
            expected = min(500, wanted // 10 * 10)
            assert (0 if last is None else last.watermark.lower_ms) == 10 * expected
            if last is not None:
                assert end == last.end
            before = await log.last_before(end, lambda mark: mark.upper_ms <= 300)
            assert (0 if before is None else before.upper_ms) == min(300, 10 * expected)


async def test_after_a_long_time_without_watermarks_the_tail_is_asked_as_often_as_ever() -> None:
    async with stage() as s:
        for _ in range(10):
            assert await s.window(5) == TimeWindow(None, None)
            s.clock.now_s += MISSING_PAUSE_S_MAX
        s.add(10)
        assert await s.window(15) == TimeWindow(100, None)
        s.add(20)
        s.clock.now_s += PAUSE_S_MIN
        assert await s.window(16) == TimeWindow(100, 200)


async def test_a_store_that_never_answers_holds_a_reader_up_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "ATTEMPT_S", 0.01)
    async with stage() as s:
        s.add(10)
        s.b.store.fault = lambda direction, message: (
            Fault.HOLD if direction == "out" and isinstance(message, SegmentInfo) else None
        )
        assert await s.window(5) == TimeWindow(None, None)
        asked = len(s.asked())
        assert await s.window(5) == TimeWindow(None, None)
        assert len(s.asked()) == asked, "it is left alone for a while"
