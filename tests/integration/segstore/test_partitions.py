"""Partitions in a segment store that is a process: record numbers, live reports, storage size."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.contracts.live import LivePartition, LiveReport
from anabranch.common.errors import OutOfStorage, RecordEvicted
from anabranch.common.model.cluster import Placement
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.messages import (
    Appended,
    Done,
    EventLocated,
    Failed,
    FlushContainer,
    LocateEvent,
    Message,
    Stamp,
    Truncated,
    TruncateSegment,
)
from kit.infra import NatsServer
from kit.store_process import START_DEADLINE_S, Cluster, connect, segment_store
from kit.topic_parts import partition
from kit.wire_client import WireClient

PARTITION, EMPTY = partition(0), partition(1)
LIMIT = 100_000


@pytest.fixture
async def cluster(nats_server: NatsServer) -> AsyncIterator[Cluster]:
    client = await connect_nats(nats_target(nats_server.url), "test")
    cluster = Cluster(client)
    await cluster.prepare()
    yield cluster
    await client.close()


async def place_topics(cluster: Cluster) -> None:
    """Place the first container of topics on the store, beside the container of streams."""
    node = await cluster.node()
    value = placement_to_bytes(Placement(TOPIC_CONTAINER_MIN, (node.node_id,)))
    key = placement_key(TOPIC_CONTAINER_MIN)
    await cluster.objects(subjects.PLACEMENTS_BUCKET).create(key, value)


async def until_open(create: Callable[[], Awaitable[Message]]) -> None:
    """Repeat the request until the container of topics serves."""
    async with asyncio.timeout(START_DEADLINE_S):
        while True:
            if isinstance(await create(), Done):
                return
            await asyncio.sleep(0.05)


class Heard:
    """The live reports of all stores."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def listen(self) -> "Heard":
        self._heard = await self._cluster.client.subscribe(subjects.live_report("*"))
        return self

    async def until(self, wanted: Callable[[LiveReport], bool]) -> LiveReport:
        """The first report from now on that is wanted."""
        async with asyncio.timeout(START_DEADLINE_S):
            while True:
                message = await self._heard.next_msg(timeout=START_DEADLINE_S)
                report = LiveReport.model_validate_json(message.data)
                if wanted(report):
                    return report


def told(report: LiveReport) -> dict[str, LivePartition]:
    return {one.segment: one for found in report.containers for one in found.partitions}


def has(segment: str, leo: int, base: int = 0) -> Callable[[LiveReport], bool]:
    def wanted(report: LiveReport) -> bool:
        found = told(report).get(segment)
        return found is not None and (found.base, found.leo) == (base, leo)

    return wanted


async def acknowledged(client: WireClient) -> Message:
    return (await client.receive())[0]


async def test_the_numbers_of_records_are_reported_and_survive_a_kill(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    heard = await Heard(cluster).listen()
    async with segment_store(tmp_path / "data", nats_server.url) as process:
        await cluster.assign()
        await cluster.opened(1)
        await place_topics(cluster)
        client = await connect(cluster)
        for segment in (PARTITION, EMPTY):
            await until_open(partial(client.create, segment))
        await client.setup(PARTITION)
        first = client.append(1, [b"a", b"b"])
        reply = await acknowledged(client)
        assert isinstance(reply, Appended)
        assert reply.event_count == 2
        report = await heard.until(has(PARTITION, 2))
        assert report.node_id == (await cluster.node()).node_id
        assert report.used_bytes == len(first)
        assert [found.container for found in report.containers] == [TOPIC_CONTAINER_MIN]
        flush = FlushContainer(container=TOPIC_CONTAINER_MIN)
        assert await client.call(flush) == Done()
        client.append(3, [b"c"])
        await acknowledged(client)
        truncate = TruncateSegment(segment=PARTITION, stamp=Stamp(1, 2), offset=len(first))
        assert await client.call(truncate) == Truncated(start=len(first))
        await heard.until(has(PARTITION, 3, base=2))
        process.kill()
        await process.communicate()
        await client.close()
    async with segment_store(tmp_path / "data", nats_server.url):
        again = await heard.until(lambda found: found.session != report.session)
        while not {PARTITION, EMPTY} <= told(again).keys():
            again = await heard.until(lambda found: bool(found.containers))
        numbers = {name: (one.base, one.leo) for name, one in told(again).items()}
        assert numbers == {PARTITION: (2, 3), EMPTY: (0, 0)}
        assert again.containers[0].container_epoch > report.containers[0].container_epoch
        client = await connect(cluster)
        refused = await client.call(LocateEvent(segment=PARTITION, event_index=1))
        assert isinstance(refused, Failed)
        assert (refused.code, refused.fields["next_available"]) == (RecordEvicted.code, 2)
        located = await client.call(LocateEvent(segment=PARTITION, event_index=2))
        assert located == EventLocated(offset=len(first), event_index=2)
        await client.close()


async def test_over_its_storage_size_a_store_refuses_records_until_it_is_truncated(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    heard = await Heard(cluster).listen()
    settings = {"TOPIC_STORAGE_SIZE_BYTES": str(LIMIT)}
    async with segment_store(tmp_path / "data", nats_server.url, **settings):
        await cluster.assign()
        await cluster.opened(1)
        await place_topics(cluster)
        client = await connect(cluster)
        await until_open(lambda: client.create(PARTITION))
        await client.setup(PARTITION)
        first = client.append(1, [bytes(LIMIT)])
        assert isinstance(await acknowledged(client), Appended)
        await heard.until(lambda report: report.out_of_storage)
        client.append(2, [b"refused"])
        refused = await acknowledged(client)
        assert isinstance(refused, Failed)
        assert refused.code == OutOfStorage.code
        truncate = TruncateSegment(segment=PARTITION, stamp=Stamp(1, 2), offset=len(first))
        assert await client.call(truncate) == Truncated(start=len(first))
        await heard.until(lambda report: not report.out_of_storage)
        await client.setup(PARTITION)
        client.append(2, [b"taken"])
        reply = await acknowledged(client)
        assert isinstance(reply, Appended)
        assert reply.event_count == 2
        await client.close()
