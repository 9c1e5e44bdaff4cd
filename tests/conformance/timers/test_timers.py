"""What every `TransactionTimers` does, in memory and on a real Redis server, by both protocols."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.ids import SystemIds
from anabranch.controller.adapters.redis_timer_wheel import RedisTimerWheel
from anabranch.controller.ports import TransactionTimers
from kit.fake_timers import InMemoryTimers
from kit.infra import Server

LATE_MS = 2**53 - 1
LIMIT = 100


@pytest.fixture(params=["memory", "redis-resp2", "redis-resp3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def timers(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[TransactionTimers]:
    made: TransactionTimers = InMemoryTimers()
    if kind != "memory":
        server: Server = request.getfixturevalue("redis_server")
        made = RedisTimerWheel(server.url, f"test-{SystemIds().new_id()}", protocol=int(kind[-1]))
    yield made
    await made.close()


async def test_nothing_is_due_at_first(timers: TransactionTimers) -> None:
    assert await timers.due(1, LATE_MS, LIMIT) == []


async def test_a_member_is_due_from_its_deadline_on_and_then_taken_out(
    timers: TransactionTimers,
) -> None:
    await timers.arm(1, {"s/x/1/a": 1000})

    assert await timers.due(1, 999, LIMIT) == []
    assert await timers.due(1, 1000, LIMIT) == ["s/x/1/a"]
    assert await timers.due(1, LATE_MS, LIMIT) == []


async def test_milliseconds_are_told_apart_however_late(timers: TransactionTimers) -> None:
    await timers.arm(1, {"a": LATE_MS})

    assert await timers.due(1, LATE_MS - 1, LIMIT) == []
    assert await timers.due(1, LATE_MS, LIMIT) == ["a"]


async def test_those_that_are_due_come_earliest_first_and_no_more_than_asked_for(
    timers: TransactionTimers,
) -> None:
    await timers.arm(1, {"c": 30, "a": 10, "d": 40, "b": 20})

    assert await timers.due(1, 35, 2) == ["a", "b"]
    assert await timers.due(1, 35, 2) == ["c"]
    assert await timers.due(1, 35, 2) == []
    assert await timers.due(1, 40, 2) == ["d"]


@pytest.mark.parametrize("later_ms", [5, 50])
async def test_a_deadline_takes_the_place_of_the_one_before(
    timers: TransactionTimers, later_ms: int
) -> None:
    await timers.arm(1, {"a": 20})
    await timers.arm(1, {"a": later_ms})

    assert await timers.due(1, later_ms - 1, LIMIT) == []
    assert await timers.due(1, later_ms, LIMIT) == ["a"]
    assert await timers.due(1, LATE_MS, LIMIT) == []


async def test_many_deadlines_take_the_place_of_those_before(timers: TransactionTimers) -> None:
    await timers.arm(1, {"a": 10, "b": 20})
    await timers.arm(1, {"a": 30, "c": 5})
    await timers.arm(1, {})

    assert await timers.due(1, LATE_MS, LIMIT) == ["c", "b", "a"]


async def test_a_member_that_was_due_may_be_armed_again(timers: TransactionTimers) -> None:
    await timers.arm(1, {"a": 1})
    assert await timers.due(1, 1, LIMIT) == ["a"]

    await timers.arm(1, {"a": 2})

    assert await timers.due(1, 2, LIMIT) == ["a"]


async def test_buckets_are_apart(timers: TransactionTimers) -> None:
    await timers.arm(1, {"a": 1})
    await timers.arm(2, {"a": 2})

    assert await timers.due(1, LATE_MS, LIMIT) == ["a"]
    assert await timers.due(1, LATE_MS, LIMIT) == []
    assert await timers.due(2, LATE_MS, LIMIT) == ["a"]


async def test_more_members_than_one_call_takes_are_armed(
    timers: TransactionTimers,
) -> None:
    names = [f"m{number:05}" for number in range(2500)]
    await timers.arm(1, {name: number for number, name in enumerate(names)})

    parts = [await timers.due(1, LATE_MS, 700) for _ in range(5)]

    assert [len(part) for part in parts] == [700, 700, 700, 400, 0]
    assert [name for part in parts for name in part] == names


async def test_of_callers_at_once_each_member_goes_to_one(timers: TransactionTimers) -> None:
    names = [f"m{number:02}" for number in range(40)]
    await timers.arm(1, dict.fromkeys(names, 1))
    found: list[str] = []

    async def take() -> None:
        found.extend(await timers.due(1, 1, 10))

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(take())

    assert sorted(found) == names


async def test_without_a_server_every_call_says_so(kind: str) -> None:
    timers: TransactionTimers = RedisTimerWheel("redis://127.0.0.1:1", "test", call_s_max=0.2)
    if kind == "memory":
        away = InMemoryTimers()
        away.away = True
        timers = away

    with pytest.raises(Unavailable):
        await timers.arm(1, {"a": 1})
    with pytest.raises(Unavailable):
        await timers.due(1, 1, 1)
    await timers.close()
