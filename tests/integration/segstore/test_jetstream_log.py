"""Containers whose logs are streams of a real NATS server, served by real stores."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
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
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.messages import FlushContainer
from kit.infra import NatsServer
from kit.patient_client import PatientClient
from kit.store_process import SEGMENT, Cluster, connect, segment_store
from kit.wire_client import WireClient

AGAIN_S_MAX = 10.0
"""It takes about a second; the limit leaves room for a slow machine."""


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


def events(first: int, count: int, size: int) -> list[bytes]:
    return [b"%d" % number * size for number in range(first, first + count)]


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
            client = PatientClient(partial(connect, cluster), SEGMENT)
            if round_number == 1:
                await client.create()
            assert await client.read_all() == expected
            last = await client.last_event_number()
            assert last == 20 * (round_number - 1)
            size = 700_000 if round_number == 2 else 50  # larger than a message of the server
            expected += await client.write(last + 1, events(last + 1, 20, size))
            if round_number == 3:
                await client.call(FlushContainer(container=0))
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
        client = PatientClient(partial(connect, cluster), SEGMENT)
        await client.create()
        expected = await client.write(1, events(1, 20, 50))
        process.kill()
        await client.close()
        await process.communicate()
    dead = await cluster.node()
    async with segment_store(tmp_path / "second", nats_server.url, **shared):
        await place_elsewhere(cluster, dead.node_id)
        await cluster.opened(2)
        found = next(node for node in await nodes(cluster) if node != dead.node_id)
        assert found
        client = PatientClient(partial(connect_to, cluster, found), SEGMENT)
        assert await client.read_all() == expected
        assert await client.last_event_number() == 20
        expected += await client.write(21, events(21, 5, 50))
        assert await client.read_all() == expected
        await client.close()


class Load:
    """Writes a few events again and again, and notes when each write was acknowledged."""

    def __init__(self, client: PatientClient) -> None:
        self._client = client
        self._clock = SystemClock()
        self.expected = b""
        self.acknowledged_s: list[float] = []
        self._acknowledged = asyncio.Condition()

    async def run(self) -> None:
        first = 1
        while True:
            self.expected += await self._client.write(first, events(first, 5, 1000))
            first += 5
            async with self._acknowledged:
                self.acknowledged_s.append(self._clock.monotonic())
                self._acknowledged.notify_all()

    async def next(self) -> float:
        """The seconds until a write that began after this call is acknowledged."""
        begun, count = self._clock.monotonic(), len(self.acknowledged_s)
        async with asyncio.timeout(AGAIN_S_MAX), self._acknowledged:
            await self._acknowledged.wait_for(lambda: len(self.acknowledged_s) >= count + 2)
        return self.acknowledged_s[count + 1] - begun


async def test_a_store_serves_again_soon_after_its_server_was_killed_and_started_again(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url, **settings(nats_server)):
        await cluster.assign()
        await cluster.opened(1)
        client = PatientClient(partial(connect, cluster), SEGMENT)
        await client.create()
        load = Load(client)
        took: list[float] = []
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(load.run())
            for _ in range(3):
                await load.next()
                await asyncio.to_thread(nats_server.kill)
                await asyncio.to_thread(nats_server.start)
                took.append(await load.next())
            writing.cancel()
        logging.getLogger(__name__).info("writes continued after %s s", took)
        await client.close()
        assert (await client.read_all()).startswith(load.expected)
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
