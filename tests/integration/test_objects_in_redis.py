"""A whole cluster whose objects are in Redis: NATS holds none of them, and it takes restarts.

Two controllers and two stores as real processes. Their Redis syncs always, and is not the server of
the leases.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.client import Client, connect
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.contracts import subjects
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.cluster.constants import ELSEWHERE_KEY
from kit.infra import Infra, Server
from kit.infra.hurting import unhurt

DEADLINE_S = 90.0
STREAM = "s/x"
EVENTS = [b"event %d" % number for number in range(100)]


@pytest.fixture
def objects_server(infra: Infra) -> Iterator[Server]:
    """Never emptied, not even by `make hurt`: this server holds the only copy of the objects."""
    with unhurt(infra).redis() as server:
        yield server


@asynccontextmanager
async def cluster(directory: Path, objects_url: str) -> AsyncIterator[tuple[Client, str]]:
    """The client of a running cluster, and the address of its NATS server."""

    def with_objects(plan: ClusterPlan) -> Sequence[PartSpec]:
        return [
            replace(
                part,
                environment={
                    **part.environment,
                    **{
                        f"{prefix}OBJECTS_URL": objects_url
                        for prefix in ("ANABRANCH_CONTROLLER_", "ANABRANCH_SEGSTORE_")
                        if any(name.startswith(prefix) for name in part.environment)
                    },
                },
            )
            for part in cluster_parts(plan)
        ]

    settings = UpSettings(directory, store_count=2, controller_count=2)
    async with asyncio.timeout(DEADLINE_S), embedded_cluster(settings, parts=with_objects) as made:
        await made.wait_ready()
        async with connect(made.nats) as client:
            yield client, str(made.endpoints_file)


async def read_all(client: Client) -> list[bytes]:
    async with client.reader(STREAM, until_tail=True) as reader:
        return [event.payload async for event in reader]


async def in_nats(address: str) -> list[str]:
    """The keys of the only bucket that is in NATS."""
    client = await connect_nats(nats_target(address), "test")
    try:
        bucket = JetStreamObjectStore(client, SystemClock(), subjects.CLUSTER_BUCKET)
        return [one.key for one in await bucket.list()]
    finally:
        await close_nats(client)


async def test_a_stream_is_written_and_read_with_all_objects_in_redis(
    tmp_path: Path, objects_server: Server
) -> None:
    async with Redis.from_url(objects_server.url) as raw:
        await raw.config_set("appendfsync", "always")
    async with cluster(tmp_path / "data", objects_server.url) as (client, nats):
        await client.scopes.create("s")
        await client.streams.create(STREAM, segments=4)
        async with client.writer(STREAM) as writer:
            for number, event in enumerate(EVENTS):
                writer.write(event, key=str(number))
        assert sorted(await read_all(client)) == sorted(EVENTS)

        assert await in_nats(nats) == [ELSEWHERE_KEY]
        place = RedisObjects(objects_server.url, SystemClock())
        placements = await place.bucket(subjects.PLACEMENTS_BUCKET).list()
        assert [one.key for one in placements] == ["0", "1", "2", "3"]
        assert len(await place.bucket(subjects.NODES_BUCKET).list()) == 2
        assert len(await place.bucket(subjects.CONTROLLERS_BUCKET).list()) == 2
        await place.close()

    async with cluster(tmp_path / "data", objects_server.url) as (client, _):
        assert sorted(await read_all(client)) == sorted(EVENTS)
