"""The parts of a controller that concern SPUs, SPU groups, topics and partitions."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.common.contracts.container_queries import ExplainContainer
from anabranch.common.contracts.objects import (
    CONSUMERS_BUCKET,
    DOOMED_BUCKET,
    PARTITION,
    SPU,
    SPU_GROUP,
    TOPIC,
    ObjectKind,
)
from anabranch.common.contracts.spus import RegisterSpu
from anabranch.common.contracts.subjects import CLUSTER_BUCKET, NODES_BUCKET, kind_of_subject
from anabranch.common.errors import InvalidName
from anabranch.common.model.objects import (
    PartitionSpec,
    PartitionStatus,
    Spu,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.model.topics import TOPIC_PREFIX, TOPIC_SCOPE, topic_of
from anabranch.controller.adapters.live_reports import LiveReportListener
from anabranch.controller.cluster.objects.dispatcher import Dispatcher
from anabranch.controller.cluster.registrar import Inputs, Registrar
from anabranch.controller.cluster.topics.backing import Backing
from anabranch.controller.cluster.topics.doomed import DoomedStreams
from anabranch.controller.cluster.topics.doomed_controller import DoomedController, DoomedInputs
from anabranch.controller.cluster.topics.group_controller import GroupController
from anabranch.controller.cluster.topics.holding import holders
from anabranch.controller.cluster.topics.live_numbers import LiveNumbers
from anabranch.controller.cluster.topics.partition_controller import (
    PartitionController,
    PartitionInputs,
)
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.cluster.topics.rebalancer import RebalanceInputs, Rebalancer
from anabranch.controller.cluster.topics.reconciler import Reconciler, Step
from anabranch.controller.cluster.topics.shelf import Shelf
from anabranch.controller.cluster.topics.spu_controller import SpuController
from anabranch.controller.cluster.topics.topic_controller import TopicController, TopicInputs
from anabranch.controller.domain.cluster.liveness import Kind
from anabranch.controller.domain.cluster.objects.groups import ids_of
from anabranch.controller.domain.kinds import STREAMS
from anabranch.controller.handlers.desk.topics import Changes, TopicDesk
from anabranch.controller.handlers.topics.spu_actions import register_spu
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.ports import CommandSender
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.wiring.cluster import Cluster
from anabranch.controller.wiring.surroundings import Surroundings

_MARK = f".{TOPIC_SCOPE}.{TOPIC_PREFIX}"
_SCOPE_MARK = f".scope.{TOPIC_SCOPE}"


@dataclass(frozen=True, slots=True)
class Dispatchers:
    """The four kinds of objects."""

    spus: Dispatcher[SpuSpec, SpuStatus]
    groups: Dispatcher[SpuGroupSpec, SpuGroupStatus]
    topics: Dispatcher[TopicSpec, TopicStatus]
    partitions: Dispatcher[PartitionSpec, PartitionStatus]

    def all(self) -> tuple[Dispatcher[Any, Any], ...]:
        return self.spus, self.groups, self.topics, self.partitions


@dataclass(frozen=True, slots=True)
class Topics:
    """The objects as this controller sees them, and their controllers."""

    dispatchers: Dispatchers
    doomed: DoomedStreams
    live: LiveNumbers
    listener: LiveReportListener
    topic_controller: TopicController
    partition_controller: PartitionController
    reconcilers: Mapping[str, Reconciler]
    desk: TopicDesk
    caught_up: asyncio.Event
    leads: Callable[[], bool]
    registrar: Registrar

    def registered(self) -> Collection[str] | None:
        """The node ids of the registered SPUs; None until all have been seen."""
        store = self.dispatchers.spus.store
        return store.objects.keys() if store.listed else None

    def jobs(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Name and serve function of each part."""
        for dispatcher in self.dispatchers.all():
            yield f"objects: {dispatcher.kind.word}", dispatcher.serve
        yield "registration of stores", self.registrar.serve
        yield "doomed streams", self.doomed.serve
        yield "live reports", self.listener.serve
        for name, reconciler in self.reconcilers.items():
            yield f"controller of {name}", reconciler.serve

    def go_live(self) -> None:
        """The mirror has caught up, so that a missing stream does not exist."""
        self.caught_up.set()
        for reconciler in self.reconcilers.values():
            reconciler.wake()

    def folded(self, fold: Fold) -> None:
        """Wake the controllers if the message is about a backing stream. Never waits."""
        subject = fold.subject
        if not self.leads():
            return  # a controller that begins to lead looks at everything
        if _MARK in subject and kind_of_subject(subject) == STREAMS.name:
            try:
                topic, incarnation = topic_of(subject.split(".")[5].replace("=", "."))
            except InvalidName:
                return
            self.topic_controller.touched.touch(topic, incarnation)
            self.partition_controller.touched.touch(topic, incarnation)
        elif not subject.endswith(_SCOPE_MARK):
            return
        for name in ("topics", "partitions", "doomed streams"):
            self.reconcilers[name].wake()

    def watch(self, metrics: ControllerMetrics) -> None:
        """Register the gauges; call it once."""
        found = self.dispatchers
        metrics.watch_objects(
            spus=lambda: _by_resolution(found.spus),
            topics=lambda: _by_resolution(found.topics),
            partitions=lambda: _by_resolution(found.partitions),
        )


