"""The administration of topics, SPUs and groups: what the queries carry, and what comes back."""

from datetime import timedelta
from typing import Any

import pytest

from anabranch.client import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    InvalidName,
    InvalidRequest,
    SpuGroups,
    Spus,
    TopicExists,
    TopicNotFound,
)
from anabranch.common.contracts import spus as s
from anabranch.common.model.objects import (
    Ingress,
    PrivateEndpoint,
    PublicEndpoint,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuResolution,
    SpuSpec,
)
from kit.fake_topics import TOPIC, topic_bench


async def test_the_spec_is_what_the_arguments_say() -> None:
    async with topic_bench() as b:
        made = await b.client.topics.create(
            "new",
            partitions=3,
            replication_factor=2,
            ignore_racks=True,
            retention=timedelta(days=2),
            partition_size_max="10Gi",
            segment_size="1MiB",
            compression="ZSTD",
            deduplication=5,
        )
        assert made.spec.replicas == Computed(3, 2, True)
        assert (made.spec.retention_s, made.spec.partition_size_max_bytes) == (172_800, 10 << 30)
        assert (made.spec.segment_size_bytes, made.spec.compression) == (1 << 20, Compression.ZSTD)
        assert made.spec.deduplication == Deduplication(5)
        assert await b.client.topics.describe("new") == made
        assigned = await b.client.topics.create("assigned", assignment=[[1, 2], [2, 1]])
        rows = (AssignedPartition(0, (1, 2)), AssignedPartition(1, (2, 1)))
        assert assigned.spec.replicas == Assigned(rows)


async def test_a_dry_run_creates_nothing() -> None:
    async with topic_bench() as b:
        assert (
            await b.client.topics.create("new", partitions=4, dry_run=True)
        ).partition_count == 4
        with pytest.raises(TopicNotFound):
            await b.client.topics.describe("new")


async def test_wrong_topics_are_refused_before_a_controller_is_asked() -> None:
    async with topic_bench() as b:
        b.control.before_query = lambda name: pytest.fail(f"asked {name}")
        with pytest.raises(InvalidName, match="Contain only lowercase"):
            await b.client.topics.create("Orders")
        wrong: list[dict[str, Any]] = [
            {"compression": "gzip"}, {"wait_s": 91}, {"retention": "7x"}, {"segment_size": "?"},
        ]  # fmt: skip
        for arguments in wrong:
            with pytest.raises(InvalidRequest):
                await b.client.topics.create("new", **arguments)


async def test_topics_and_partitions_come_page_by_page() -> None:
    async with topic_bench(5) as b:
        for name in ("a", "b", "c"):
            await b.client.topics.create(name)
        names = [topic.topic async for topic in b.client.topics.list()]
        assert names == ["a", "b", "c", TOPIC]
        assert [each.topic async for each in b.client.topics.list(matching="ord")] == [TOPIC]
        partitions = await b.client.topics.partitions(TOPIC)
        assert [each.partition for each in partitions] == list(range(5))
        assert len(await b.client.topics.partitions()) == 8
        with pytest.raises(TopicNotFound):
            await b.client.topics.partitions("none")


async def test_topics_change_grow_and_go() -> None:
    async with topic_bench(1) as b:
        topics = b.client.topics
        assert (await topics.add_partitions(TOPIC, 2)).partition_count == 3
        changed = await topics.update(TOPIC, retention="1h", compression="none")
        assert (changed.spec.retention_s, changed.spec.compression) == (3600, Compression.NONE)
        assert [move.after for move in (await topics.rebalance(dry_run=True)).moves] == [(2, 1)]
        with pytest.raises(TopicExists):
            await topics.create(TOPIC)
        await topics.delete(TOPIC)
        with pytest.raises(TopicNotFound):
            await topics.delete(TOPIC)


class Asked:
    """A control plane that answers about SPUs and keeps the queries."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, Any]] = []

    def new_command_id(self) -> str:
        raise AssertionError("no command is sent")

    async def execute(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("no command is sent")

    async def close(self) -> None:
        return None

    async def query(self, name: str, query: Any, answer: Any, *, timeout_s: float) -> Any:
        self.queries.append((name, query))
        spu = s.SpuDescription(
            name="custom-spu-7", spec=SpuSpec(7), resolution=SpuResolution.ONLINE
        )
        match query:
            case s.RegisterSpu():
                return s.SpuRegistered(spu=spu)
            case s.UnregisterSpu():
                return s.SpuUnregistered(name="custom-spu-7")
            case s.ListSpus(page_token=""):
                return s.SpuList(spus=(spu,), next_page_token="more")
            case s.ListSpus():
                return s.SpuList(spus=(spu,))
        group = s.SpuGroupDescription(
            name="main", spec=getattr(query, "spec", SpuGroupSpec()),
            resolution=SpuGroupResolution.RESERVED,
        )  # fmt: skip
        if isinstance(query, s.ListSpuGroups):
            return s.SpuGroupList(groups=(group,))
        return s.SpuGroupDescribed(group=group)


async def test_spus_are_registered_listed_and_unregistered() -> None:
    asked = Asked()
    spus = Spus(asked)
    await spus.register(7, public="a.b:9005", private="[::1]:9006", rack="z", storage_size="1Gi")
    assert asked.queries[0][1].spec == SpuSpec(
        7,
        public=PublicEndpoint(9005, (Ingress("a.b"),)),
        private=PrivateEndpoint("::1", 9006),
        rack="z",
        storage_size_bytes=1 << 30,
    )
    assert [spu.name async for spu in spus.list()] == ["custom-spu-7"] * 2
    assert await spus.unregister(7) == await spus.unregister("x", force=True) == "custom-spu-7"
    sent = [query for name, query in asked.queries if name == "unregister_spu"]
    assert [(q.spu_id, q.name, q.force) for q in sent] == [(7, "", False), (-1, "x", True)]
    for wrong in ("", "host:", "host:0", "host:99999"):
        with pytest.raises(InvalidRequest):
            await spus.register(8, public=wrong)


async def test_spu_groups_are_created_scaled_listed_and_deleted() -> None:
    asked = Asked()
    groups = SpuGroups(asked)
    made = await groups.create("main", replicas=3, min_id=1, storage_size="20Gi", env={"B": "2"})
    assert (made.spec.replicas, made.spec.min_id, made.spec.env) == (3, 1, (("B", "2"),))
    assert made.spec.storage_size_bytes == 20 << 30
    await groups.scale("main", 5)
    assert asked.queries[1][1].replicas == 5
    assert [group.name async for group in groups.list()] == ["main"]
    await groups.delete("main")
    assert [name for name, _ in asked.queries] == [
        "create_spu_group", "scale_spu_group", "list_spu_groups", "delete_spu_group",
    ]  # fmt: skip
