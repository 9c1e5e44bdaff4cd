"""Cluster objects survive the object store."""

import pytest

from anabranch.common.contracts.objects import PARTITION, SPU, SPU_GROUP, TOPIC, ObjectKind
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    ClusterObject,
    Compression,
    Computed,
    Deduplication,
    Ingress,
    PartitionSpec,
    PartitionStatus,
    PublicEndpoint,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    SpuType,
    TopicSpec,
    TopicStatus,
)

OBJECTS = [
    (SPU, ClusterObject("main-0", SpuSpec(0), SpuStatus())),
    (
        SPU,
        ClusterObject(
            "edge",
            SpuSpec(7, SpuType.MANAGED, PublicEndpoint(9005, (Ingress("host"),)), rack="left"),
            SpuStatus(),
            owner="main",
            deleting=True,
        ),
    ),
    (SPU_GROUP, ClusterObject("main", SpuGroupSpec(3, 1, env=(("A", "b"),)), SpuGroupStatus())),
    (TOPIC, ClusterObject("orders", TopicSpec(Computed(3, 2)), TopicStatus(), incarnation="a1")),
    (
        TOPIC,
        ClusterObject(
            "orders",
            TopicSpec(
                Assigned((AssignedPartition(0, (1, 2)),)),
                compression=Compression.ZSTD,
                deduplication=Deduplication(10, 5),
                system=True,
            ),
            TopicStatus(replica_map=((1, 2),), containers=(40,)),
        ),
    ),
    (PARTITION, ClusterObject("orders-0", PartitionSpec(1, (1, 2), 40), PartitionStatus())),
]


@pytest.mark.parametrize(("kind", "found"), OBJECTS)
def test_an_object_is_read_as_it_was_stored(
    kind: ObjectKind[object, object], found: ClusterObject[object, object]
) -> None:
    read = kind.from_stored(StoredObject(found.key, kind.to_bytes(found), 4))
    assert read == ClusterObject(
        found.key, found.spec, found.status, found.owner, found.incarnation, found.deleting, 4
    )
