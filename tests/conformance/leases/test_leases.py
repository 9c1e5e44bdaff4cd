"""What every `Leases` does, in memory and on a real Redis server under both of its protocols."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.leases.memory import InMemoryLeases
from anabranch.common.leases.ports import Lease, Leases
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from kit.infra import Server

COUNT = 4
LONG_S = 60.0
SHORT_S = 0.1
DEADLINE_S = 10.0


def fresh(kind: str, server: Server | None, lease_s: float) -> Leases:
    """Leases that nobody has taken any of yet."""
    if server is None:
        return InMemoryLeases(SystemClock(), lease_s)
    prefix = f"test-{SystemIds().new_id()}"
    return RedisLeases(server.url, prefix, COUNT, lease_s, protocol=int(kind[-1]))


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
async def leases(kind: str, server: Server | None) -> AsyncIterator[Leases]:
    made = fresh(kind, server, LONG_S)
    yield made
    await made.close()


@pytest.fixture
async def short(kind: str, server: Server | None) -> AsyncIterator[Leases]:
    made = fresh(kind, server, SHORT_S)
    yield made
    await made.close()


async def until_ended(leases: Leases, number: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if number not in await leases.read():
                return
            await asyncio.sleep(0.005)


async def test_nothing_is_held_at_first(leases: Leases) -> None:
    assert await leases.read() == {}


async def test_what_is_free_is_taken_and_seen(leases: Leases) -> None:
    taken = await leases.take([0, 3], "a")

    assert taken == {0: Lease("a", 1), 3: Lease("a", 1)}
    assert await leases.read() == taken


async def test_what_another_one_holds_is_not_taken(leases: Leases) -> None:
    await leases.take([0, 1], "a")

    assert await leases.take([1, 2], "b") == {2: Lease("b", 1)}
    assert await leases.read() == {0: Lease("a", 1), 1: Lease("a", 1), 2: Lease("b", 1)}


async def test_of_many_who_ask_at_once_one_gets_it(leases: Leases) -> None:
    got: list[str] = []

    async def ask(owner: str) -> None:
        if 2 in await leases.take([2], owner):
            got.append(owner)

    async with asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(ask(f"owner-{index}"))

    assert len(got) == 1
    assert (await leases.read())[2].owner == got[0]


async def test_asking_for_nothing_gets_nothing(leases: Leases) -> None:
    assert await leases.take([], "a") == {}
    await leases.release([], "a")


async def test_a_released_lease_is_free_at_once(leases: Leases) -> None:
    await leases.take([0, 1], "a")
    await leases.release([0], "a")

    assert await leases.read() == {1: Lease("a", 1)}
    assert await leases.take([0], "b") == {0: Lease("b", 2)}


async def test_only_the_owner_releases_a_lease(leases: Leases) -> None:
    await leases.take([0], "a")
    await leases.release([0, 1], "b")

    assert await leases.read() == {0: Lease("a", 1)}


async def test_a_lease_that_is_not_renewed_ends_and_another_one_takes_it(short: Leases) -> None:
    await short.take([0], "a")
    await until_ended(short, 0)

    assert await short.take([0], "b") == {0: Lease("b", 2)}


async def test_a_renewed_lease_outlives_its_first_time(short: Leases) -> None:
    await short.take([0, 1], "a")
    async with asyncio.timeout(DEADLINE_S):
        while 1 in await short.read():
            assert await short.take([0], "a") == {0: Lease("a", 1)}
            await asyncio.sleep(0.005)

    assert await short.read() == {0: Lease("a", 1)}


async def test_the_token_grows_with_every_change_of_owner_and_only_then(leases: Leases) -> None:
    tokens = []
    for owner in ("a", "a", "b", "a"):
        tokens.append((await leases.take([0], owner))[0].token)
        await leases.release([0], owner)

    assert tokens == [1, 1, 2, 3]
