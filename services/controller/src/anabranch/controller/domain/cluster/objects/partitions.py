"""The partition controller's decisions. Pure and level-triggered.

The status of a partition follows from its backing stream, and from the placement of its container:

    backing stream    container                           resolution       leader, live replicas
    has it not        any                                 offline          none
    has it            open, and its SPU is online         online, or       the owner; the ISR's SPUs
                                                          out-of-storage     that are online
    has it            waits for an operator, or is not    offline          none
                      placed
    has it            anything else, after it has served  leader-offline   none
    has it            anything else, before that          offline          none

Anything else is: a replica is being elected, the owner opens the container or retries, or the owner
is down. The spec follows, too: `leader` is the placement's owner, and `replicas` are its stores; as
long as these are the same SPUs, their order stays as assigned.

A partition that is marked for deletion, or whose topic is gone or has another incarnation, is
deleted.

The topic controller creates a partition by the same table (`first_version`). If the container
already serves and only the backing stream is missing, the stream is on its way, and the creation
waits for it: so most partitions are written once, with the status that they keep.

Thousands of partitions share a container, so the facts of a container are computed once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.common.contracts.objects import PARTITION
from anabranch.common.model.cluster import WAITING_FOR_OPERATOR, Placement, PlacementState
from anabranch.common.model.objects import (
    UNKNOWN_SPU,
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
    Spu,
    SpuResolution,
    Topic,
)
from anabranch.common.model.topics import parse_partition_key
from anabranch.controller.domain.cluster.objects.actions import (
    Action,
    DeleteFinal,
    UpdateSpec,
    UpdateStatus,
)
from anabranch.controller.domain.cluster.objects.backing import ABSENT, BackingState, StreamView

R = PartitionResolution
_GROWING = (BackingState.ACTIVE, BackingState.SEALED)


@dataclass(frozen=True, slots=True)
class PartitionWorld:
    """The facts on which decisions about partitions are made.

    `placements`: by container. `streams`: by incarnation. `out_of_storage`: the node ids of the
    stores that refuse records because their storage size is used up.
    """

    partitions: Iterable[Partition]
    topics: Iterable[Topic]
    placements: Mapping[int, Placement]
    spus: Iterable[Spu]
    streams: Mapping[str, StreamView]
    out_of_storage: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container as its partitions see it. `serving`: their status while it serves them, or None.

    `leader`, `replicas`: SPU ids as placed; () if a store is not registered. `waits`: no store will
    open it without an operator, or it is not placed.
    """

    serving: PartitionStatus | None
    leader: int
    replicas: tuple[int, ...]
    waits: bool


NOT_PLACED = ContainerView(None, UNKNOWN_SPU, (), waits=True)


def reduce(world: PartitionWorld) -> list[Action]:
    """The due changes, in the order of the partitions."""
    incarnations = {topic.key: topic.incarnation for topic in world.topics}
    views = dict(_views(world))
    actions: list[Action] = []
    for partition in world.partitions:
        if partition.deleting or incarnations.get(partition.owner) != partition.incarnation:
            actions.append(DeleteFinal(PARTITION, partition))
            continue
        view = views.get(partition.spec.container, NOT_PLACED)
        exists = _exists(partition, world.streams.get(partition.incarnation, ABSENT))
        actions.extend(_changes(partition, view, exists=exists))
    return actions


def next_status(before: PartitionStatus, view: ContainerView, *, exists: bool) -> PartitionStatus:
    """The status by the table. `exists`: whether the backing stream has the partition.

    The epoch is that under which it was served last, so openings alone cause no writes.
    """
    if exists and view.serving is not None:
        return view.serving
    has_served = before.resolution is not R.OFFLINE
    resolution = R.LEADER_OFFLINE if exists and has_served and not view.waits else R.OFFLINE
    return PartitionStatus(resolution, epoch=before.epoch)


def next_spec(before: PartitionSpec, view: ContainerView) -> PartitionSpec:
    """The spec with the leader and the replicas of the placement, as far as they are registered."""
    if not view.replicas:
        return before
    stays = set(view.replicas) == set(before.replicas)
    return replace(before, leader=view.leader, replicas=before.replicas if stays else view.replicas)


def first_version(
    partition: Partition, view: ContainerView, stream: StreamView, *, may_wait: bool
) -> Partition | None:
    """The new partition as it is to be stored; None: not before its backing stream has it.

    `may_wait`: False creates it offline in place of None.
    """
    exists = _exists(partition, stream)
    if may_wait and view.serving is not None and not exists:
        return None
    return replace(
        partition,
        spec=next_spec(partition.spec, view),
        status=next_status(partition.status, view, exists=exists),
    )


def container_view(
    placement: Placement, spus: Mapping[str, Spu], out_of_storage: Collection[str] = ()
) -> ContainerView:
    """A container as its partitions see it. `spus`: by node id."""
    known = all(node in spus for node in placement.replicas)
    replicas = tuple(spus[node].spec.spu_id for node in placement.replicas) if known else ()
    owner = spus.get(placement.owner)
    leader = owner.spec.spu_id if owner else UNKNOWN_SPU
    serving = None
    if placement.state is PlacementState.OPEN and owner is not None and _is_online(owner):
        full = placement.owner in out_of_storage
        others = (copy.node_id for copy in placement.isr)
        names = [node for node in others if node != placement.owner and node in spus]
        live = sorted(spus[node].spec.spu_id for node in names if _is_online(spus[node]))
        serving = PartitionStatus(
            R.OUT_OF_STORAGE if full else R.ONLINE,
            leader,
            (leader, *live),
            placement.container_epoch,
        )
    waits = placement.state in WAITING_FOR_OPERATOR
    return ContainerView(serving, leader, replicas, waits)


def _views(world: PartitionWorld) -> Iterator[tuple[int, ContainerView]]:
    spus = {spu.key: spu for spu in world.spus}
    for container, placement in world.placements.items():
        yield container, container_view(placement, spus, world.out_of_storage)


def _exists(partition: Partition, stream: StreamView) -> bool:
    _, index = parse_partition_key(partition.key)
    return stream.state in _GROWING and index < stream.partitions


def _changes(partition: Partition, view: ContainerView, *, exists: bool) -> Iterator[Action]:
    """At most one action."""
    status = next_status(partition.status, view, exists=exists)
    spec = next_spec(partition.spec, view)
    if spec != partition.spec:
        yield UpdateSpec(PARTITION, partition, spec, status)
    elif status != partition.status:
        yield UpdateStatus(PARTITION, partition, status)


def _is_online(spu: Spu) -> bool:
    return spu.status.resolution is SpuResolution.ONLINE
