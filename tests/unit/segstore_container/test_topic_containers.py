"""A store opens the containers of topics, whose numbers lie above the cluster's container count."""

import pytest

from anabranch.common.errors import InvalidRequest, WrongHost
from anabranch.common.model.names import segment_id, segment_name
from anabranch.common.model.topics import TopicName, backing_stream, segment_number
from anabranch.common.wire.messages import (
    Appended,
    Done,
    FlushContainer,
    GetSegmentInfo,
    SegmentInfo,
)
from kit.live_store import World, live_store
from kit.wire_client import WireClient

TOPIC = backing_stream(TopicName("orders"), "0123456789ab")


def partition(ordinal: int, container: int) -> str:
    return segment_name(TOPIC, segment_id(0, segment_number(ordinal, container)))


async def test_a_segment_of_a_topic_is_created_written_and_tiered_in_its_container() -> None:
    world = World(containers=1)
    await world.assign(0)
    await world.assign(1024)
    name = partition(3, 1024)
    async with live_store(world) as live:
        assert live.store.missing == ""
        client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        assert await client.create(name) == Done()
        await client.setup(name)
        block = client.append(1, [b"record"])
        assert isinstance((await client.receive())[0], Appended)
        assert await client.call(FlushContainer(container=1024)) == Done()
        info = await client.call(GetSegmentInfo(segment=name))
        assert isinstance(info, SegmentInfo)
        assert info.length == len(block)
        with pytest.raises(WrongHost):
            live.store.find(partition(3, 1025), 0)
        with pytest.raises(InvalidRequest):
            live.store.check_together([name, partition(4, 1025)])
        live.store.check_together([name, partition(9, 1024)])
        await client.close()
    assert any(key.startswith("c1024/") for key in await world.storage.list("c"))

    async with live_store(world) as again:
        assert again.store.open_numbers == {0, 1024}
        found = again.store.find(name, 0)
        assert found.container.container == 1024
