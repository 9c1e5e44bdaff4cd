"""Leases on a Redis that forgets, hangs, dies, comes back old, or holds somebody else's data.

Never a wrong answer and never another error than `Unavailable`; at worst nobody holds anything.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.leases.ports import Lease
from kit.infra import Infra, Server

COUNT = 4
LEASE_S = 60.0


@pytest.fixture
def own_server(infra: Infra) -> Iterator[Server]:
    """A server to be hurt."""
    with infra.redis() as server:
        yield server


@pytest.fixture(params=[2, 3])
async def leases(request: pytest.FixtureRequest, own_server: Server) -> AsyncIterator[RedisLeases]:
    made = RedisLeases(own_server.url, "test", COUNT, LEASE_S, protocol=request.param)
    yield made
    await made.close()


@pytest.fixture
async def raw(own_server: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_server.url) as client:
        yield client


async def answered(leases: RedisLeases, owner: str) -> dict[int, Lease]:
    """All leases for `owner`, as soon as the server answers again."""
    async with asyncio.timeout(10):
        while True:
            try:
                return dict(await leases.take(range(COUNT), owner))
            except Unavailable:
                await asyncio.sleep(0.01)


async def test_a_server_that_forgot_everything_has_nothing_held(
    leases: RedisLeases, raw: Redis
) -> None:
    await leases.take([0], "a")
    await raw.flushall()
    await raw.script_flush()

    assert await leases.read() == {}
    assert await leases.take([0], "b") == {0: Lease("b", 1)}


async def test_a_killed_server_is_unavailable_and_then_goes_on(
    leases: RedisLeases, own_server: Server
) -> None:
    await leases.take([0], "a")
    own_server.kill()

    with pytest.raises(Unavailable):
        await leases.read()
    with pytest.raises(Unavailable):
        await leases.take([1], "a")

    own_server.start()
    assert set(await answered(leases, "a")) == set(range(COUNT))


async def test_a_server_that_hangs_is_unavailable_within_the_deadline(own_server: Server) -> None:
    leases = RedisLeases(own_server.url, "test", COUNT, LEASE_S, call_s_max=0.05)
    await leases.take([0], "a")
    own_server.pause()
    try:
        async with asyncio.timeout(5):
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await leases.read()
    finally:
        own_server.resume()
    assert set(await answered(leases, "a")) == set(range(COUNT))
    await leases.close()


async def test_a_cancelled_call_leaves_no_reply_to_the_next_one(
    leases: RedisLeases, own_server: Server
) -> None:
    await leases.take([0], "a")
    own_server.pause()
    async with asyncio.TaskGroup() as group:
        # Its reply would be four empty leases, which is what `take` answers who gets nothing.
        calls = [group.create_task(leases.take([0, 1, 2, 3], "b"))]
        for _ in range(20):
            await asyncio.sleep(0)
        calls[0].cancel()
    own_server.resume()

    async with asyncio.timeout(10):
        while True:
            if 3 in await leases.read():
                break
            await asyncio.sleep(0.005)
    assert await leases.read() == {
        0: Lease("a", 1), 1: Lease("b", 1), 2: Lease("b", 1), 3: Lease("b", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "text"),
        ("LPUSH", "a", "b"),
        ("HSET", "owner", "x", "expires", "nonsense", "token", "nan"),
        ("HSET", "owner", "x", "expires", "inf", "token", "-7"),
        ("HSET", "owner", "x", "expires", "99999999999999", "token", "1e300"),
        ("HSET", "expires", "99999999999999"),
        ("HSET", "owner", "\udcff", "expires", "0"),
    ],
)
async def test_what_is_no_lease_counts_as_ended_and_is_overwritten(
    leases: RedisLeases, raw: Redis, command: tuple[str, ...]
) -> None:
    verb, *values = (word.encode(errors="surrogateescape") for word in command)
    await raw.execute_command(verb, leases.key(0), *values)  # type: ignore[no-untyped-call]

    assert await leases.read() == {}
    assert await leases.take([0], "a") == {0: Lease("a", 1)}
    assert await leases.read() == {0: Lease("a", 1)}


async def test_an_owner_that_is_no_text_is_some_other_owner(
    leases: RedisLeases, raw: Redis
) -> None:
    await leases.take([0], "a")
    await raw.hset(leases.key(0), "owner", b"\xff\x00")

    assert (await leases.read())[0].owner != "a"
    assert await leases.take([0], "a") == {}


async def test_a_server_that_refuses_to_write_is_unavailable(
    leases: RedisLeases, raw: Redis
) -> None:
    await raw.config_set("maxmemory", 1)

    with pytest.raises(Unavailable):
        await leases.take([0], "a")

    await raw.config_set("maxmemory", 0)
    assert await leases.take([0], "a") == {0: Lease("a", 1)}


async def test_leases_that_a_restarted_server_remembers_end_at_their_time(
    own_server: Server,
) -> None:
    leases = RedisLeases(own_server.url, "test", COUNT, 0.2)
    await leases.take([0], "a")
    own_server.kill()
    own_server.start()  # it kept its append-only file

    async with asyncio.timeout(10):
        while True:
            if 0 in await answered(leases, "b"):
                break
            await asyncio.sleep(0.01)
    assert (await leases.read())[0] == Lease("b", 2)
    await leases.close()


async def test_leases_of_another_prefix_are_not_seen(
    leases: RedisLeases, own_server: Server
) -> None:
    other = RedisLeases(own_server.url, "other", COUNT, LEASE_S)
    await other.take([0], "a")

    assert await leases.read() == {}
    await other.close()


async def test_leases_in_another_database_are_not_seen(
    leases: RedisLeases, own_server: Server
) -> None:
    other = RedisLeases(f"{own_server.url}/1", "test", COUNT, LEASE_S)
    assert set(await other.take([0], "a")) == {0}

    assert await leases.read() == {}
    assert set(await other.read()) == {0}
    await other.close()


@pytest.mark.parametrize("url", ["", "http://host", "127.0.0.1:6379", "redis://h:port"])
def test_what_names_no_redis_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting):
        RedisLeases(url, "test", COUNT, LEASE_S)
