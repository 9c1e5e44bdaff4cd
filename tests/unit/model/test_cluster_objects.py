"""SPUs, SPU groups, topics and partitions as the object store holds them."""

import pytest

from anabranch.common.contracts import objects
from anabranch.common.contracts.topics import CreateTopic
from anabranch.common.errors import Corrupt, FormatTooNew
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    Ingress,
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
    PublicEndpoint,
    Spu,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuResolution,
    SpuSpec,
    SpuStatus,
    SpuType,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
)

ASSIGNED = TopicSpec(
    Assigned((AssignedPartition(0, (5001, 5002)), AssignedPartition(1, (5002, 5001)))),
    compression=Compression.ZSTD,
    deduplication=Deduplication(5, 60),
)


@pytest.mark.parametrize("spec", [TopicSpec(), TopicSpec(Computed(6, 3, True)), ASSIGNED])
def test_a_topic_is_read_as_it_was_written(spec: TopicSpec) -> None:
    status = TopicStatus(TopicResolution.PROVISIONED, "", ((1, 2), (2, 1)), (1024, 1025), 3)
    topic = Topic("orders", spec, status, incarnation="0123456789ab", deleting=True, revision=7)
    stored = StoredObject("orders", objects.TOPIC.to_bytes(topic), 7)
    assert objects.TOPIC.from_stored(stored) == topic


def test_a_partition_an_spu_and_a_group_are_read_as_they_were_written() -> None:
    partition = Partition(
        "orders-0",
        PartitionSpec(1, (1, 2), 1024),
        PartitionStatus(PartitionResolution.ONLINE, 1, (1, 2), 4),
        owner="orders",
        incarnation="0123456789ab",
    )
    found = StoredObject("orders-0", objects.PARTITION.to_bytes(partition), 0)
    assert objects.PARTITION.from_stored(found) == partition
    spu = Spu(
        "store-1",
        SpuSpec(1, SpuType.MANAGED, PublicEndpoint(9005, (Ingress("a.example"),)), rack="east"),
        SpuStatus(SpuResolution.ONLINE),
        owner="main",
    )
    assert objects.SPU.from_stored(StoredObject("store-1", objects.SPU.to_bytes(spu), 0)) == spu
    group = SpuGroup(
        "main",
        SpuGroupSpec(3, 11, env=(("A", "b"),)),
        SpuGroupStatus(SpuGroupResolution.INVALID, "conflict with: 12"),
    )
    stored = StoredObject("main", objects.SPU_GROUP.to_bytes(group), 0)
    assert objects.SPU_GROUP.from_stored(stored) == group


@pytest.mark.parametrize("kind", objects.KINDS, ids=lambda kind: kind.word)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", Corrupt),
        (b"{", Corrupt),
        (b"{}", Corrupt),
        (b'{"schema_number": 1}', Corrupt),
        (b'{"schema_number": 1, "spec": 3, "status": {}}', Corrupt),
        (b"[" * 100_000, Corrupt),
        (b'{"schema_number": 2}', FormatTooNew),
    ],
)
def test_damage_and_newer_schemas_are_refused_by_name(
    kind: objects.ObjectKind[object, object], value: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        kind.from_stored(StoredObject("x", value, 1))


@pytest.mark.parametrize("spec", [TopicSpec(Computed(3, 2)), ASSIGNED])
def test_the_query_that_creates_a_topic_keeps_both_kinds_of_replicas(spec: TopicSpec) -> None:
    query = CreateTopic(topic="orders", spec=spec)
    assert CreateTopic.model_validate_json(query.model_dump_json()) == query
