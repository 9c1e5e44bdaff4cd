"""Containers whose logs are streams of a real NATS server, served by real stores."""

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import (
    node_from_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.messages import Appended, Done, FlushContainer
from kit.infra import NatsServer
from kit.store_process import SEGMENT, Cluster, connect, segment_store
from kit.wire_client import WireClient


@pytest.fixture
async def cluster(nats_server: NatsServer) -> AsyncIterator[Cluster]:
    client = await connect_nats(nats_target(nats_server.url), "test")
    cluster = Cluster(client)
    await cluster.prepare()
    yield cluster
    await client.close()


def settings(server: NatsServer) -> dict[str, str]:
    return {
        "JOURNAL": "jetstream",
        "NATS_MONITOR_URLS": server.monitor_url,
        "TIER2_LOSS": "accepted",
    }


async def write(client: WireClient, first: int, count: int, size: int) -> bytes:
    """Append events and wait until all are acknowledged; returns their blocks."""
    blocks = b""
    for number in range(first, first + count):
        blocks += client.append(number, [b"%d" % number * size])
    reply = None
    while not isinstance(reply, Appended) or reply.last_event_number < first + count - 1:
        reply, _ = await client.receive()
    return blocks


async def test_what_was_acknowledged_survives_kills_of_the_store(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    expected = b""
    for round_number in range(1, 5):
        store = segment_store(tmp_path / "data", nats_server.url, **settings(nats_server))
        async with store as process:
            if round_number == 1:
                await cluster.assign()
            await cluster.opened(round_number)
            client = await connect(cluster)
            if round_number == 1:
                assert await client.create(SEGMENT) == Done()
            assert await client.read_all(SEGMENT) == expected
            setup = await client.setup(SEGMENT)
            assert setup.last_event_number == 20 * (round_number - 1)
            size = 700_000 if round_number == 2 else 50  # larger than a message of the server
            expected += await write(client, setup.last_event_number + 1, 20, size)
            if round_number == 3:
                assert await client.call(FlushContainer(container=0)) == Done()
            process.send_signal(signal.SIGKILL if round_number < 4 else signal.SIGTERM)
            await client.close()
            await process.communicate()
            assert process.returncode == (-signal.SIGKILL if round_number < 4 else 0)
    assert not (tmp_path / "data" / "journal").exists()


async def test_another_store_opens_the_container_of_a_dead_one_with_all_that_was_acknowledged(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    shared = {"TIER2_URL": (tmp_path / "tier2").as_uri(), **settings(nats_server)}
    async with segment_store(tmp_path / "first", nats_server.url, **shared) as process:
        await cluster.assign()
        await cluster.opened(1)
        client = await connect(cluster)
        assert await client.create(SEGMENT) == Done()
        await client.setup(SEGMENT)
        expected = await write(client, 1, 20, 50)
        process.kill()
        await client.close()
        await process.communicate()
    dead = await cluster.node()
    async with segment_store(tmp_path / "second", nats_server.url, **shared):
        await place_elsewhere(cluster, dead.node_id)
        await cluster.opened(2)
        found = next(node for node in await nodes(cluster) if node != dead.node_id)
        assert found
        client = await connect_to(cluster, found)
        assert await client.read_all(SEGMENT) == expected
        assert (await client.setup(SEGMENT)).last_event_number == 20
        expected += await write(client, 21, 5, 50)
        assert await client.read_all(SEGMENT) == expected
        await client.close()


async def nodes(cluster: Cluster) -> list[str]:
    stored = await cluster.objects(subjects.NODES_BUCKET).list()
    return [node_from_bytes(one.value).node_id for one in stored]


async def connect_to(cluster: Cluster, node_id: str) -> WireClient:
    for stored in await cluster.objects(subjects.NODES_BUCKET).list():
        node = node_from_bytes(stored.value)
        if node.node_id == node_id:
            return await WireClient.connect(node.endpoint.host, node.endpoint.port)
    raise AssertionError("the node is gone")


async def place_elsewhere(cluster: Cluster, dead: str) -> None:
    """Give the container to the node that registers beside the dead one."""
    async for stored in cluster.objects(subjects.NODES_BUCKET).watch():
        if stored is None or node_from_bytes(stored.value).node_id == dead:
            continue
        placements = cluster.objects(subjects.PLACEMENTS_BUCKET)
        (placed,) = await placements.list()
        node_id = node_from_bytes(stored.value).node_id
        moved = replace(placement_from_bytes(placed.value), replicas=(node_id,))
        await placements.update(placement_key(0), placement_to_bytes(moved), placed.revision)
        return
