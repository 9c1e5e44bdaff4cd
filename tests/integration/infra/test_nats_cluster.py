"""What the cluster of three NATS servers promises to the tests that stand on it."""

import asyncio
import json
from contextlib import suppress
from urllib.request import urlopen

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.infra.nats_cluster import NatsCluster

STREAM, SUBJECT = "kept", "kept.a"


ATTEMPTS_MAX = 5
LEADER_S_MAX = 10.0


async def publish(client: Client, message: bytes) -> None:
    """Publish to the stream; a new one answers nothing until it has a leader."""
    async with asyncio.timeout(LEADER_S_MAX):
        while True:
            with suppress(nats.js.errors.NoStreamResponseError):
                await client.jetstream().publish(SUBJECT, message)
                return
            await asyncio.sleep(0.05)


async def stored(client: Client) -> list[bytes | None]:
    """What the stream holds; a request over a connection that breaks is sent again."""
    for _ in range(ATTEMPTS_MAX):
        with suppress(nats.errors.Error):
            return await read(client)
    return await read(client)


async def read(client: Client) -> list[bytes | None]:
    jetstream = client.jetstream()
    count = (await jetstream.stream_info(STREAM)).state.messages
    return [(await jetstream.get_msg(STREAM, n)).data for n in range(1, count + 1)]


def test_each_server_syncs_every_write_under_a_name_of_its_own(three_nats: NatsCluster) -> None:
    names = set()
    for server in three_nats.servers:
        with urlopen(f"{server.monitor_url}/varz", timeout=5) as answer:
            told = json.load(answer)
        assert told["jetstream"]["config"]["sync_always"] is True
        names.add(told["server_name"])

    assert names == {server.name for server in three_nats.servers}
    assert three_nats.wait_for_leader() in names


async def test_messages_outlive_a_server_that_is_killed_and_wiped(three_nats: NatsCluster) -> None:
    client = await connect_nats(nats_target(three_nats.url), "test")
    try:
        await client.jetstream().add_stream(name=STREAM, subjects=[SUBJECT], num_replicas=3)
        await publish(client, b"1")
        described = await client.jetstream().stream_info(STREAM)
        assert described.cluster is not None
        leaders = {described.cluster.leader, three_nats.wait_for_leader()}
        follower = next(each for each in three_nats.servers if each.name not in leaders)
        follower.kill()
        follower.wipe()
        three_nats.restore()

        assert await stored(client) == [b"1"]
    finally:
        await close_nats(client)


def test_a_paused_server_tells_no_leader_until_it_is_resumed(three_nats: NatsCluster) -> None:
    follower = next(
        each for each in three_nats.servers if each.name != three_nats.wait_for_leader()
    )
    follower.pause()
    try:
        assert not follower.meta_group()
    finally:
        follower.resume()
    three_nats.wait_for_leader()
