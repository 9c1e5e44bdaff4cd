"""Queries about topics, partitions, consumers, SPUs and groups, and the actions on SPUs."""

from collections.abc import Awaitable, Callable

import pytest

from anabranch.common.contracts import spus, topics
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.live import LiveContainer, LivePartition, LiveReport
from anabranch.common.contracts.objects import CONSUMERS_BUCKET
from anabranch.common.errors import (
    Conflict,
    InvalidName,
    InvalidRequest,
    InvalidTopic,
    SpuExists,
    SpuGroupExists,
    SpuGroupNotFound,
    SpuNotFound,
    TopicNotFound,
)
from anabranch.common.model.objects import (
    Computed,
    SpuGroupSpec,
    SpuSpec,
    SpuType,
    TopicSpec,
)
from anabranch.controller.cluster.objects.dispatcher import RECONCILE_S
from anabranch.controller.handlers.topics.tables import ACTIONS, QUERIES
from kit.topic_world import ControllerLife, TopicWorld, create
from kit.virtual_time import run_virtual

PAGE_SIZE = 3


def play(story: Callable[[TopicWorld, ControllerLife], Awaitable[None]]) -> None:
    """Tell a story to a controller in a world with the SPUs 1, 2 and 3."""

    async def told() -> None:
        world = TopicWorld()
        for spu_id in (1, 2, 3):
            await world.add_spu(spu_id)
        async with world.controller().run() as life:
            await world.until(lambda: seen(life))
            await story(world, life)

    run_virtual(told())


async def seen(life: ControllerLife) -> bool:
    return all(dispatcher.store.listed for dispatcher in life.dispatchers.values())


class HasTopics:
    def __init__(self, life: ControllerLife) -> None:
        self.topics = life.desk


async def ask(life: ControllerLife, query_name: str, /, **given: object) -> Contract:
    """The answer of the registered handler."""
    query, answer = {**QUERIES, **ACTIONS}[query_name]
    found = await answer(HasTopics(life), query.model_validate(given))  # type: ignore[arg-type]
    assert isinstance(found, Contract)
    return found


async def pages(
    life: ControllerLife, query_name: str, items: str, /, **given: object
) -> list[Contract]:
    """The items of all pages of a list."""
    found: list[Contract] = []
    token = ""
    while True:
        page = await ask(life, query_name, page_size=PAGE_SIZE, page_token=token, **given)
        on_page = getattr(page, items)
        assert len(on_page) <= PAGE_SIZE
        found += on_page
        token = getattr(page, "next_page_token")  # noqa: B009
        if not token:
            return found


def test_lists_come_in_pages_sorted_and_without_gaps() -> None:
    async def story(_world: TopicWorld, life: ControllerLife) -> None:
        for name in ("b", "a", "a-b", "c"):
            await create(life, name, 2 if name == "a" else 4, wait_s=60.0)
        found = await pages(life, "list_topics", "topics")
        assert [one.topic for one in found] == ["a", "a-b", "b", "c"]  # type: ignore[attr-defined]
        partitions = await pages(life, "list_partitions", "partitions")
        assert [(one.topic, one.partition) for one in partitions] == [  # type: ignore[attr-defined]
            *(("a", at) for at in range(2)),
            *(("a-b", at) for at in range(4)),
            *(("b", at) for at in range(4)),
            *(("c", at) for at in range(4)),
        ]
        of_one = await pages(life, "list_partitions", "partitions", topic="b")
        assert len(of_one) == 4
        matching = await pages(life, "list_topics", "topics", matching="b")
        assert [one.topic for one in matching] == ["a-b", "b"]  # type: ignore[attr-defined]

    play(story)


