"""The topic controller's decisions. Pure and level-triggered: see the table of transitions.

    status                  the world                            becomes
    initializing            the spec is right                    pending ("waiting for live spus")
    initializing            the spec is wrong                    invalid-config, with the reason
    invalid-config          spec and SPU ids are right           pending
    pending, insufficient-  the replicas can be assigned         provisioned, with the map
      resources
    pending, insufficient-  too few SPUs, racks or               insufficient-resources
      resources               replicated logs
    pending, insufficient-  the user assigned an SPU that is     invalid-config
      resources               not registered
    provisioned             the spec has more partitions than    pending; the old rows stay
                              the map
    any                     its deletion was asked for           deleting
    any                     its backing stream was deleted       it is marked for deletion: its
                                                                 creation took effect late

A topic with a map has partitions and a backing stream in every status. The plan creates the
partitions that are missing, and asks for the backing stream until it is as the map says. A
partition whose container serves is created once the stream has it; a full plan creates it in any
case, so that a partition without a stream is seen to be offline. The order keeps everything safe to
repeat: the shell writes `containers` first, then performs `actions`; a command follows only from a
map that is stored.

A deleted topic is doomed first, then its partitions go, then the topic itself; `dooming.py` drives
its stream to deletion for as long as that takes.

Topics are assigned one after the other, each with the numbers that the last one has changed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.common.contracts.objects import PARTITION, TOPIC, TopicContainers
from anabranch.common.model.cluster import Placement
from anabranch.common.model.objects import (
    Assigned,
    ClusterObject,
    Computed,
    Partition,
    PartitionSpec,
    PartitionStatus,
    Spu,
    Topic,
    TopicResolution,
    TopicStatus,
)
from anabranch.common.model.topics import TopicName, partition_key
from anabranch.controller.domain.cluster.objects.actions import (
    Action,
    Apply,
    DeleteFinal,
    MarkDeleting,
    UpdateStatus,
)
from anabranch.controller.domain.cluster.objects.assignment import manual
from anabranch.controller.domain.cluster.objects.assignment.strategies import (
    DEFAULT_STRATEGY,
    STRATEGIES,
)
from anabranch.controller.domain.cluster.objects.assignment.values import (
    WAITING,
    AssignedMap,
    Existing,
    Refused,
)
from anabranch.controller.domain.cluster.objects.backing import (
    ABSENT,
    BackingCommand,
    BackingState,
    CreateBacking,
    GrowBacking,
    StreamView,
)
from anabranch.controller.domain.cluster.objects.dooming import Doom
from anabranch.controller.domain.cluster.objects.partitions import (
    NOT_PLACED,
    ContainerView,
    container_view,
    first_version,
)
from anabranch.controller.domain.cluster.objects.spu_views import SpuViews
from anabranch.controller.domain.cluster.objects.topic_checks import fault_of
from anabranch.controller.domain.cluster.objects.topic_containers import ContainerAllocation

R = TopicResolution


@dataclass(frozen=True, slots=True)
class TopicWorld:
    """The facts on which decisions about topics are made.

    `spus`: registered SPUs. `log_homes`: the place of a store's logs, by node id, as far as known.
    `drained`: node ids that get no replicas. `placements`: by container. `streams`: by incarnation;
    without an entry the backing stream is absent. `doomed`: the incarnations whose streams are
    doomed. `strategy`: a name of `STRATEGIES`. `out_of_storage`: as in `PartitionWorld`. `is_full`:
    whether the plan is part of a full reconciliation.
    """

    topics: Collection[Topic]
    partitions: Iterable[Partition]
    spus: Iterable[Spu]
    containers: TopicContainers
    placements: Mapping[int, Placement]
    streams: Mapping[str, StreamView]
    doomed: frozenset[str] = frozenset()
    log_homes: Mapping[str, str] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    strategy: str = DEFAULT_STRATEGY
    out_of_storage: Collection[str] = ()
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The due changes, in this order.

    `containers`: None if they stay as they are; otherwise they are stored by compare-and-set, and
    the rest of the plan is void if that fails. `dooms`: stored before `actions`. `commands`: may be
    repeated by every plan until the mirror shows their effect.
    """

    containers: TopicContainers | None = None
    dooms: tuple[Doom, ...] = ()
    actions: tuple[Action, ...] = ()
    commands: tuple[BackingCommand, ...] = ()


