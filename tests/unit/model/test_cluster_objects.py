"""Stored SPUs, groups, topics and partitions: what is written is read again."""

from dataclasses import replace
from typing import Any

import pytest

from anabranch.common.contracts.objects import (
    KINDS,
    PARTITION,
    SPU,
    SPU_GROUP,
    TOPIC,
    ObjectKind,
)
from anabranch.common.errors import Corrupt, FormatTooNew
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    ClusterObject,
    Compression,
    Computed,
    Deduplication,
    Ingress,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
    PublicEndpoint,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    TopicResolution,
    TopicSpec,
    TopicStatus,
)

TOPIC_STATUS = TopicStatus(TopicResolution.PROVISIONED, "", ((1, 2), (2, 1)), (1024, 1025), 7)
EXAMPLES: list[tuple[ObjectKind[Any, Any], ClusterObject[Any, Any]]] = [
    (SPU, ClusterObject("a", SpuSpec(1, public=PublicEndpoint(1, (Ingress("h"),))), SpuStatus())),
    (SPU_GROUP, ClusterObject("g", SpuGroupSpec(2, 11, env=(("A", "b"),)), SpuGroupStatus())),
    (
        TOPIC,
        ClusterObject("t", TopicSpec(Computed(2, 2, True)), TOPIC_STATUS, incarnation="0" * 12),
    ),
    (
        TOPIC,
        ClusterObject(
            "t",
            TopicSpec(
                Assigned((AssignedPartition(0, (1, 2)),)),
                compression=Compression.ZSTD,
                deduplication=Deduplication(5, 60),
                system=True,
            ),
            TopicStatus(),
            deleting=True,
        ),
    ),
    (
        PARTITION,
        ClusterObject(
            "t-0",
            PartitionSpec(1, (1, 2), 1024),
            PartitionStatus(PartitionResolution.ONLINE, 1, (1, 2), 3),
            owner="t",
        ),
    ),
]


@pytest.mark.parametrize(("kind", "found"), EXAMPLES, ids=lambda one: getattr(one, "key", ""))
def test_an_object_is_read_as_it_was_written(
    kind: ObjectKind[Any, Any], found: ClusterObject[Any, Any]
) -> None:
    stored = StoredObject(found.key, kind.to_bytes(found), 9)
    assert kind.from_stored(stored) == replace(found, revision=9)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_a_newer_schema_is_refused_by_name(kind: ObjectKind[Any, Any]) -> None:
    with pytest.raises(FormatTooNew, match=kind.word):
        kind.from_stored(StoredObject("x", b'{"schema_number": 2}', 1))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
@pytest.mark.parametrize("data", [b"", b"\xff", b'{"schema_number": 1}', b"[]"])
def test_damage_is_reported_as_corrupt(kind: ObjectKind[Any, Any], data: bytes) -> None:
    with pytest.raises(Corrupt):
        kind.from_stored(StoredObject("x", data, 1))


def test_a_topic_without_replicas_is_damaged() -> None:
    found = TOPIC.to_bytes(EXAMPLES[2][1]).replace(b'"computed"', b'"other"')
    with pytest.raises(Corrupt):
        TOPIC.from_stored(StoredObject("x", found, 1))