def test_a_partition_is_listed_with_its_numbers_as_its_leader_reports_them() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        await create(life, "orders", 1, 2, wait_s=60.0)
        (silent,) = await pages(life, "list_partitions", "partitions")
        assert isinstance(silent, topics.PartitionDescription)
        assert (silent.size_bytes, silent.base) == (-2, -1)
        assert silent.leader_live == topics.ReplicaLive(spu=1)
        one = LivePartition(segment=silent.segment, base=3, leo=9, size_bytes=50)
        placed = world.placements[silent.container]
        life.live.learn(
            LiveReport(
                node_id=placed.owner, session="s", sequence=1,
                containers=(
                    LiveContainer(
                        container=silent.container, container_epoch=placed.container_epoch,
                        partitions=(one,),
                    ),
                ),
            )
        )  # fmt: skip
        (told,) = await pages(life, "list_partitions", "partitions")
        assert isinstance(told, topics.PartitionDescription)
        assert (told.size_bytes, told.base) == (50, 3)
        assert told.leader_live == topics.ReplicaLive(spu=1, leo=9, hw=9)
        assert told.followers_live == (topics.ReplicaLive(spu=2, leo=9, hw=9),)

    play(story)


def test_a_topic_that_was_just_stored_is_found_although_the_watch_lags() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        other = world.controller()  # it serves nothing, so it has seen nothing
        await create(life, "orders", 1)
        with pytest.raises(TopicNotFound, match="Topic not found"):
            await ask(other, "describe_topic", topic="nowhere")
        found = await ask(other, "describe_topic", topic="orders")
        assert isinstance(found, topics.TopicDescribed)

    play(story)


def test_a_description_says_why_a_topic_is_not_online() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        world.streams.held = True
        await create(life, "orders", 2)
        in_creation = "partition 0 is being created"
        waits = "partition 0 is not online: its segment is being created"
        for seconds, reason in ((5.0, in_creation), (RECONCILE_S, waits)):
            await world.clock.sleep(seconds)
            found = await ask(life, "describe_topic", topic="orders")
            assert isinstance(found, topics.TopicDescribed)
            assert found.topic.reason == reason
        world.streams.held = False
        await create(life, "wide", 1, 9)
        await world.clock.sleep(5.0)
        found = await ask(life, "describe_topic", topic="wide")
        assert isinstance(found, topics.TopicDescribed)
        assert found.topic.reason == "need 6 more SPU"

    play(story)


def test_a_topic_is_updated_within_its_rules_and_a_system_topic_is_protected() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        await create(life, "orders", 1, wait_s=60.0)
        changed = await ask(
            life, "update_topic", topic="orders", retention_s=3600, compression="zstd"
        )
        assert isinstance(changed, topics.TopicDescribed)
        assert changed.topic.spec.retention_s == 3600
        assert changed.topic.spec.compression.value == "zstd"
        with pytest.raises(InvalidTopic, match="retention_secs 1 is less than minimum 10"):
            await ask(life, "update_topic", topic="orders", retention_s=1)
        with pytest.raises(InvalidTopic, match="invalid compression type: gzip"):
            await ask(life, "update_topic", topic="orders", compression="gzip")
        system = TopicSpec(Computed(1), system=True)
        await ask(life, "create_topic", topic="inner", spec=system, wait_s=60.0)
        listed = await pages(life, "list_topics", "topics")
        assert [one.topic for one in listed] == ["orders"]  # type: ignore[attr-defined]
        assert len(await pages(life, "list_topics", "topics", system=True)) == 2
        with pytest.raises(Conflict, match="system topic 'inner' can only be deleted forcibly"):
            await ask(life, "delete_topic", topic="inner")
        with pytest.raises(InvalidTopic):
            await ask(life, "add_partitions", topic="inner")
        await ask(life, "delete_topic", topic="inner", force=True)
        assert await world.topic("inner") is None

    play(story)


def test_a_dry_run_stores_nothing() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        made = await ask(life, "create_topic", topic="orders", dry_run=True)
        assert isinstance(made, topics.TopicCreated)
        assert made.topic.incarnation == ""
        assert await world.topic("orders") is None
        with pytest.raises(InvalidName):
            await ask(life, "create_topic", topic="Orders", dry_run=True)

    play(story)


