"""Topics, partitions and consumers as bodies and answers.

A body takes values that a topic cannot have, so that the cluster refuses them with its reasons.
"""

from typing import Annotated

from pydantic import Field

from anabranch.common.contracts.topics import PartitionDescription, TopicDescription
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    TopicSpec,
)
from anabranch.common.model.topics import PARTITION_COUNT_MAX
from anabranch.gateway.http.models.answers import INT63, HttpBody, NextPageToken, Told

Count = Annotated[int, Field(ge=-INT63, le=INT63)]
SpuId = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class DeduplicationBody(HttpBody):
    """Which repetitions of a producer's records are recognized: those of the last `count` ones, and
    of the last `ageS` seconds."""

    count: Count
    age_s: Count | None = None

    def bounds(self) -> Deduplication:
        return Deduplication(self.count, self.age_s)


class AssignmentBody(HttpBody):
    """The SPU ids of a partition's replicas, the leader first."""

    id: Count
    replicas: Annotated[list[SpuId], Field(max_length=64)]


class CreateTopicRequest(HttpBody):
    """A new topic: `assignment`, or the three fields before it."""

    topic_name: str
    partitions: Count | None = None
    replication_factor: Count | None = None
    ignore_racks: bool | None = None
    assignment: Annotated[list[AssignmentBody], Field(max_length=PARTITION_COUNT_MAX)] | None = None
    retention_s: Count = TopicSpec().retention_s
    segment_size_bytes: Count = TopicSpec().segment_size_bytes
    partition_size_max_bytes: Count = TopicSpec().partition_size_max_bytes
    compression: Compression = Compression.ANY
    deduplication: DeduplicationBody | None = None
    system: bool = False

    def spec(self) -> TopicSpec:
        """The spec. Raises InvalidRequest for an assignment beside counts."""
        return TopicSpec(
            replicas=self._replicas(),
            retention_s=self.retention_s,
            segment_size_bytes=self.segment_size_bytes,
            partition_size_max_bytes=self.partition_size_max_bytes,
            compression=self.compression,
            deduplication=self.deduplication.bounds() if self.deduplication else None,
            system=self.system,
        )

    def _replicas(self) -> Computed | Assigned:
        counts = (self.partitions, self.replication_factor, self.ignore_racks)
        if self.assignment is None:
            partitions, factor, ignore_racks = counts
            return Computed(
                1 if partitions is None else partitions,
                1 if factor is None else factor,
                bool(ignore_racks),
            )
        if any(one is not None for one in counts):
            raise InvalidRequest(
                "an assignment says how many partitions and replicas there are",
                remedy="omit partitions, replicationFactor and ignoreRacks, or assignment",
            )
        rows = (AssignedPartition(row.id, tuple(row.replicas)) for row in self.assignment)
        return Assigned(tuple(rows))


class UpdateTopicRequest(HttpBody):
    """What changes; omitted fields stay as they are."""

    retention_s: Count | None = None
    segment_size_bytes: Count | None = None
    partition_size_max_bytes: Count | None = None
    compression: Compression | None = None
    deduplication: DeduplicationBody | None = None


class AddPartitionsRequest(HttpBody):
    count: Annotated[int, Field(ge=1, le=PARTITION_COUNT_MAX)] = 1


class DeduplicationProperty(Told):
    count: int
    age_s: int | None = None


class AssignmentProperty(Told):
    id: int
    replicas: tuple[int, ...]


class TopicProperty(Told):
    """A topic. `partitions`: as many as it shall have, of which `partitionsOnline` serve;
    `assignment`: null if the cluster assigned the replicas; `stream`: the backing stream."""

    topic_name: str
    incarnation: str
    partitions: int
    replication_factor: int
    ignore_racks: bool
    assignment: list[AssignmentProperty] | None
    retention_s: int
    segment_size_bytes: int
    partition_size_max_bytes: int
    compression: Compression
    deduplication: DeduplicationProperty | None
    system: bool
    resolution: str
    reason: str
    partitions_online: int
    deleting: bool
    stream: str


class TopicsList(Told):
    topics: list[TopicProperty]
    next_page_token: NextPageToken = ""


class ReplicaProperty(Told):
    """A replica's place in the log; -1: not known."""

    spu: int
    leo: int
    hw: int


class PartitionProperty(Told):
    """A partition. `leader`: the SPU that serves it, or -1. `lrs`: the live replicas, the leader
    first. `base`: the number of the first record that is kept, or -1. `sizeBytes`: -1 for an error,
    -2 until it is known."""

    topic: str
    partition: int
    segment: str
    container: int
    leader: int
    replicas: tuple[int, ...]
    resolution: str
    lrs: tuple[int, ...]
    size_bytes: int
    base: int
    leader_live: ReplicaProperty | None
    followers_live: tuple[ReplicaProperty, ...]
    deleting: bool


class PartitionsList(Told):
    partitions: list[PartitionProperty]
    next_page_token: NextPageToken = ""


class ConsumerOffsetProperty(Told):
    """The offset that a named consumer has committed in a partition: the number of the last record
    that it has seen, -1 for none. `lastSeenMs`: the time of the commit."""

    consumer: str
    topic: str
    partition: int
    offset: int
    last_seen_ms: int


class ConsumersList(Told):
    consumers: list[ConsumerOffsetProperty]


class MoveProperty(Told):
    container: int
    partitions: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    state: str


class MovesList(Told):
    moves: list[MoveProperty]


def topic_property(one: TopicDescription) -> TopicProperty:
    """The topic as an answer."""
    spec = one.spec
    rows = spec.replicas.partitions if isinstance(spec.replicas, Assigned) else None
    bounds = spec.deduplication
    return TopicProperty(
        topic_name=one.topic,
        incarnation=one.incarnation,
        partitions=one.partition_count,
        replication_factor=one.replication_factor,
        ignore_racks=isinstance(spec.replicas, Computed) and spec.replicas.ignore_racks,
        assignment=None
        if rows is None
        else [AssignmentProperty(id=row.id, replicas=row.replicas) for row in rows],
        retention_s=spec.retention_s,
        segment_size_bytes=spec.segment_size_bytes,
        partition_size_max_bytes=spec.partition_size_max_bytes,
        compression=spec.compression,
        deduplication=None
        if bounds is None
        else DeduplicationProperty(count=bounds.count, age_s=bounds.age_s),
        system=spec.system,
        resolution=one.resolution.value,
        reason=one.reason,
        partitions_online=one.partitions_online,
        deleting=one.deleting,
        stream=f"{one.scope}/{one.stream}",
    )


def partition_property(one: PartitionDescription) -> PartitionProperty:
    """The partition as an answer."""
    return PartitionProperty.model_validate(one)
