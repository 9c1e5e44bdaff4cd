"""SPUs, SPU groups, topics and partitions as answers describe them. Pure."""

from collections.abc import Iterable, Mapping

from anabranch.common.contracts.spus import SpuDescription, SpuGroupDescription
from anabranch.common.contracts.topics import (
    PartitionDescription,
    ReplicaLive,
    TopicDescription,
    replica_counts,
)
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.model.names import segment_name
from anabranch.common.model.objects import (
    UNKNOWN_SPU,
    Ingress,
    Partition,
    PartitionResolution,
    PrivateEndpoint,
    PublicEndpoint,
    Spu,
    SpuGroup,
    SpuResolution,
    SpuSpec,
    Topic,
    TopicResolution,
)
from anabranch.common.model.topics import (
    INCARNATION_LENGTH,
    TopicName,
    backing_stream,
    partition_at,
    partition_key,
)
from anabranch.controller.cluster.topics.live_numbers import Numbers
from anabranch.controller.domain.stream.state import Stream


def described_topic(topic: Topic, partitions_online: int) -> TopicDescription:
    """A topic; one that is not stored yet has no incarnation and no stream."""
    partition_count, factor = replica_counts(topic.spec)
    known = len(topic.incarnation) == INCARNATION_LENGTH
    ref = backing_stream(TopicName(topic.key), topic.incarnation) if known else None
    status = topic.status
    return TopicDescription(
        topic=topic.key,
        incarnation=topic.incarnation,
        spec=topic.spec,
        resolution=TopicResolution.DELETING if topic.deleting else status.resolution,
        reason=status.reason,
        partition_count=partition_count,
        replication_factor=factor,
        partitions_online=partitions_online,
        deleting=topic.deleting,
        scope=ref.scope if ref else "",
        stream=ref.stream if ref else "",
    )


def count_online(topic: Topic, partitions: Mapping[str, Partition]) -> int:
    """How many partitions of this incarnation of the topic are online."""
    found = (
        partitions.get(partition_key(topic.key, at)) for at in range(replica_counts(topic.spec)[0])
    )
    return sum(
        one is not None
        and one.incarnation == topic.incarnation
        and one.status.resolution is PartitionResolution.ONLINE
        for one in found
    )


def partition_segments(stream: Stream | None) -> Mapping[int, str]:
    """The full names of the segments of a backing stream, by partition index."""
    if stream is None or stream.ref is None or not stream.is_live:
        return {}
    ref = stream.ref
    found = ((partition_at(one.keys.start, one.keys.end), one) for one in stream.segments)
    return {at: segment_name(ref, one.segment_id) for at, one in found if at is not None}


def described_partition(
    topic: str, index: int, partition: Partition, segment: str, live: Numbers | None
) -> PartitionDescription:
    """A partition, with the numbers that its leader reported, if any.

    The log of a container counts a record once every in-sync copy has it, so the numbers of the
    followers in the LRS are those of the leader.
    """
    spec, status = partition.spec, partition.status
    followers = tuple(one for one in spec.replicas if one != status.leader)
    return PartitionDescription(
        topic=topic,
        partition=index,
        segment=segment,
        container=spec.container,
        leader=status.leader,
        replicas=spec.replicas,
        resolution=status.resolution,
        lrs=status.lrs,
        epoch=status.epoch,
        size_bytes=-2 if live is None else live.size_bytes,
        base=-1 if live is None else live.base,
        leader_live=_live(status.leader, live) if status.leader != UNKNOWN_SPU else None,
        followers_live=tuple(_live(one, live if one in status.lrs else None) for one in followers),
        deleting=partition.deleting,
    )


def _live(spu: int, live: Numbers | None) -> ReplicaLive:
    if live is None:
        return ReplicaLive(spu=spu)
    return ReplicaLive(spu=spu, leo=live.leo, hw=live.leo)


def described_spu(spu: Spu) -> SpuDescription:
    """A registered SPU."""
    return SpuDescription(
        name=spu.key,
        spec=spu.spec,
        resolution=spu.status.resolution,
        group=spu.owner,
        deleting=spu.deleting,
    )


def described_spus(
    spus: Iterable[Spu], refused: Mapping[str, NodeRecord], *, custom_only: bool
) -> list[SpuDescription]:
    """The registered SPUs by id, then the stores that were refused, by name."""
    known = sorted(spus, key=lambda spu: (spu.spec.spu_id, spu.key))
    described = [
        described_spu(spu) for spu in known if not custom_only or spu.spec.type.value == "custom"
    ]
    return [*described, *(_refused(refused[name]) for name in sorted(refused))]


def _refused(node: NodeRecord) -> SpuDescription:
    endpoint = node.endpoint
    peer = node.peer or endpoint
    spec = SpuSpec(
        spu_id=UNKNOWN_SPU,
        public=PublicEndpoint(endpoint.port, (Ingress(hostname=endpoint.host),)),
        private=PrivateEndpoint(peer.host, peer.port),
        rack=node.rack,
    )
    return SpuDescription(
        name=node.node_id, spec=spec, resolution=SpuResolution.OFFLINE, refused=True
    )


def described_group(group: SpuGroup) -> SpuGroupDescription:
    """An SPU group."""
    return SpuGroupDescription(
        name=group.key,
        spec=group.spec,
        resolution=group.status.resolution,
        reason=group.status.reason,
        deleting=group.deleting,
    )