def test_named_consumers_are_noted_listed_forgotten_and_end_with_the_topic() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        for topic in ("orders", "bills"):
            await create(life, topic, 1, wait_s=60.0)
            for consumer in ("c2", "c1"):
                for _ in range(2):
                    await ask(life, "name_consumer", topic=topic, consumer=consumer)
        found = await pages(life, "list_consumers", "consumers")
        assert [(one.topic, one.consumer) for one in found] == [  # type: ignore[attr-defined]
            ("bills", "c1"), ("bills", "c2"), ("orders", "c1"), ("orders", "c2"),
        ]  # fmt: skip
        for _ in range(2):
            await ask(life, "forget_consumer", topic="orders", consumer="c1")
        left = await pages(life, "list_consumers", "consumers", topic="orders")
        assert [one.consumer for one in left] == ["c2"]  # type: ignore[attr-defined]
        with pytest.raises(InvalidName):
            await ask(life, "name_consumer", topic="orders", consumer="no/slash")
        with pytest.raises(TopicNotFound):
            await ask(life, "name_consumer", topic="nowhere", consumer="c1")
        await ask(life, "delete_topic", topic="orders")
        await world.clock.sleep(30.0)
        keys = {one.key.split(".")[1] for one in await world.buckets[CONSUMERS_BUCKET].list()}
        assert keys == {"c1", "c2"}
        assert len(await world.buckets[CONSUMERS_BUCKET].list()) == 2, "of the other topic alone"

    play(story)


def test_an_spu_is_registered_once_listed_by_id_and_unregistered_when_it_holds_nothing() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        made = await ask(life, "register_spu", spec=SpuSpec(40))
        assert isinstance(made, spus.SpuRegistered)
        assert made.spu.name == "custom-spu-40"
        again = await ask(life, "register_spu", spec=SpuSpec(40))
        assert isinstance(again, spus.SpuRegistered)
        for name, spu_id in (("other", 40), ("custom-spu-40", 41)):
            with pytest.raises(SpuExists, match="already defined"):
                await ask(life, "register_spu", name=name, spec=SpuSpec(spu_id))
        with pytest.raises(InvalidRequest):
            await ask(life, "register_spu", spec=SpuSpec(42, SpuType.MANAGED))
        await world.clock.sleep(1.0)
        listed = await pages(life, "list_spus", "spus")
        assert [one.spec.spu_id for one in listed] == [1, 2, 3, 40]  # type: ignore[attr-defined]
        await create(life, "orders", 3, wait_s=60.0)
        with pytest.raises(Conflict, match="still holds replicas"):
            await ask(life, "unregister_spu", spu_id=1)
        gone = await ask(life, "unregister_spu", spu_id=40)
        assert isinstance(gone, spus.SpuUnregistered)
        assert gone.name == "custom-spu-40"
        with pytest.raises(SpuNotFound):
            await ask(life, "unregister_spu", name="custom-spu-40")
        await ask(life, "unregister_spu", spu_id=1, force=True)

    play(story)


def test_a_group_is_created_once_scaled_and_marked() -> None:
    async def story(world: TopicWorld, life: ControllerLife) -> None:
        spec = SpuGroupSpec(replicas=2, min_id=10)
        for _ in range(2):
            await ask(life, "create_spu_group", name="main", spec=spec)
        with pytest.raises(SpuGroupExists):
            await ask(life, "create_spu_group", name="main", spec=SpuGroupSpec(replicas=3))
        with pytest.raises(InvalidName):
            await ask(life, "create_spu_group", name="Main")
        scaled = await ask(life, "scale_spu_group", name="main", replicas=5)
        assert isinstance(scaled, spus.SpuGroupDescribed)
        assert scaled.group.spec.replicas == 5
        with pytest.raises(InvalidRequest):
            await ask(life, "scale_spu_group", name="main", replicas=-1)
        await ask(life, "delete_spu_group", name="main")
        await world.clock.sleep(1.0)
        (group,) = await pages(life, "list_spu_groups", "groups")
        assert isinstance(group, spus.SpuGroupDescription)
        assert group.deleting
        with pytest.raises(SpuGroupNotFound):
            await ask(life, "scale_spu_group", name="main", replicas=1)

    play(story)
