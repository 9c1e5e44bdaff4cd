"""Controllers that share buckets on real NATS and Redis servers, which are hurt meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.contracts.commands import Accepted, CreateScope, CreateStream
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.controller.cluster.buckets import LEASE_S
from anabranch.controller.wiring import LEASE_PREFIX
from kit.controller_caller import Caller, until
from kit.fake_stores import FakeSegmentStores
from kit.fleet import Fleet, fleet
from kit.infra import Infra, NatsServer, Server
from kit.infra.hurting import unhurt

TAKEN_OVER_S_MAX = 10.0


@pytest.fixture
def redis(infra: Infra) -> Iterator[Server]:
    with unhurt(infra).redis() as server:
        yield server


@pytest.fixture
async def controllers(nats_server: NatsServer, redis: Server) -> AsyncIterator[Fleet]:
    async with fleet(nats_server.url, redis.url) as made:
        yield made


async def create_scopes(caller: Caller, prefix: str, count: int = SHARD_COUNT) -> None:
    """Commands in many buckets, one after the other, each to its end."""
    for index in range(count):
        await caller.perform(CreateScope(command_id=f"{prefix}-{index}", scope=f"{prefix}-{index}"))


async def test_two_controllers_share_the_buckets_and_do_all_the_work(
    controllers: Fleet, caller: Caller, stores: FakeSegmentStores, redis: Server
) -> None:
    await controllers.start("a", "b")
    await controllers.until_counts({"a": 8, "b": 8})
    await create_scopes(caller, "shared")

    async with Redis.from_url(redis.url) as raw:
        await raw.flushall()
    await create_scopes(caller, "flushed")
    await controllers.until_counts({"a": 8, "b": 8})

    await controllers.stop("b")
    await controllers.until_counts({"a": 16})
    await create_scopes(caller, "alone")
    assert controllers.reason("a") == ""


async def test_a_controller_that_joins_gets_its_share(
    controllers: Fleet, caller: Caller, stores: FakeSegmentStores
) -> None:
    await controllers.start("a")
    await controllers.until_counts({"a": 16})
    await controllers.start("b")
    async with asyncio.TaskGroup() as group:
        group.create_task(create_scopes(caller, "joining"))
        await controllers.until_counts({"a": 8, "b": 8})


async def test_a_redis_that_hangs_or_dies_stops_no_work(
    controllers: Fleet, caller: Caller, stores: FakeSegmentStores, redis: Server
) -> None:
    await controllers.start("a", "b")
    await controllers.until_counts({"a": 8, "b": 8})

    redis.pause()
    await until(lambda: "rendezvous" in controllers.reason("a"))
    await until(lambda: "rendezvous" in controllers.reason("b"))
    await create_scopes(caller, "hanging")
    redis.kill()
    await create_scopes(caller, "killed")
    await until(lambda: all(lifetime.ready for lifetime in controllers.lifetimes.values()))

    redis.start()
    await until(lambda: controllers.reason("a") == "")
    await controllers.until_counts({"a": 8, "b": 8})
    await create_scopes(caller, "back")


async def test_keys_of_another_type_stop_no_work(
    controllers: Fleet, caller: Caller, stores: FakeSegmentStores, redis: Server
) -> None:
    await controllers.start("a", "b")
    leases = RedisLeases(redis.url, LEASE_PREFIX, SHARD_COUNT, LEASE_S)
    async with Redis.from_url(redis.url) as raw:
        for number in range(SHARD_COUNT):
            await raw.set(leases.key(number), "no hash")
    await create_scopes(caller, "wrong")
    await controllers.until_counts({"a": 8, "b": 8})


async def test_a_controller_starts_without_redis_and_says_so(
    controllers: Fleet, caller: Caller, stores: FakeSegmentStores, redis: Server
) -> None:
    redis.kill()
    await controllers.start("a")
    assert "rendezvous" in controllers.reason("a")
    await create_scopes(caller, "without", 4)


async def test_what_a_killed_controller_left_half_done_is_finished_by_another_one(
    controllers: Fleet,
    caller: Caller,
    stores: FakeSegmentStores,
    nats_server: NatsServer,
    redis: Server,
) -> None:
    environment = {
        **os.environ,
        "ANABRANCH_CONTROLLER_NATS_URL": nats_server.url,
        "ANABRANCH_CONTROLLER_NATS_MONITOR_URL": nats_server.monitor_url,
        "ANABRANCH_CONTROLLER_REDIS_URL": redis.url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "anabranch.controller",
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await controllers.until_all_taken()
        await caller.perform(CreateScope(command_id="c1", scope="half"))
        stores.fail_after = 10
        create = CreateStream(command_id="c2", scope="half", stream="x", segment_count=40)
        answer = await caller.send(create)
        assert isinstance(answer, Accepted)
        await until(lambda: stores.down)
        await controllers.start("b")
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    stores.fail_after, stores.down = None, False

    async with asyncio.timeout(TAKEN_OVER_S_MAX):
        await controllers.until_counts({"b": 16})
        await caller.outcome(create, answer)
    assert len(stores.live()) == 40