def _by_resolution(dispatcher: Dispatcher[Any, Any]) -> Mapping[tuple[str, ...], float]:
    return Counter((one.status.resolution.value,) for one in dispatcher.store)


def build_topics(
    around: Surroundings, cluster: Cluster, mirror: Mirror, commands: CommandSender
) -> Topics:
    """Build all parts; none is started."""
    dispatchers = Dispatchers(
        _dispatcher(around, SPU),
        _dispatcher(around, SPU_GROUP),
        _dispatcher(around, TOPIC),
        _dispatcher(around, PARTITION),
    )
    doomed = DoomedStreams(around.objects(DOOMED_BUCKET), around.clock)
    live = LiveNumbers(lambda: cluster.placements.placements, around.clock)
    doomed.on_gone(lambda incarnation: live.forget(lambda name: f".{incarnation}/" in name))
    backing = Backing(commands, mirror, around.clock)
    caught_up = asyncio.Event()

    def ready() -> bool:
        seen = cluster.placements.complete and cluster.members.complete and cluster.drains.complete
        return seen and caught_up.is_set()

    parts = _Parts(around, cluster, dispatchers, doomed, live, backing, mirror, ready)
    topic_controller, partition_controller = parts.topic_controller(), parts.partition_controller()
    rebalancer = parts.rebalancer()
    desk = parts.desk(rebalancer)
    reconcilers = parts.reconcilers(
        {
            "SPUs": parts.spu_controller().step,
            "SPU groups": parts.group_controller().step,
            "topics": topic_controller.step,
            "partitions": partition_controller.step,
            "doomed streams": parts.doomed_controller().step,
            "rebalancing": rebalancer.step,
        },
        rebalancer,
    )
    return Topics(
        dispatchers,
        doomed,
        live,
        LiveReportListener(around.client, live.learn),
        topic_controller,
        partition_controller,
        reconcilers,
        desk,
        caught_up,
        lambda: cluster.leadership.leading,
        parts.registrar(desk),
    )


