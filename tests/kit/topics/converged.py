"""Whether a cluster with topics has settled: every object as it is wanted, and nothing left over.

`problems` names what is not so yet. It is asked again and again after the faults have stopped, and
must return nothing within a bound of time.
"""

from collections.abc import Iterator, Sequence

from anabranch.common.contracts.objects import (
    CONSUMERS_BUCKET,
    DOOMED_BUCKET,
    KINDS,
    SPU_GROUP,
    SPU_GROUPS_BUCKET,
)
from anabranch.common.contracts.topics import replica_counts
from anabranch.common.model.cluster import PlacementState
from anabranch.common.model.names import number_of
from anabranch.common.model.objects import (
    Assigned,
    Partition,
    PartitionResolution,
    SpuResolution,
    Topic,
    TopicResolution,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import container_in, partition_key, topic_of
from anabranch.controller.domain.cluster.objects import groups
from kit.topics.cluster import Cluster
from kit.topics.lives import StormyLife
from kit.topics.users import TopicUser


def problems(cluster: Cluster, users: Sequence[TopicUser], leader: StormyLife) -> list[str]:
    """Everything that is not as it must be in the end."""
    topics = cluster.referee.topics()
    return [
        *_topics(cluster, users, topics),
        *_partitions(cluster, topics, leader),
        *_streams(cluster, topics),
        *_spus(cluster),
        *_mirrors(cluster),
    ]


def _topics(
    cluster: Cluster, users: Sequence[TopicUser], topics: dict[str, Topic]
) -> Iterator[str]:
    wanted = {user.name: user.wanted for user in users if user.wanted is not None}
    for name in topics.keys() ^ wanted.keys():
        yield f"{name} {'exists' if name in topics else 'is missing'}"
    for name in topics.keys() & wanted.keys():
        topic, found = topics[name], wanted[name]
        if topic.deleting or topic.incarnation != found.incarnation or topic.spec != found.spec:
            yield f"{name} is not as its user wants it"
        yield from _resolved(cluster, topic)
    incarnations = [topic.incarnation for topic in topics.values()]
    if len(set(incarnations)) < len(incarnations):
        yield "two topics share an incarnation"


def _resolved(cluster: Cluster, topic: Topic) -> Iterator[str]:
    """Whether the topic is provisioned, or waits for the right reason."""
    status, (count, factor) = topic.status, replica_counts(topic.spec)
    spus = {spu.spec.spu_id: spu for spu in cluster.referee.spus().values()}
    if len(status.replica_map) == count:
        expected = {(TopicResolution.PROVISIONED, "")}
    elif isinstance(topic.spec.replicas, Assigned):
        named = {spu_id for row in topic.spec.replicas.partitions for spu_id in row.replicas}
        if named <= spus.keys():
            expected = {(TopicResolution.PROVISIONED, "")}
        else:
            expected = {(TopicResolution.INVALID_CONFIG, status.reason)} if status.reason else set()
    else:
        drained = cluster.stores.drained
        able = [one for one in spus.values() if not one.deleting and one.key not in drained]
        if len(able) >= factor and not (
            any(one.spec.rack for one in able) and "rack" in status.reason
        ):
            expected = {(TopicResolution.PROVISIONED, "")}
        else:
            expected = {(TopicResolution.INSUFFICIENT_RESOURCES, status.reason)}
            if not status.reason:
                yield f"{topic.key} waits without a reason"
    if (status.resolution, status.reason) not in expected or (
        status.resolution is TopicResolution.PROVISIONED and len(status.replica_map) != count
    ):
        yield f"{topic.key} is {status}, and not {expected}"


def _partitions(cluster: Cluster, topics: dict[str, Topic], leader: StormyLife) -> Iterator[str]:
    found = cluster.referee.partitions()
    wanted = {
        partition_key(topic.key, at): (topic, container)
        for topic in topics.values()
        for at, container in enumerate(topic.status.containers)
    }
    for key in found.keys() - wanted.keys():
        yield f"partition {key} is an orphan"
    for key in wanted.keys() - found.keys():
        yield f"partition {key} is missing"
    for key in found.keys() & wanted.keys():
        topic, container = wanted[key]
        if found[key].incarnation != topic.incarnation or found[key].spec.container != container:
            yield f"partition {key} is not that of its topic"
        yield from _served(cluster, found[key])
    for container, placed in cluster.stores.placements.items():
        if placed.state is PlacementState.OPEN:
            for segment in cluster.stores.segments_in(container):
                if leader.live.of(container, segment) is None:
                    yield f"the numbers of {segment} are unknown"


def _served(cluster: Cluster, partition: Partition) -> Iterator[str]:
    placed = cluster.stores.placements.get(partition.spec.container)
    spus, live = cluster.referee.spus(), cluster.stores.live
    status = partition.status
    if placed is None:
        yield f"the container of {partition.key} is not placed"
        return
    owner = spus.get(placed.owner)
    if placed.state is PlacementState.OPEN and owner is not None and live.get(placed.owner):
        others = [copy.node_id for copy in placed.isr if copy.node_id != placed.owner]
        lrs = sorted(spus[node].spec.spu_id for node in others if node in spus and live.get(node))
        wanted = (
            PartitionResolution.ONLINE,
            owner.spec.spu_id,
            (owner.spec.spu_id, *lrs),
            placed.container_epoch,
        )
        if (status.resolution, status.leader, status.lrs, status.epoch) != wanted:
            yield f"partition {partition.key} is {status}, and not {wanted}"
    elif status.resolution is PartitionResolution.ONLINE:
        yield f"partition {partition.key} is online, and its leader is not"


def _streams(cluster: Cluster, topics: dict[str, Topic]) -> Iterator[str]:
    maps = {topic.incarnation: topic for topic in topics.values() if topic.status.replica_map}
    present = set()
    for ref, stream in cluster.streams.streams.items():
        if stream.status is StreamState.DELETED:
            continue
        name, incarnation = topic_of(ref.stream)
        present.add(incarnation)
        if incarnation not in maps:
            yield f"the stream of {name} is an orphan"
            continue
        segments = [one.segment_id for one in stream.segments[:-1]]
        containers = tuple(container_in(number_of(one)) for one in segments)
        if containers != maps[incarnation].status.containers:
            yield f"the stream of {name} has its partitions elsewhere"
    for incarnation in maps.keys() - present:
        yield f"the stream of {maps[incarnation].key} is missing"
    for one in cluster.referee.buckets[DOOMED_BUCKET].present():
        yield f"doom {one.key} is left"
    living = {topic.incarnation for topic in topics.values()}
    for one in cluster.referee.buckets[CONSUMERS_BUCKET].present():
        if one.key.partition(".")[0] not in living:
            yield f"consumer {one.key} is left"


def _spus(cluster: Cluster) -> Iterator[str]:
    spus = cluster.referee.spus()
    for name, spu in spus.items():
        online = spu.status.resolution is SpuResolution.ONLINE
        if online != bool(cluster.stores.live.get(name)):
            yield f"SPU {name} is {spu.status.resolution}"
    stored = cluster.referee.buckets[SPU_GROUPS_BUCKET].present()
    found = [SPU_GROUP.from_stored(one) for one in stored]
    plan = groups.reduce(found, spus.values(), cluster.stores.holding, cluster.stores.drained)
    if plan.actions:
        yield f"the SPU groups have not settled: {plan.actions[0]}"


def _mirrors(cluster: Cluster) -> Iterator[str]:
    for kind in KINDS:
        stored = cluster.referee.buckets[kind.bucket].present()
        revisions = {one.key: one.revision for one in stored}
        for life in cluster.controllers.values():
            seen = {key: one.revision for key, one in life.store(kind.bucket).objects.items()}
            if seen != revisions:
                yield f"controller {life.number} has another {kind.word} than is stored"
