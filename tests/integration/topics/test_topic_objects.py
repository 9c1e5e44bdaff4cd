"""Topics on real processes: embedded NATS, one controller, one store with a journal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from anabranch.cli.up import EmbeddedCluster
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import spus, topics
from anabranch.common.contracts.queries import (
    CurrentSegments,
    ListNodes,
    Locate,
    Located,
    NodeList,
    SegmentList,
)
from anabranch.common.errors import (
    InvalidTopic,
    SpuExists,
    StreamNotFound,
    TopicExists,
    TopicNotFound,
    TopicNotProvisioned,
)
from anabranch.common.model.objects import (
    Computed,
    PartitionResolution,
    SpuResolution,
    SpuSpec,
    TopicResolution,
    TopicSpec,
)
from kit.controller_caller import Caller

WAIT_S = 3.0
GONE_S = 20.0


@asynccontextmanager
async def calling(cluster: EmbeddedCluster) -> AsyncIterator[Caller]:
    client = await connect_nats(cluster.nats, "test")
    try:
        caller = Caller(client)
        await registered(caller)
        yield caller
    finally:
        await client.close()


async def registered(caller: Caller) -> None:
    """Register the cluster's store as SPU 5001, unless the cluster did, and wait for it."""
    (node,) = (await caller.ask("list_nodes", ListNodes(), NodeList)).nodes
    found = await caller.ask("list_spus", spus.ListSpus(), spus.SpuList)
    if not any(one.name == node.node_id and not one.refused for one in found.spus):
        register = spus.RegisterSpu(name=node.node_id, spec=SpuSpec(5001))
        with suppress(SpuExists):  # the cluster did it meanwhile
            await caller.ask("register_spu", register, spus.SpuRegistered)
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await caller.ask("list_spus", spus.ListSpus(), spus.SpuList)
            if [one.resolution for one in found.spus] == [SpuResolution.ONLINE]:
                return
            await asyncio.sleep(0.02)


async def created(caller: Caller, name: str, partitions: int) -> topics.TopicDescription:
    create = topics.CreateTopic(topic=name, spec=TopicSpec(Computed(partitions)), wait_s=WAIT_S)
    return (await caller.ask("create_topic", create, topics.TopicCreated)).topic


async def test_a_topic_comes_online_goes_and_comes_again_as_another_one(
    cluster: EmbeddedCluster,
) -> None:
    async with calling(cluster) as caller:
        first = await created(caller, "orders", 3)
        assert (first.resolution, first.partitions_online) == (TopicResolution.PROVISIONED, 3)
        listed = await caller.ask(
            "list_partitions", topics.ListPartitions(topic="orders"), topics.PartitionList
        )
        assert [one.resolution for one in listed.partitions] == [PartitionResolution.ONLINE] * 3
        assert {one.leader for one in listed.partitions} == {
            one.replicas[0] for one in listed.partitions
        }
        segments = tuple(one.segment for one in listed.partitions)
        located = await caller.ask("locate", Locate(segments=segments), Located)
        assert all(one.host for one in located.locations)
        assert {one.container for one in located.locations} == {
            one.container for one in listed.partitions
        }

        with pytest.raises(TopicExists):
            await created(caller, "orders", 1)

        delete = topics.DeleteTopic(topic="orders")
        gone = await caller.ask("delete_topic", delete, topics.TopicDeleted)
        assert gone.incarnation == first.incarnation
        with pytest.raises(TopicNotFound):
            await caller.ask(
                "describe_topic", topics.DescribeTopic(topic="orders"), topics.TopicDescribed
            )
        again = await created(caller, "orders", 2)
        assert again.incarnation != first.incarnation
        assert again.partitions_online == 2
        await stream_is_gone(caller, first)


async def stream_is_gone(caller: Caller, topic: topics.TopicDescription) -> None:
    asked = CurrentSegments(scope=topic.scope, stream=topic.stream)
    async with asyncio.timeout(GONE_S):
        while True:
            try:
                await caller.ask("current_segments", asked, SegmentList)
            except StreamNotFound:
                return
            await asyncio.sleep(0.05)


async def test_partitions_are_added_while_the_old_ones_stay(cluster: EmbeddedCluster) -> None:
    async with calling(cluster) as caller:
        await created(caller, "growing", 2)
        ask = topics.ListPartitions(topic="growing")
        before = await caller.ask("list_partitions", ask, topics.PartitionList)
        add = topics.AddPartitions(topic="growing", count=3, wait_s=WAIT_S)
        grown = await caller.ask("add_partitions", add, topics.TopicDescribed)
        assert (grown.topic.partition_count, grown.topic.partitions_online) == (5, 5)
        after = await caller.ask("list_partitions", ask, topics.PartitionList)
        assert [one.segment for one in after.partitions[:2]] == [
            one.segment for one in before.partitions
        ]
        assert all(one.segment for one in after.partitions)


async def test_a_topic_that_needs_more_spus_waits_for_them_and_says_so(
    cluster: EmbeddedCluster,
) -> None:
    async with calling(cluster) as caller:
        spec = TopicSpec(Computed(partitions=2, replication_factor=2))
        create = topics.CreateTopic(topic="wide", spec=spec, wait_s=0.5)
        with pytest.raises(TopicNotProvisioned, match="only 0 out of 2 provisioned"):
            await caller.ask("create_topic", create, topics.TopicCreated)
        found = await caller.ask(
            "describe_topic", topics.DescribeTopic(topic="wide"), topics.TopicDescribed
        )
        assert found.topic.resolution is TopicResolution.INSUFFICIENT_RESOURCES
        assert found.topic.reason == "need 1 more SPU"


async def test_a_wrong_spec_and_a_taken_id_are_refused(cluster: EmbeddedCluster) -> None:
    async with calling(cluster) as caller:
        wrong = topics.CreateTopic(topic="wrong", spec=TopicSpec(Computed(partitions=0)))
        with pytest.raises(InvalidTopic, match="partition must be greater than 0"):
            await caller.ask("create_topic", wrong, topics.TopicCreated)
        (spu,) = (await caller.ask("list_spus", spus.ListSpus(), spus.SpuList)).spus
        twin = spus.RegisterSpu(name="other", spec=SpuSpec(spu.spec.spu_id))
        with pytest.raises(SpuExists, match="already defined"):
            await caller.ask("register_spu", twin, spus.SpuRegistered)
