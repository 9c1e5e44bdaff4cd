"""What every `WriterTimes` does, in memory and on a real Redis server under both its protocols."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.errors import InvalidRequest, Overloaded, Unavailable
from anabranch.common.model.names import StreamRef, segment_id, stream_ref
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from anabranch.controller.adapters.redis_writer_times import RedisWriterTimes
from anabranch.controller.domain.writer_times import Mark, Noted
from anabranch.controller.ports import WriterTimes
from kit.fake_writer_times import InMemoryWriterTimes
from kit.infra import Server

STREAM, OTHER = stream_ref("s/x"), stream_ref("s/y")
SHARD = shard_of_subject(stream_events(STREAM))
FIRST, SECOND, THIRD = (f"{number:032x}" for number in (1, 2, 3))
CUT = (SegmentOffset(segment_id(0, 0), 10), SegmentOffset(segment_id(1, 2), 0))
WRITERS_MAX = 2
SHORT_MS = 100
DEADLINE_S = 10.0


def fresh(kind: str, server: Server | None, mark_ms: int) -> WriterTimes:
    """Of nobody's yet."""
    if server is None:
        return InMemoryWriterTimes(SystemClock(), writers_max=WRITERS_MAX, mark_ms=mark_ms)
    return RedisWriterTimes(
        server.url,
        f"test-{SystemIds().new_id()}",
        writers_max=WRITERS_MAX,
        mark_ms=mark_ms,
        protocol=int(kind[-1]),
    )


