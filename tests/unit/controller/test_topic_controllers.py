"""The controllers of objects together: topics come online, wait, grow and go, whoever dies."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from anabranch.common.contracts.objects import DOOMED_BUCKET, PARTITION, TOPICS_BUCKET
from anabranch.common.contracts.topics import AddPartitions, CreateTopic, TopicDescribed
from anabranch.common.errors import InvalidTopic, TopicExists, TopicNotProvisioned
from anabranch.common.model.objects import (
    PartitionResolution,
    TopicResolution,
)
from anabranch.common.model.stream import StreamState
from anabranch.controller.cluster.objects.dispatcher import RECONCILE_S
from anabranch.controller.handlers.topics.topic_actions import add_partitions, create_topic
from kit.topic_world import ControllerLife, TopicWorld, create, delete
from kit.virtual_time import run_virtual

ONLINE = PartitionResolution.ONLINE


def play(story: Callable[[TopicWorld], Awaitable[None]]) -> None:
    """Tell a story in a world with the SPUs 1, 2 and 3."""

    async def told() -> None:
        world = TopicWorld()
        for spu_id in (1, 2, 3):
            await world.add_spu(spu_id)
        await story(world)

    run_virtual(told())


async def is_online(world: TopicWorld, topic: str, count: int) -> bool:
    """Whether the topic is provisioned with so many partitions, all of them online."""
    found = await world.topic(topic)
    if found is None or found.status.resolution is not TopicResolution.PROVISIONED:
        return False
    states = [one.status.resolution for one in await world.partitions(topic)]
    return states == [ONLINE] * count


async def is_gone(world: TopicWorld, topic: str) -> bool:
    """Whether nothing of the topic is left: no object, no partition, no stream, no doom."""
    stream = [
        found.status
        for ref, found in world.streams.streams.items()
        if ref.stream.startswith(f"_TOPIC{topic}.")
    ]
    return (
        await world.topic(topic) is None
        and not await world.partitions(topic)
        and not await world.buckets[DOOMED_BUCKET].list()
        and all(status is StreamState.DELETED for status in stream)
    )


def test_a_topic_comes_online_and_its_partitions_share_containers() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            made = await create(life, "orders", 6, 2, wait_s=60.0)
            assert made.topic.resolution is TopicResolution.PROVISIONED
            assert made.topic.partitions_online == 6
            topic = await world.topic("orders")
            assert topic is not None
            assert topic.status.replica_map == ((1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2))
            assert len(set(topic.status.containers)) == 6
            second = await create(life, "more", 6, 2, wait_s=60.0)
            assert second.topic.partitions_online == 6
            assert len(world.placements) == 6, "the same lists are in the same containers"

    play(story)


def test_a_partition_is_written_once_if_its_container_serves() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 3, 2, wait_s=60.0)
            await add_partitions(life.desk, AddPartitions(topic="orders", count=3, wait_s=60.0))
            writes = life.partitions.revision
            assert writes == len(await world.partitions()) == 6

    play(story)


def test_a_partition_whose_stream_does_not_come_is_offline_until_it_comes() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "first", 1, wait_s=60.0)
            world.streams.held = True
            await create(life, "second", 3)
            await world.clock.sleep(RECONCILE_S)
            states = {one.status.resolution for one in await world.partitions("second")}
            assert states == {PartitionResolution.OFFLINE}
            world.streams.held = False
            await world.until(lambda: is_online(world, "second", 3))

    play(story)


def test_a_topic_waits_for_spus_and_goes_on_when_one_joins() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            with pytest.raises(TopicNotProvisioned, match="only 0 out of 2 provisioned"):
                await create(life, "wide", 2, 4, wait_s=5.0)
            waiting = await world.topic("wide")
            assert waiting is not None
            assert waiting.status.resolution is TopicResolution.INSUFFICIENT_RESOURCES
            assert waiting.status.reason == "need 1 more SPU"
            await world.add_spu(4)
            await world.until(lambda: is_online(world, "wide", 2))

    play(story)


def test_added_partitions_come_online_and_the_old_ones_stay() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "growing", 2, wait_s=60.0)
            before = await world.partitions("growing")
            grown = await add_partitions(
                life.desk, AddPartitions(topic="growing", count=3, wait_s=60.0)
            )
            assert isinstance(grown, TopicDescribed)
            assert grown.topic.partitions_online == 5
            after = await world.partitions("growing")
            assert [one.spec for one in after[:2]] == [one.spec for one in before]

    play(story)


def test_a_request_that_is_repeated_finds_its_own_topic_and_adds_partitions_once() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            query = CreateTopic(topic="orders", incarnation="0123456789ab", wait_s=60.0)
            first = await create_topic(life.desk, query)
            assert await create_topic(life.desk, query) == first
            other = query.model_copy(update={"incarnation": "ba9876543210"})
            for another in (other, query.model_copy(update={"incarnation": ""})):
                with pytest.raises(TopicExists):
                    await create_topic(life.desk, another)
            grow = AddPartitions(topic="orders", count=2, expected=1, wait_s=60.0)
            for _ in range(2):
                grown = await add_partitions(life.desk, grow)
                assert isinstance(grown, TopicDescribed)
                assert grown.topic.partition_count == 3
            with pytest.raises(InvalidTopic, match="the topic has 3 partitions, and not 1"):
                await add_partitions(life.desk, AddPartitions(topic="orders", expected=1))

    play(story)


def test_a_partition_follows_its_leader_and_comes_back() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 1, 2, wait_s=60.0)
            (partition,) = await world.partitions("orders")
            assert (partition.status.leader, partition.status.lrs) == (1, (1, 2))
            world.set_live("spu-1", live=False)
            await world.until(
                lambda: has_resolution(world, "orders", PartitionResolution.LEADER_OFFLINE)
            )
            world.elect(partition.spec.container, "spu-2")
            await world.until(lambda: has_resolution(world, "orders", ONLINE))
            (partition,) = await world.partitions("orders")
            assert (partition.spec.leader, partition.status.leader) == (2, 2)

    play(story)


async def has_resolution(world: TopicWorld, topic: str, resolution: PartitionResolution) -> bool:
    return [one.status.resolution for one in await world.partitions(topic)] == [resolution]


def test_a_topic_whose_leader_is_gone_disappears_at_once_and_its_stream_later() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            first = await create(life, "orders", 2, wait_s=60.0)
            world.set_live("spu-1", live=False)
            world.streams.held = True
            began_s = world.clock.monotonic()
            await delete(life, "orders")
            assert world.clock.monotonic() - began_s < 3.0
            assert await world.topic("orders") is None
            assert not await world.partitions("orders")
            world.streams.held = False
            again = await create(life, "orders", 1, wait_s=60.0)
            assert again.topic.incarnation != first.topic.incarnation
            await delete(life, "orders")
            await world.until(lambda: is_gone(world, "orders"))

    play(story)


def test_a_name_is_free_again_only_after_the_deletion() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 1)
            with pytest.raises(TopicExists, match="Topic 'orders' already exists"):
                await create(life, "orders", 1)

    play(story)


def test_a_damaged_topic_stops_no_other_one_and_keeps_its_partitions() -> None:
    async def story(world: TopicWorld) -> None:
        bucket = world.buckets[TOPICS_BUCKET]
        async with world.controller().run() as life:
            await create(life, "broken", 2, wait_s=60.0)
            found = await bucket.get("broken")
            assert found is not None
            await bucket.update("broken", b"{", found.revision)
        async with world.controller().run() as life:
            healthy = await create(life, "healthy", 3, wait_s=60.0)
            assert healthy.topic.partitions_online == 3
            await world.clock.sleep(200.0)
            assert len(await world.partitions("broken")) == 2
            assert not await world.buckets[DOOMED_BUCKET].list()

    play(story)


def test_a_partition_that_breaks_its_plan_stops_no_other_topic() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 1, wait_s=60.0)
            (partition,) = await world.partitions("orders")
            nameless = replace(partition, key="no_index", owner="orders")
            bucket = world.buckets[PARTITION.bucket]
            await bucket.create(nameless.key, PARTITION.to_bytes(nameless))
            healthy = await create(life, "healthy", 2, wait_s=60.0)
            assert healthy.topic.partitions_online == 2

    play(story)


def test_a_lost_command_is_posted_again_soon() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            world.streams.held = True
            await create(life, "orders", 2)
            for _ in range(2):  # the scope, then the stream
                await world.clock.sleep(1.0)
                world.streams.queue.clear()
            world.streams.held = False
            await world.clock.sleep(10.0)
            assert await is_online(world, "orders", 2)

    play(story)


def test_a_change_that_no_message_announced_is_found_by_the_reconciliation() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 2, wait_s=60.0)
            before = len(world.streams.posted)
            world.streams.streams.clear()
            world.streams.done.clear()
            await world.clock.sleep(30.0)
            assert len(world.streams.posted) == before
            await world.clock.sleep(60.0)
            assert len(world.streams.posted) > before
            assert await is_online(world, "orders", 2)

    play(story)


def test_a_controller_that_does_not_lead_answers_and_leaves_the_work_to_the_leader() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as leader, world.controller().run() as other:
            other.lead.leading = False
            made = await create(other, "orders", 2, wait_s=60.0)
            assert made.topic.partitions_online == 2
            assert other.budget.spent == 0, "the action alone writes, by the desk's own store"
            assert leader.budget.spent > 0
            await delete(other, "orders")
            assert await world.topic("orders") is None

    play(story)


def test_orphans_are_removed() -> None:
    async def story(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 2, wait_s=60.0)
        bucket = world.buckets[TOPICS_BUCKET]
        found = await bucket.get("orders")
        assert found is not None
        await bucket.delete("orders", found.revision)
        async with world.controller().run():
            await world.until(lambda: is_gone(world, "orders"))

    play(story)


async def lived(world: TopicWorld, story: Callable[[ControllerLife], Awaitable[None]]) -> int:
    """Tell a story with one controller that lives; returns its writes."""
    async with world.controller().run() as life:
        await story(life)
        return life.budget.spent


def test_another_controller_goes_on_after_any_write_of_one_that_creates() -> None:
    async def whole(world: TopicWorld) -> None:
        async def story(life: ControllerLife) -> None:
            await create(life, "orders", 3, 2, wait_s=60.0)

        writes.append(await lived(world, story))

    writes: list[int] = []
    play(whole)
    assert writes[0] > 10

    for died_after in range(writes[0]):

        async def story(world: TopicWorld, died_after: int = died_after) -> None:
            async with world.controller(died_after).run() as life:
                await create(life, "orders", 3, 2)
                await world.clock.sleep(20.0)
                assert not await is_online(world, "orders", 3)
            async with world.controller().run() as life:
                await world.until(lambda: is_online(world, "orders", 3))
                await delete(life, "orders")
                await world.until(lambda: is_gone(world, "orders"))

        play(story)


def test_another_controller_goes_on_after_any_write_of_one_that_deletes() -> None:
    async def whole(world: TopicWorld) -> None:
        async with world.controller().run() as life:
            await create(life, "orders", 3, wait_s=60.0)
            before = life.budget.spent
            await delete(life, "orders")
            await world.until(lambda: is_gone(world, "orders"))
            writes.append(life.budget.spent - before)

    writes: list[int] = []
    play(whole)
    assert writes[0] > 5

    for died_after in range(writes[0]):

        async def story(world: TopicWorld, died_after: int = died_after) -> None:
            async with world.controller().run() as life:
                await create(life, "orders", 3, wait_s=60.0)
                life.budget.left = life.budget.spent + died_after
                await delete(life, "orders")
                await world.clock.sleep(20.0)
                assert not await is_gone(world, "orders")
            async with world.controller().run():
                await world.until(lambda: is_gone(world, "orders"))

        play(story)
