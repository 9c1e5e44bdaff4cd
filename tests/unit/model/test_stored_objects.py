"""The stored forms of SPUs, SPU groups, topics and partitions."""

import pytest

from anabranch.common.contracts.objects import PARTITION, SPU, SPU_GROUP, TOPIC
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
    PartitionSpec,
    PartitionStatus,
    PublicEndpoint,
    Spu,
    SpuGroup,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    Topic,
    TopicSpec,
    TopicStatus,
)

TOPICS = (
    TopicSpec(),
    TopicSpec(Computed(6, 3, ignore_racks=True), compression=Compression.ZSTD, system=True),
    TopicSpec(Assigned((AssignedPartition(0, (1, 2)),)), deduplication=Deduplication(3, 4)),
)


@pytest.mark.parametrize("spec", TOPICS)
def test_a_topic_is_read_as_it_was_stored(spec: TopicSpec) -> None:
    topic = Topic("t", spec, TopicStatus(replica_map=((1, 2),)), incarnation="a" * 12, revision=3)

    assert TOPIC.from_stored(StoredObject("t", TOPIC.to_bytes(topic), 3)) == topic


def test_spus_groups_and_partitions_are_read_as_they_were_stored() -> None:
    public = PublicEndpoint(ingress=(Ingress("host"), Ingress(ip="10.0.0.1")))
    spu = Spu("s", SpuSpec(1, public=public), SpuStatus(), owner="g", revision=1)
    group = SpuGroup("g", SpuGroupSpec(2, env=(("A", "b"),)), SpuGroupStatus(), revision=2)
    status = PartitionStatus(leader=2, lrs=(2, 1))
    partition = Partition("t-0", PartitionSpec(1, (1, 2), 1024), status, "t", "a" * 12, True, 3)

    assert SPU.from_stored(StoredObject("s", SPU.to_bytes(spu), 1)) == spu
    assert SPU_GROUP.from_stored(StoredObject("g", SPU_GROUP.to_bytes(group), 2)) == group
    assert PARTITION.from_stored(StoredObject("t-0", PARTITION.to_bytes(partition), 3)) == partition


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"{}",
        b'{"schema_number":1,"spec":{"retention_s":1,"segment_size_bytes":1,'
        b'"partition_size_max_bytes":1},"status":{}}',
    ],
)
def test_a_damaged_topic_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        TOPIC.from_stored(StoredObject("t", value, 1))


def test_an_object_of_a_newer_release_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew):
        TOPIC.from_stored(StoredObject("t", b'{"schema_number":2}', 1))
