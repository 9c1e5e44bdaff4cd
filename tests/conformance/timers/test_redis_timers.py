"""The timer wheel in a Redis server that holds other things than it should, hangs or forgets."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.runtime.ids import SystemIds
from anabranch.controller.adapters.redis_timer_wheel import KEPT_MS, RedisTimerWheel
from kit.infra import Infra, Server

LATE_MS = 2**53 - 1


@pytest.fixture
async def raw(redis_server: Server) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def timers(redis_server: Server) -> AsyncIterator[RedisTimerWheel]:
    made = RedisTimerWheel(redis_server.url, f"test-{SystemIds().new_id()}")
    yield made
    await made.close()


async def test_a_key_of_another_type_is_overwritten(
    timers: RedisTimerWheel, raw: redis.asyncio.Redis
) -> None:
    await raw.set(timers.key(1), "a string")
    await raw.hset(timers.key(2), "a", "hash")
    await raw.rpush(timers.key(3), "a list")

    await timers.arm(1, {"a": 1})
    assert await timers.due(2, LATE_MS, 10) == []
    assert await timers.due(3, LATE_MS, 10) == []

    assert await timers.due(1, LATE_MS, 10) == ["a"]
    assert await raw.exists(timers.key(2), timers.key(3)) == 0


async def test_strange_scores_do_no_harm(timers: RedisTimerWheel, raw: redis.asyncio.Redis) -> None:
    await raw.zadd(timers.key(1), {"low": "-inf", "high": "inf", "half": 0.5})
    await timers.arm(1, {"a": 1})

    assert await timers.due(1, LATE_MS, 10) == ["low", "half", "a"]


async def test_a_member_that_is_no_text_spoils_no_other(
    timers: RedisTimerWheel, raw: redis.asyncio.Redis
) -> None:
    await raw.zadd(timers.key(1), {b"\xff": 0})
    await timers.arm(1, {"a": 1})

    found = await timers.due(1, 1, 10)

    assert (len(found), found[1]) == (2, "a")


async def test_what_is_kept_ends_by_itself_a_day_after_its_last_use(
    timers: RedisTimerWheel, raw: redis.asyncio.Redis
) -> None:
    key = timers.key(1)
    await timers.arm(1, {"a": LATE_MS, "b": LATE_MS})

    for use in (timers.arm(1, {"c": 1}), timers.due(1, 1, 1)):
        await raw.persist(key)
        await use
        assert KEPT_MS - 60_000 < await raw.pttl(key) <= KEPT_MS


async def test_a_wheel_that_was_emptied_is_filled_again(
    timers: RedisTimerWheel, raw: redis.asyncio.Redis
) -> None:
    await timers.arm(1, {"a": 1})
    await raw.delete(timers.key(1))

    assert await timers.due(1, LATE_MS, 10) == []
    await timers.arm(1, {"a": 1})
    assert await timers.due(1, LATE_MS, 10) == ["a"]


async def test_a_server_that_hangs_is_given_up_and_used_again_later(infra: Infra) -> None:
    with infra.redis() as server:
        timers = RedisTimerWheel(server.url, "test", call_s_max=0.1)
        await timers.arm(1, {"a": 1})
        server.pause()
        try:
            with pytest.raises(Unavailable):
                await timers.arm(1, {"b": 2})
        finally:
            server.resume()

        await timers.arm(1, {"c": 3})
        found = await timers.due(1, LATE_MS, 10)
        await timers.close()

    assert [member for member in found if member != "b"] == ["a", "c"]


def test_what_is_no_url_of_a_redis_server_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        RedisTimerWheel("http://somewhere", "test")