@pytest.fixture(params=["memory", "redis-resp2", "redis-resp3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Server | None:
    if kind == "memory":
        return None
    found: Server = request.getfixturevalue("redis_server")
    return found


@pytest.fixture
async def times(kind: str, server: Server | None) -> AsyncIterator[WriterTimes]:
    made = fresh(kind, server, 60_000)
    yield made
    await made.close()


@pytest.fixture
async def short(kind: str, server: Server | None) -> AsyncIterator[WriterTimes]:
    made = fresh(kind, server, SHORT_MS)
    yield made
    await made.close()


async def known(times: WriterTimes, incarnation: int = 1) -> dict[str, int]:
    page = await times.page(STREAM, incarnation, "", 100)
    return {mark.writer_id: mark.timestamp_ms for mark in page.marks}


async def until_forgotten(times: WriterTimes, writer: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if writer not in await known(times):
                return
            await asyncio.sleep(0.005)


async def test_nothing_is_known_at_first(times: WriterTimes) -> None:
    page = await times.page(STREAM, 1, "", 10)

    assert (page.marks, page.following) == ((), "")
    assert not await times.remove(STREAM, 1, FIRST)


async def test_a_mark_is_kept_with_its_positions_and_when_it_was_noted(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 2**53 - 1, CUT)

    page = await times.page(STREAM, 1, "", 10)
    (mark,) = page.marks
    assert (mark.writer_id, mark.timestamp_ms, mark.positions) == (FIRST, 2**53 - 1, CUT)
    assert 0 <= page.now_ms - mark.noted_ms < DEADLINE_S * 1000


async def test_a_writers_time_goes_forward_or_stays(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, CUT)
    await times.note(STREAM, 1, FIRST, 5, ())
    await times.note(STREAM, 1, FIRST, 7, ())

    with pytest.raises(InvalidRequest) as refused:
        await times.note(STREAM, 1, FIRST, 6, ())

    fields = refused.value.fields
    assert (fields["timestamp_ms"], fields["noted_ms"]) == (6, 7)
    assert await known(times) == {FIRST: 7}


LARGE = 2**62
"""A double does not tell it from its neighbours."""


@pytest.mark.parametrize(
    ("noted", "lower"), [(10, 9), (10, 0), (LARGE, LARGE - 1), (100, 99), (0, -1)]
)
@pytest.mark.parametrize("timestamp_ms", [5, 6])
async def test_a_writers_position_in_a_segment_goes_forward_or_stays(
    times: WriterTimes, noted: int, lower: int, timestamp_ms: int
) -> None:
    one, other = segment_id(2**30, 7), segment_id(2**30, 8)
    before = (SegmentOffset(one, noted), SegmentOffset(other, 5))
    await times.note(STREAM, 1, FIRST, 5, before)

    mixed = (SegmentOffset(one, lower), SegmentOffset(other, 6))
    with pytest.raises(InvalidRequest) as refused:
        await times.note(STREAM, 1, FIRST, timestamp_ms, mixed)

    fields = refused.value.fields
    assert (fields["segment"], fields["offset"], fields["noted_offset"]) == (one, lower, noted)
    (mark,) = (await times.page(STREAM, 1, "", 10)).marks
    assert (mark.timestamp_ms, mark.positions) == (5, before)
    await times.note(STREAM, 1, FIRST, timestamp_ms, before)


async def test_a_position_in_other_segments_is_compared_with_nothing(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, (SegmentOffset(segment_id(0, 0), 10),))
    await times.note(STREAM, 1, FIRST, 6, (SegmentOffset(segment_id(1, 1), 3),))
    await times.note(STREAM, 1, FIRST, 7, (SegmentOffset(segment_id(1, 1), 1 << 40),))
    await times.note(STREAM, 1, SECOND, 5, (SegmentOffset(segment_id(1, 1), 1),))

    assert await known(times) == {FIRST: 7, SECOND: 5}


async def test_streams_and_their_lives_are_apart(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())
    await times.note(STREAM, 2, FIRST, 3, ())
    await times.note(OTHER, 1, FIRST, 1, ())

    assert await known(times) == {FIRST: 5}
    assert await known(times, 2) == {FIRST: 3}


async def test_a_writer_that_is_removed_may_begin_again(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())

    assert await times.remove(STREAM, 1, FIRST)
    assert not await times.remove(STREAM, 1, FIRST)

    await times.note(STREAM, 1, FIRST, 1, ())
    assert await known(times) == {FIRST: 1}


async def test_marks_come_page_by_page_sorted_by_writer(times: WriterTimes) -> None:
    await times.note(STREAM, 1, SECOND, 2, ())
    await times.note(STREAM, 1, FIRST, 1, ())

    first = await times.page(STREAM, 1, "", 1)
    second = await times.page(STREAM, 1, first.following, 1)

    assert [mark.writer_id for mark in (*first.marks, *second.marks)] == [FIRST, SECOND]
    assert (first.following, second.following) == (FIRST, "")


async def test_one_writer_too_many_is_refused_and_those_that_are_known_go_on(
    times: WriterTimes,
) -> None:
    await times.note(STREAM, 1, FIRST, 1, ())
    await times.note(STREAM, 1, SECOND, 1, ())

    with pytest.raises(Overloaded):
        await times.note(STREAM, 1, THIRD, 1, ())
    await times.note(STREAM, 1, SECOND, 2, ())
    await times.remove(STREAM, 1, FIRST)
    await times.note(STREAM, 1, THIRD, 1, ())

    assert await known(times) == {SECOND: 2, THIRD: 1}


async def test_a_writer_without_news_is_forgotten_and_makes_room(short: WriterTimes) -> None:
    await short.note(STREAM, 1, FIRST, 9, ())
    await until_forgotten(short, FIRST)

    for writer in (FIRST, SECOND):
        await short.note(STREAM, 1, writer, 1, ())

    assert await known(short) == {FIRST: 1, SECOND: 1}


async def test_the_news_of_one_writer_keeps_no_other_one(short: WriterTimes) -> None:
    await short.note(STREAM, 1, FIRST, 1, ())
    timestamp_ms = 1
    async with asyncio.timeout(DEADLINE_S):
        while FIRST in await known(short):
            timestamp_ms += 1
            await short.note(STREAM, 1, SECOND, timestamp_ms, ())
            await asyncio.sleep(0.005)

    await short.note(STREAM, 1, SECOND, timestamp_ms, ())
    await short.note(STREAM, 1, THIRD, 1, ())
    assert await known(short) == {SECOND: timestamp_ms, THIRD: 1}


async def test_without_a_server_nothing_is_known_and_nothing_is_noted(kind: str) -> None:
    times: WriterTimes = RedisWriterTimes("redis://127.0.0.1:1", "test", call_s_max=0.2)
    if kind == "memory":
        away = InMemoryWriterTimes(SystemClock())
        away.away = True
        times = away

    with pytest.raises(Unavailable):
        await times.note(STREAM, 1, FIRST, 1, ())
    with pytest.raises(Unavailable):
        await times.page(STREAM, 1, "", 1)
    with pytest.raises(Unavailable):
        await times.remove(STREAM, 1, FIRST)
    await times.close()


# --- what controllers ask -----------------------------------------------------------------------


async def all_marks(times: WriterTimes, incarnation: int = 1) -> list[Mark]:
    return sorted((await times.marks(STREAM, incarnation)).marks)


async def noted(times: WriterTimes, generation: int = 0, after: int = 0) -> Noted:
    return await times.noted(SHARD, generation, after, 100)


def lives(found: Noted) -> list[tuple[StreamRef, int]]:
    return [(one.stream, one.incarnation) for one in found.streams]


async def test_all_marks_are_known_also_of_writers_that_are_gone(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, CUT)
    await times.note(STREAM, 1, SECOND, 7, ())
    await times.remove(STREAM, 1, FIRST)

    first, second = await all_marks(times)
    assert first._replace(noted_ms=0) == Mark(FIRST, 5, CUT, 0, is_closed=True)
    assert second._replace(noted_ms=0) == Mark(SECOND, 7, (), 0)
    assert await known(times) == {SECOND: 7}


async def test_a_writer_that_is_gone_makes_room_and_may_come_again(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())
    await times.remove(STREAM, 1, FIRST)
    await times.note(STREAM, 1, FIRST, 2, ())

    (mark,) = await all_marks(times)
    assert (mark.timestamp_ms, mark.is_closed) == (2, False)


async def test_a_mark_is_dropped_unless_it_has_changed(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())
    await times.note(STREAM, 1, SECOND, 7, ())
    before = await all_marks(times)
    await times.remove(STREAM, 1, SECOND)

    await times.drop(STREAM, 1, before)
    (left,) = await all_marks(times)
    assert (left.writer_id, left.is_closed) == (SECOND, True)
    await times.drop(STREAM, 1, [left])
    assert await all_marks(times) == []


async def test_streams_whose_marks_change_are_told_once(times: WriterTimes) -> None:
    assert lives(await noted(times)) == []
    await times.note(STREAM, 1, FIRST, 5, ())
    await times.note(STREAM, 2, FIRST, 5, ())
    first = await noted(times)
    assert lives(first) == [(STREAM, 1), (STREAM, 2)]

    assert lives(await noted(times, first.generation, first.last)) == []
    await times.note(STREAM, 1, FIRST, 6, ())
    second = await noted(times, first.generation, first.last)
    assert lives(second) == [(STREAM, 1)]
    await times.remove(STREAM, 2, FIRST)
    third = await noted(times, second.generation, second.last)
    assert lives(third) == [(STREAM, 2)]
    assert lives(await noted(times)) == [(STREAM, 1), (STREAM, 2)]
    assert (await times.marks(STREAM, 1)).generation == third.generation


async def test_of_many_streams_a_part_is_told_at_a_time(times: WriterTimes) -> None:
    for incarnation in (1, 2, 3):
        await times.note(STREAM, incarnation, FIRST, 5, ())

    first = await times.noted(SHARD, 0, 0, 2)
    assert (lives(first), first.has_more) == ([(STREAM, 1), (STREAM, 2)], True)
    second = await times.noted(SHARD, first.generation, first.last, 2)
    assert (lives(second), second.has_more) == ([(STREAM, 3)], False)


async def test_numbers_of_another_generation_count_for_nothing(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())
    found = await noted(times)

    assert lives(await noted(times, found.generation + 1, found.last + 5)) == [(STREAM, 1)]


async def test_a_stream_is_forgotten_unless_it_has_changed(times: WriterTimes) -> None:
    await times.note(STREAM, 1, FIRST, 5, ())
    (before,) = (await noted(times)).streams
    await times.note(STREAM, 1, FIRST, 6, ())

    await times.forget(before)
    (now,) = (await noted(times)).streams
    await times.forget(now)
    assert lives(await noted(times)) == []