def _dispatcher(around: Surroundings, kind: ObjectKind[Any, Any]) -> Dispatcher[Any, Any]:
    return Dispatcher(
        kind,
        around.objects(kind.bucket),
        around.clock,
        containment=around.containment,
        reconcile_s=around.settings.reconcile_s,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """Builds the controllers from what they share."""

    around: Surroundings
    cluster: Cluster
    found: Dispatchers
    doomed: DoomedStreams
    live: LiveNumbers
    backing: Backing
    mirror: Mirror
    ready: Callable[[], bool]

    def spu_controller(self) -> SpuController:
        members = self.cluster.members

        def live() -> Mapping[str, bool] | None:
            if not members.complete:
                return None
            return {name: standing.live for name, standing in members.standings(Kind.STORE)}

        return SpuController(self.found.spus.store, live, Performer([self.found.spus]))

    def registrar(self, desk: TopicDesk) -> Registrar:
        cluster, found = self.cluster, self.found

        async def register(spu: Spu) -> None:
            await register_spu(desk, RegisterSpu(name=spu.key, spec=spu.spec))

        def reserved() -> Collection[int]:
            return {spu_id for one in found.groups.store for spu_id in ids_of(one.spec)}

        inputs = Inputs(
            members=cluster.members,
            lead=cluster.leadership,
            spus=found.spus.store,
            nodes=self.around.objects(NODES_BUCKET),
            register=register,
            reserved=reserved,
            placements=lambda: cluster.placements.placements,
        )
        registrar = Registrar(inputs, self.around.clock, self.around.containment)
        found.spus.store.on_change(registrar.look)
        return registrar

    def group_controller(self) -> GroupController:
        return GroupController(
            self.found.groups.store,
            self.found.spus.store,
            self.cluster.drains,
            Performer([self.found.spus, self.found.groups]),
            holding=lambda name: name in holders(self.cluster.placements.placements),
            holding_known=self.ready,
        )

    def topic_controller(self) -> TopicController:
        found, cluster, settings = self.found, self.cluster, self.around.settings
        inputs = TopicInputs(
            spus=found.spus.store,
            topics=found.topics.store,
            partitions=found.partitions.store,
            table=cluster.topic_containers,
            doomed=self.doomed,
            ready=self.ready,
            placements=lambda: cluster.placements.placements,
            log_homes=lambda: {
                name: node.journal_id for name, node in cluster.members.nodes.items()
            },
            drained=lambda: cluster.drains.nodes,
            out_of_storage=self.live.out_of_storage,
            strategy=settings.topic_assignment,
            counts_all=settings.topic_assignment == "least-loaded",
        )
        performer = Performer([found.topics, found.partitions])
        return TopicController(inputs, self.backing, performer, self.around.containment)

    def partition_controller(self) -> PartitionController:
        found = self.found
        inputs = PartitionInputs(
            spus=found.spus.store,
            topics=found.topics.store,
            partitions=found.partitions.store,
            topic_store=self.around.objects(TOPIC.bucket),
            ready=self.ready,
            placements=lambda: self.cluster.placements.placements,
            out_of_storage=self.live.out_of_storage,
        )
        performer = Performer([found.partitions])
        return PartitionController(inputs, self.backing, performer, self.around.containment)

    def doomed_controller(self) -> DoomedController:
        inputs = DoomedInputs(
            doomed=self.doomed,
            topics=self.found.topics.store,
            topic_store=self.around.objects(TOPIC.bucket),
            consumers=self.around.objects(CONSUMERS_BUCKET),
            backing_streams=lambda: self.mirror.names.of(STREAMS, TOPIC_SCOPE),
            ready=self.ready,
        )
        return DoomedController(inputs, self.backing, self.around.clock)

    def rebalancer(self) -> Rebalancer:
        settings, cluster = self.around.settings, self.cluster
        inputs = RebalanceInputs(
            spus=self.found.spus.store,
            partitions=self.found.partitions.store,
            table=cluster.topic_containers,
            placements=lambda: cluster.placements.placements,
            draining=lambda: cluster.drains.nodes,
            ready=lambda: self.ready() and self.found.spus.store.listed,
        )
        joins = settings.topic_rebalance == "join"
        return Rebalancer(
            inputs,
            self.around.objects(CLUSTER_BUCKET),
            cluster.changes.perform,
            self.around.clock,
            join_settle_s=settings.placement_settle_s if joins else None,
        )

    def desk(self, rebalancer: Rebalancer) -> TopicDesk:
        found, changes, cluster = self.found, Changes(), self.cluster.desk()

        def explain(container: int) -> Sequence[str]:
            return cluster.explain(ExplainContainer(container=container)).reasons

        for store in (found.topics.store, found.partitions.store):
            store.on_change(changes.announce)
        return TopicDesk(
            spus=self._shelf(found.spus),
            groups=self._shelf(found.groups),
            topics=self._shelf(found.topics),
            partitions=self._shelf(found.partitions),
            consumers=self.around.objects(CONSUMERS_BUCKET),
            live=self.live,
            placements=lambda: self.cluster.placements.placements,
            stream=self.mirror.readable_stream,
            refused=lambda: self.cluster.members.refused,
            explain=explain,
            rebalances=rebalancer,
            changes=changes,
            clock=self.around.clock,
            ids=self.around.ids,
        )

    def _shelf(self, dispatcher: Dispatcher[Any, Any]) -> Shelf[Any, Any]:
        kind = dispatcher.kind
        return Shelf(kind, dispatcher.store, self.around.objects(kind.bucket))

    def reconcilers(
        self, steps: Mapping[str, Step], rebalancer: Rebalancer
    ) -> Mapping[str, Reconciler]:
        """The loops of the controllers, each woken by its inputs."""
        found, cluster = self.found, self.cluster
        built = {
            name: Reconciler(
                f"controller of {name}",
                step,
                cluster.leadership,
                self.around.clock,
                reconcile_s=self.around.settings.reconcile_s,
                containment=self.around.containment,
            )
            for name, step in steps.items()
        }
        inputs: Mapping[str, tuple[Any, ...]] = {
            "SPUs": (found.spus.store, cluster.members),
            "SPU groups": (
                found.groups.store, found.spus.store, cluster.drains, cluster.placements,
            ),
            "topics": (
                found.topics.store, found.spus.store, found.partitions.store,
                cluster.topic_containers, cluster.drains, cluster.members, self.doomed,
            ),
            "partitions": (
                found.partitions.store, found.topics.store, found.spus.store, cluster.placements,
            ),
            "doomed streams": (self.doomed,),
            "rebalancing": (found.spus.store, rebalancer),
        }  # fmt: skip
        for name, sources in inputs.items():
            for source in sources:
                source.on_change(built[name].wake)
        cluster.placements.on_change(
            lambda: built["rebalancing"].wake() if rebalancer.active else None
        )
        self.live.on_storage_change(lambda _store: built["partitions"].wake())
        return built
