"""Controllers of objects on buckets in memory: SPUs come and go, controllers die and others go on.

The balancer and the stores are not simulated: a container that the table names is placed on its
stores, and it is open while its first store is live. A controller dies by its `Budget`: after so
many writes nothing that it does takes effect any more.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from anabranch.common.contracts.objects import (
    CONSUMERS_BUCKET,
    DOOMED_BUCKET,
    KINDS,
    PARTITION,
    PARTITIONS_BUCKET,
    SPU,
    SPUS_BUCKET,
    TOPIC,
    TOPICS_BUCKET,
)
from anabranch.common.contracts.subjects import CLUSTER_BUCKET
from anabranch.common.contracts.topics import CreateTopic, DeleteTopic, RebalancePlan, TopicCreated
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import ObjectStore, ObjectWrite, StoredObject
from anabranch.common.model.cluster import LogCopy, Placement, PlacementState
from anabranch.common.model.objects import (
    Computed,
    Partition,
    Spu,
    SpuSpec,
    SpuStatus,
    Topic,
    TopicSpec,
)
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects.dispatcher import Dispatcher
from anabranch.controller.cluster.topic_containers import TopicContainerTable
from anabranch.controller.cluster.topics.backing import Backing, Streams
from anabranch.controller.cluster.topics.doomed import DoomedStreams
from anabranch.controller.cluster.topics.doomed_controller import DoomedController, DoomedInputs
from anabranch.controller.cluster.topics.live_numbers import LiveNumbers
from anabranch.controller.cluster.topics.partition_controller import (
    PartitionController,
    PartitionInputs,
)
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.cluster.topics.reconciler import Reconciler, Step
from anabranch.controller.cluster.topics.shelf import Shelf
from anabranch.controller.cluster.topics.spu_controller import SpuController
from anabranch.controller.cluster.topics.topic_controller import TopicController, TopicInputs
from anabranch.controller.handlers.desk.topics import Changes, TopicDesk
from anabranch.controller.handlers.topics.topic_actions import create_topic, delete_topic
from kit.backing_streams import BackingStreams
from kit.virtual_time import VirtualClock

BUCKETS = (
    *(kind.bucket for kind in KINDS), DOOMED_BUCKET, CONSUMERS_BUCKET, CLUSTER_BUCKET,
)  # fmt: skip
DEADLINE_S = 300.0
LOOK_S = 0.05


@dataclass
class Budget:
    """The writes that a controller may still do; None: as many as it likes. `spent` counts them."""

    left: int | None = None
    spent: int = 0

    def take(self) -> bool:
        """Whether one more write takes effect."""
        if self.left is not None and self.spent >= self.left:
            return False
        self.spent += 1
        return True


async def _never() -> None:
    await asyncio.Event().wait()


class Mortal:
    """An `ObjectStore` of a controller that dies when its budget is used up."""

    def __init__(self, inner: ObjectStore, budget: Budget) -> None:
        self._inner = inner
        self._budget = budget

    async def get(self, key: str) -> StoredObject | None:
        return await self._inner.get(key)

    async def list(self) -> Sequence[StoredObject]:
        return await self._inner.list()

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        async for found in self._inner.watch():
            yield found

    async def create(self, key: str, value: bytes) -> int:
        await self._spend()
        return await self._inner.create(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        await self._spend()
        return await self._inner.update(key, value, revision)

    async def delete(self, key: str, revision: int) -> None:
        await self._spend()
        await self._inner.delete(key, revision)

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        done: list[int | None] = []
        for write in writes:
            await self._spend()
            done += await self._inner.write_all([write])
        return done

    async def _spend(self) -> None:
        if not self._budget.take():
            await _never()


class Commands:
    """A `CommandSender` of a controller that dies when its budget is used up."""

    def __init__(self, streams: BackingStreams, budget: Budget) -> None:
        self._streams = streams
        self._budget = budget

    async def post(self, command: object) -> None:
        if not self._budget.take():
            await _never()
        await self._streams.post(command)  # type: ignore[arg-type]


@dataclass
class Leads:
    """`Lead`: whether a controller leads."""

    leading: bool = True
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def on_change(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)


class SeenStreams(Streams, Protocol):
    """The backing streams as a controller knows them."""

    def names(self) -> Iterable[str]: ...


class NoRebalances:
    async def perform(self, *, dry_run: bool) -> RebalancePlan:
        return RebalancePlan(moves=())


class ControllerLife:
    """One controller's parts, as wiring connects them. `run` serves them until it is left."""

    def __init__(self, world: "TopicWorld", budget: Budget, strategy: str) -> None:
        self.world, self.budget, self.clock = world, budget, world.clock
        self.containment = Containment(self.clock, system_rng())
        self.buckets = {name: self._bucket(name) for name in world.buckets}
        self.streams = self._streams()
        self.dispatchers = {
            kind.bucket: Dispatcher(
                kind, self.buckets[kind.bucket], self.clock, containment=self.containment
            )
            for kind in KINDS
        }
        self.spus, self.topics = self.store(SPUS_BUCKET), self.store(TOPICS_BUCKET)
        self.partitions = self.store(PARTITIONS_BUCKET)
        self.table = TopicContainerTable(self.buckets[CLUSTER_BUCKET], self.clock)
        self.doomed = DoomedStreams(self.buckets[DOOMED_BUCKET], self.clock)
        self.lead = Leads()
        self.live = LiveNumbers(self.placements, self.clock)
        self.backing = Backing(Commands(world.streams, budget), self.streams, self.clock)
        self.topic_controller = self._topic_controller(strategy)
        self.partition_controller = self._partition_controller()
        self.reconcilers = self._reconcilers()
        self.desk = self._desk()

    # --- what this controller sees -------------------------------------------------------------

    def _bucket(self, name: str) -> ObjectStore:
        return Mortal(self.world.buckets[name], self.budget)

    def _streams(self) -> SeenStreams:
        return self.world.streams

    def placements(self) -> Mapping[int, Placement]:
        """The placements as this controller knows them."""
        return self.world.placements

    def members(self) -> Mapping[str, bool]:
        """Whether each store is live, as this controller knows it."""
        return dict(self.world.live)

    def drained(self) -> Collection[str]:
        """The drained stores, as this controller knows them."""
        return frozenset()

    # --- its parts -----------------------------------------------------------------------------

    def store(self, bucket: str):  # type: ignore[no-untyped-def]
        return self.dispatchers[bucket].store

    def performer(self, *buckets: str) -> Performer:
        return Performer([self.dispatchers[bucket] for bucket in buckets])

    def _topic_controller(self, strategy: str) -> TopicController:
        inputs = TopicInputs(
            spus=self.spus,
            topics=self.topics,
            partitions=self.partitions,
            table=self.table,
            doomed=self.doomed,
            ready=lambda: True,
            placements=self.placements,
            log_homes=dict,
            drained=self.drained,
            out_of_storage=self.live.out_of_storage,
            strategy=strategy,
            counts_all=strategy == "least-loaded",
        )
        performer = self.performer(TOPICS_BUCKET, PARTITIONS_BUCKET)
        return TopicController(inputs, self.backing, performer, self.containment)

    def _partition_controller(self) -> PartitionController:
        inputs = PartitionInputs(
            spus=self.spus,
            topics=self.topics,
            partitions=self.partitions,
            topic_store=self.buckets[TOPICS_BUCKET],
            ready=lambda: True,
            placements=self.placements,
            out_of_storage=self.live.out_of_storage,
        )
        performer = self.performer(PARTITIONS_BUCKET)
        return PartitionController(inputs, self.backing, performer, self.containment)

    def _reconcilers(self) -> dict[str, Reconciler]:
        doomed = DoomedController(
            DoomedInputs(
                doomed=self.doomed,
                topics=self.topics,
                topic_store=self.buckets[TOPICS_BUCKET],
                consumers=self.buckets[CONSUMERS_BUCKET],
                backing_streams=self.streams.names,
                ready=lambda: True,
            ),
            self.backing,
            self.clock,
        )
        spus = SpuController(self.spus, self.members, self.performer(SPUS_BUCKET))
        steps: dict[str, Step] = {
            "spus": spus.step,
            "topics": self.topic_controller.step,
            "partitions": self.partition_controller.step,
            "doomed": doomed.step,
            **self._more_steps(),
        }
        found = {
            name: Reconciler(
                name, step, self.lead, self.clock,
                reconcile_s=60.0, containment=self.containment,
            )
            for name, step in steps.items()
        }  # fmt: skip
        for source in (self.spus, self.topics, self.partitions, self.table, self.doomed):
            for reconciler in found.values():
                source.on_change(reconciler.wake)
        return found

    def _more_steps(self) -> Mapping[str, Step]:
        """The steps of further controllers, by name."""
        return {}

    def _desk(self) -> TopicDesk:
        changes = Changes()
        for store in (self.topics, self.partitions):
            store.on_change(changes.announce)
        shelves = [
            Shelf(kind, self.store(kind.bucket), self._desk_bucket(kind.bucket)) for kind in KINDS
        ]
        spus, groups, topics, partitions = shelves
        return TopicDesk(
            spus=spus,
            groups=groups,
            topics=topics,
            partitions=partitions,
            consumers=self.world.buckets[CONSUMERS_BUCKET],
            live=self.live,
            placements=self.placements,
            stream=self.streams.readable_stream,
            refused=dict,
            explain=lambda _container: (),
            rebalances=NoRebalances(),
            changes=changes,
            clock=self.clock,
            ids=self.world.ids,
        )

    def _desk_bucket(self, name: str) -> ObjectStore:
        """The bucket as queries and actions use it."""
        return self.world.buckets[name]

    def _more_parts(self) -> Sequence[Callable[[], Coroutine[None, None, None]]]:
        """What else is served as long as the controller lives."""
        return ()

    def wake(self, *_given: object) -> None:
        """The stores or the placements have changed."""
        for reconciler in self.reconcilers.values():
            reconciler.wake()

    def folded(self, topic: str, incarnation: str) -> None:
        """A message about a backing stream, or about the scope, was folded."""
        if topic:
            self.topic_controller.touched.touch(topic, incarnation)
            self.partition_controller.touched.touch(topic, incarnation)
        self.wake()

    @asynccontextmanager
    async def run(self) -> AsyncIterator["ControllerLife"]:
        """Serve until the block is left; then the controller is dead."""
        self.table.on_change(lambda: self.world.place(self.table.wanted))
        self.world.lives.append(self)
        self.world.streams.folded.append(self.folded)
        parts = [one.serve for one in self.dispatchers.values()]
        parts += [self.doomed.serve, self.table.serve, *self._more_parts()]
        parts += [one.serve for one in self.reconcilers.values()]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(serve()) for serve in parts]
            try:
                yield self
            finally:
                self.world.lives.remove(self)
                self.world.streams.folded.remove(self.folded)
                for task in tasks:
                    task.cancel()