def reduce(world: TopicWorld) -> TopicPlan:
    """The due changes of all topics, of their partitions and of their backing streams."""
    plan = _Planner(world)
    for topic in sorted(world.topics, key=lambda topic: (topic.revision, topic.key)):
        plan.add(topic)
    return plan.done()


class _Planner:
    """One plan in the making."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._partitions: dict[str, list[Partition]] = defaultdict(list)
        self._leads: Counter[int] = Counter()
        self._follows: Counter[int] = Counter()
        for partition in world.partitions:
            self._partitions[partition.owner].append(partition)
            self._count([partition.spec.replicas])
        for topic in world.topics:
            self._count([row for _, row in self._missing(topic)])
        self._spus = SpuViews(world.spus, world.log_homes, world.drained)
        self._nodes = {spu.key: spu for spu in world.spus}
        self._views: dict[int, ContainerView] = {}
        self._allocation = ContainerAllocation(world.containers, world.placements)
        self._cursor = world.containers.cursor
        self._dooms: list[Doom] = []
        self._actions: list[Action] = []
        self._commands: list[BackingCommand] = []

    def add(self, topic: Topic) -> None:
        if topic.deleting:
            self._delete(topic)
            return
        if self._stream_of(topic).state is BackingState.DELETED:
            self._actions.append(MarkDeleting(TOPIC, topic))
            return
        status = self._next_status(topic)
        if status != topic.status:
            self._actions.append(UpdateStatus(TOPIC, topic, status))
        if topic.status.replica_map:
            self._create_missing(topic)
            self._commands.extend(_backing_command(topic, self._world.streams))

    def done(self) -> TopicPlan:
        after = TopicContainers(containers=self._allocation.entries, cursor=self._cursor)
        containers = after if after != self._world.containers else None
        return TopicPlan(
            containers, tuple(self._dooms), tuple(self._actions), tuple(self._commands)
        )

    def _stream_of(self, topic: Topic) -> StreamView:
        return self._world.streams.get(topic.incarnation, ABSENT)

    def _next_status(self, topic: Topic) -> TopicStatus:
        status, spec = topic.status, topic.spec
        match status.resolution:
            case R.INIT | R.INVALID_CONFIG:
                why = fault_of(spec) or self._unregistered(topic)
                if why:
                    return replace(status, resolution=R.INVALID_CONFIG, reason=why)
                return replace(status, resolution=R.PENDING, reason=WAITING)
            case R.PENDING | R.INSUFFICIENT_RESOURCES:
                return self._scheduled(topic)
            case R.PROVISIONED if _row_count(topic) > len(status.replica_map):
                return replace(status, resolution=R.PENDING, reason=WAITING)
            case R.PROVISIONED | R.DELETING:
                return status

    def _unregistered(self, topic: Topic) -> str:
        """Of a topic that waits for another spec: why the assigned SPUs still do not do."""
        waits = topic.status.resolution is R.INVALID_CONFIG
        match topic.spec.replicas:
            case Assigned(rows) if waits:
                found = manual.assign(rows, self._spus.ids)
                return found.reason if isinstance(found, Refused) else ""
            case _:
                return ""

    def _scheduled(self, topic: Topic) -> TopicStatus:
        """Provisioned with a map, or why there is none."""
        status = topic.status
        why = fault_of(topic.spec)
        if why:
            return replace(status, resolution=R.INVALID_CONFIG, reason=why)
        found = self._assigned(topic)
        if isinstance(found, Refused):
            return replace(status, resolution=found.resolution, reason=found.reason)
        new = found.rows[len(status.replica_map) :]
        containers = self._allocation.containers_of([self._spus.names_of(row) for row in new])
        if containers is None:
            reason = "no container number is left for another replica list"
            return replace(status, resolution=R.INSUFFICIENT_RESOURCES, reason=reason)
        start = self._cursor
        if isinstance(topic.spec.replicas, Computed):
            self._cursor += len(new)
        self._count(new)
        return TopicStatus(
            R.PROVISIONED,
            "",
            (*status.replica_map, *new),
            (*status.containers, *containers),
            status.start if status.replica_map else start,
        )

    def _assigned(self, topic: Topic) -> AssignedMap | Refused:
        existing = Existing(topic.status.replica_map, self._leads, self._follows)
        match topic.spec.replicas:
            case Computed(partitions, factor, ignore_racks):
                able = self._spus.able(factor)
                if isinstance(able, Refused):
                    return able
                assign = STRATEGIES[self._world.strategy]
                return assign(
                    able,
                    existing,
                    partitions,
                    factor,
                    ignore_racks=ignore_racks,
                    start=self._cursor,
                )
            case Assigned(rows):
                found = manual.assign(rows, self._spus.ids)
                if isinstance(found, Refused):
                    return found
                return self._spus.without_copies(found.rows) or found

    def _missing(self, topic: Topic) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The indices and rows of the map without a partition object."""
        rows = topic.status.replica_map
        present = {partition.key for partition in self._partitions.get(topic.key, ())}
        if len(present) < len(rows):
            for index, row in enumerate(rows):
                if partition_key(topic.key, index) not in present:
                    yield index, row

    def _create_missing(self, topic: Topic) -> None:
        stream, may_wait = self._stream_of(topic), not self._world.is_full
        for index, row in self._missing(topic):
            container = topic.status.containers[index]
            child = ClusterObject(
                partition_key(topic.key, index),
                PartitionSpec(row[0], row, container),
                PartitionStatus(),
                owner=topic.key,
                incarnation=topic.incarnation,
            )
            first = first_version(child, self._view(container), stream, may_wait=may_wait)
            if first is not None:
                self._actions.append(Apply(PARTITION, first))

    def _view(self, container: int) -> ContainerView:
        found = self._views.get(container)
        if found is None:
            placed = self._world.placements.get(container)
            found = self._views[container] = (
                NOT_PLACED
                if placed is None
                else container_view(placed, self._nodes, self._world.out_of_storage)
            )
        return found

    def _delete(self, topic: Topic) -> None:
        """Doom the stream, then mark the partitions, then delete the topic."""
        if topic.status.resolution is not R.DELETING:
            status = replace(topic.status, resolution=R.DELETING, reason="")
            self._actions.append(UpdateStatus(TOPIC, topic, status))
        if topic.incarnation not in self._world.doomed:
            self._dooms.append(Doom(TopicName(topic.key), topic.incarnation))
            return
        # Topics and partitions are seen apart: those of the next topic may be here already.
        partitions = [
            one for one in self._partitions[topic.key] if one.incarnation == topic.incarnation
        ]
        self._actions.extend(
            MarkDeleting(PARTITION, partition) for partition in partitions if not partition.deleting
        )
        if not partitions and topic.status.resolution is R.DELETING:
            self._actions.append(DeleteFinal(TOPIC, topic))

    def _count(self, rows: Sequence[tuple[int, ...]]) -> None:
        for row in rows:
            self._leads.update(row[:1])
            self._follows.update(row[1:])


def _row_count(topic: Topic) -> int:
    match topic.spec.replicas:
        case Computed(partitions, _, _):
            return partitions
        case Assigned(rows):
            return len(rows)


def _backing_command(topic: Topic, streams: Mapping[str, StreamView]) -> Iterator[BackingCommand]:
    """The command that is due so that the stream has every partition of the stored map."""
    containers, name = topic.status.containers, TopicName(topic.key)
    view = streams.get(topic.incarnation, ABSENT)
    if view.state is BackingState.ABSENT:
        yield CreateBacking(name, topic.incarnation, containers)
    elif view.state is BackingState.ACTIVE and view.partitions < len(containers):
        new = containers[view.partitions :]
        yield GrowBacking(name, topic.incarnation, new, view.partitions)
