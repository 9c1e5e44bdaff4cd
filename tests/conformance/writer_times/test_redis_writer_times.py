"""Marks in a Redis server that holds other things than it should."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.errors import InvalidSetting
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.ids import SystemIds
from anabranch.controller.adapters.redis_writer_times import RedisWriterTimes
from kit.infra import Server

STREAM = stream_ref("s/x")
WRITER = "0" * 32


@pytest.fixture
async def raw(redis_server: Server) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def times(redis_server: Server) -> AsyncIterator[RedisWriterTimes]:
    made = RedisWriterTimes(redis_server.url, f"test-{SystemIds().new_id()}")
    yield made
    await made.close()


@pytest.mark.parametrize(
    "value", ["", "nonsense", "9:x:[]", "9:99999999999999:[]", "9:0:[]", "-1:5:[]"]
)
async def test_a_value_that_is_no_mark_of_now_is_none(
    times: RedisWriterTimes, raw: redis.asyncio.Redis, value: str
) -> None:
    await raw.hset(times.key(STREAM, 1), WRITER, value)

    assert (await times.page(STREAM, 1, "", 10)).marks == ()
    await times.note(STREAM, 1, WRITER, 1, ())
    (mark,) = (await times.page(STREAM, 1, "", 10)).marks
    assert mark.timestamp_ms == 1


@pytest.mark.parametrize("positions", ["", "{}", "[[1]]", '[["a",2]]', "[[1,2"])
async def test_positions_that_are_none_spoil_their_own_mark_alone(
    times: RedisWriterTimes, raw: redis.asyncio.Redis, positions: str
) -> None:
    cut = (SegmentOffset(segment_id(0, 0), 4),)
    await times.note(STREAM, 1, WRITER, 1, cut)
    (good,) = (await times.page(STREAM, 1, "", 10)).marks
    await raw.hset(times.key(STREAM, 1), "f" * 32, f"1:{good.noted_ms}:{positions}")

    page = await times.page(STREAM, 1, "", 10)
    assert [mark.positions for mark in page.marks if mark.writer_id == WRITER] == [cut]
    assert len(page.marks) == (2 if positions == "{}" else 1)


async def test_a_key_of_another_type_is_overwritten(
    times: RedisWriterTimes, raw: redis.asyncio.Redis
) -> None:
    await raw.set(times.key(STREAM, 1), "a string")

    await times.note(STREAM, 1, WRITER, 1, ())

    assert len((await times.page(STREAM, 1, "", 10)).marks) == 1


async def test_what_is_kept_ends_by_itself(
    times: RedisWriterTimes, raw: redis.asyncio.Redis
) -> None:
    await times.note(STREAM, 1, WRITER, 1, ())

    assert 0 < await raw.pttl(times.key(STREAM, 1)) <= 24 * 3600 * 1000


def test_what_is_no_url_of_a_redis_server_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        RedisWriterTimes("http://somewhere", "test")


SHARD = shard_of_subject(stream_events(STREAM))


async def streams_of(times: RedisWriterTimes, generation: int = 0, after: int = 0) -> list[int]:
    found = await times.noted(SHARD, generation, after, 10)
    return [one.incarnation for one in found.streams]


@pytest.mark.parametrize("lost", ["numbers", "index", "both"])
async def test_an_index_that_is_lost_in_part_begins_again(
    times: RedisWriterTimes, raw: redis.asyncio.Redis, lost: str
) -> None:
    for timestamp_ms in range(9):
        await times.note(STREAM, 1, WRITER, timestamp_ms, ())
    before = await times.noted(SHARD, 0, 0, 10)
    numbers, index, _ = times.index(SHARD)
    await raw.delete(*{"numbers": [numbers], "index": [index], "both": [numbers, index]}[lost])

    await times.note(STREAM, 2, WRITER, 1, ())

    found = await times.noted(SHARD, before.generation, before.last, 10)
    assert (found.generation == before.generation) == (lost == "index")
    assert [one.incarnation for one in found.streams] == ([1, 2] if lost == "numbers" else [2])
    assert await streams_of(times, found.generation, found.last) == []


@pytest.mark.parametrize(
    ("member", "score"), [("nonsense", 3), ("a/b/c", 4), ("s/x/1", 1e300), ("s/x/1", float("inf"))]
)
async def test_what_is_no_stream_in_an_index_spoils_nothing(
    times: RedisWriterTimes, raw: redis.asyncio.Redis, member: str, score: float
) -> None:
    await raw.zadd(times.index(SHARD)[1], {member: score})

    await times.note(STREAM, 2, WRITER, 1, ())

    assert await streams_of(times) == [2]


@pytest.mark.parametrize("field", ["generation", "number"])
async def test_numbers_that_are_none_begin_again(
    times: RedisWriterTimes, raw: redis.asyncio.Redis, field: str
) -> None:
    await times.note(STREAM, 1, WRITER, 1, ())
    await raw.hset(times.index(SHARD)[0], field, "nonsense")

    await times.note(STREAM, 2, WRITER, 1, ())

    assert await streams_of(times) == [1, 2]


async def test_an_index_and_its_numbers_end_by_themselves(
    times: RedisWriterTimes, raw: redis.asyncio.Redis
) -> None:
    await times.note(STREAM, 1, WRITER, 1, ())

    for key in times.index(SHARD):
        assert 0 < await raw.pttl(key) <= 24 * 3600 * 1000