class TopicWorld:
    """What all controllers share. `live`: whether each store is live, by node id."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.ids = SeededIds(7)
        self.buckets = {name: InMemoryObjectStore(self.clock.now_ms) for name in BUCKETS}
        self.streams = BackingStreams()
        self.placements: dict[int, Placement] = {}
        self.live: dict[str, bool] = {}
        self.lives: list[ControllerLife] = []

    def controller(
        self, writes: int | None = None, strategy: str = "round-robin-gap"
    ) -> ControllerLife:
        """A controller that dies after so many writes; None: it lives."""
        return ControllerLife(self, Budget(writes), strategy)

    async def add_spu(self, spu_id: int, rack: str = "") -> None:
        """Register the SPU `spu-<id>`, whose store is live."""
        spu = Spu(f"spu-{spu_id}", SpuSpec(spu_id, rack=rack), SpuStatus())
        await self.buckets[SPUS_BUCKET].create(spu.key, SPU.to_bytes(spu))
        self.set_live(spu.key, live=True)

    def set_live(self, name: str, *, live: bool) -> None:
        """The store comes or dies; containers of which it is the first store open or close."""
        self.live[name] = live
        for number, placed in list(self.placements.items()):
            self.placements[number] = self._placed(number, placed.replicas, placed)
        self._wake()

    def place(self, wanted: dict[int, tuple[str, ...]] | object) -> None:
        """Place the containers of the table that are not placed yet."""
        assert isinstance(wanted, dict)
        for number, nodes in wanted.items():
            if number not in self.placements:
                self.placements[number] = self._placed(number, nodes, None)
        self._wake()

    def _placed(self, number: int, nodes: tuple[str, ...], before: Placement | None) -> Placement:
        found = before or Placement(number, nodes, isr_min=1)
        leads = self.live.get(nodes[0], False)
        isr = tuple(LogCopy(node, "copy") for node in nodes if self.live.get(node))
        if leads and found.state is not PlacementState.OPEN:
            epoch = found.container_epoch + 1
            return replace(
                found, state=PlacementState.OPEN, container_epoch=epoch, log_id="log", isr=isr
            )
        return replace(found, isr=isr) if leads else found

    def elect(self, container: int, node: str) -> None:
        """Another replica leads the container."""
        found = self.placements[container]
        others = tuple(name for name in found.replicas if name != node)
        self.placements[container] = replace(
            found, replicas=(node, *others), container_epoch=found.container_epoch + 1
        )
        self._wake()

    def _wake(self) -> None:
        for life in self.lives:
            life.wake()

    # --- what is stored ------------------------------------------------------------------------

    async def topic(self, name: str) -> Topic | None:
        found = await self.buckets[TOPICS_BUCKET].get(name)
        return None if found is None else TOPIC.from_stored(found)

    async def partitions(self, topic: str = "") -> list[Partition]:
        stored = await self.buckets[PARTITIONS_BUCKET].list()
        found = [PARTITION.from_stored(one) for one in stored]
        return [one for one in found if not topic or one.owner == topic]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `await condition()` is true; virtual time passes."""
        async with asyncio.timeout(DEADLINE_S):
            while not await condition():  # type: ignore[misc]
                await self.clock.sleep(LOOK_S)


async def create(
    life: ControllerLife, name: str, partitions: int = 1, factor: int = 1, wait_s: float = 0.0
) -> TopicCreated:
    """Create a topic through the desk of this controller."""
    spec = TopicSpec(Computed(partitions, factor))
    made = await create_topic(life.desk, CreateTopic(topic=name, spec=spec, wait_s=wait_s))
    assert isinstance(made, TopicCreated)
    return made


async def delete(life: ControllerLife, name: str) -> None:
    """Delete a topic through the desk of this controller."""
    await delete_topic(life.desk, DeleteTopic(topic=name))
