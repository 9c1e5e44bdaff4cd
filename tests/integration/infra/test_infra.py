"""What every provider of servers promises to the tests that stand on it."""

import json
from urllib.request import urlopen

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from redis.asyncio import Redis

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import Infra, NatsServer

STREAM, SUBJECT = "kept", "kept.a"


async def published(server: NatsServer, payloads: list[bytes]) -> None:
    client = await connect_nats(nats_target(server.url), "test")
    await client.jetstream().add_stream(name=STREAM, subjects=[SUBJECT])
    for payload in payloads:
        await client.jetstream().publish(SUBJECT, payload)
    await client.close()


async def stored(client: Client) -> list[bytes | None]:
    jetstream = client.jetstream()
    count = (await jetstream.stream_info(STREAM)).state.messages
    return [(await jetstream.get_msg(STREAM, n)).data for n in range(1, count + 1)]


def test_nats_syncs_every_message_as_the_deployed_one_does(nats_server: NatsServer) -> None:
    with urlopen(f"{nats_server.monitor_url}/jsz?config=true", timeout=5) as answer:
        config = json.load(answer)["config"]

    assert config["sync_always"] is True


async def test_what_was_published_survives_kill_and_stop(nats_server: NatsServer) -> None:
    payloads = [b"%d" % n for n in range(20)]
    await published(nats_server, payloads)
    url = nats_server.url

    for end in (nats_server.kill, nats_server.stop):
        end()
        end()  # it has ended already
        nats_server.start()
        assert nats_server.url == url
        client = await connect_nats(nats_target(url), "test")
        assert await stored(client) == payloads
        await client.close()


async def test_a_paused_nats_answers_nothing_until_it_is_resumed(nats_server: NatsServer) -> None:
    client = await connect_nats(nats_target(nats_server.url), "test")
    try:
        nats_server.pause()
        with pytest.raises(NatsTimeoutError):
            await client.jetstream(timeout=0.3).account_info()
        nats_server.resume()
        await client.jetstream().account_info()
    finally:
        await client.close()


def test_a_paused_server_can_be_ended(infra: Infra) -> None:
    with infra.redis() as server:
        server.pause()
        server.kill()
        server.start()


async def test_redis_never_evicts_and_keeps_its_data_through_kill_and_stop(infra: Infra) -> None:
    with infra.redis() as server:
        for number, end in enumerate((server.kill, server.stop)):
            async with Redis.from_url(server.url) as client:
                assert await client.ping()
                assert (await client.config_get("maxmemory-policy")) == {
                    "maxmemory-policy": "noeviction"
                }
                await client.set(f"before {number}", "kept")
            end()
            server.start()
        async with Redis.from_url(server.url, decode_responses=True) as client:
            assert sorted(await client.keys()) == ["before 0", "before 1"]


async def test_two_servers_share_no_data(infra: Infra) -> None:
    with infra.redis() as one, infra.redis() as other:
        async with Redis.from_url(one.url) as first, Redis.from_url(other.url) as second:
            await first.set("mine", "1")
            assert await second.get("mine") is None
    with infra.redis() as later:
        async with Redis.from_url(later.url) as third:
            assert await third.keys() == []
