"""Users of topics and operators of SPUs. They repeat a request until its outcome is clear."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anabranch.common.contracts import spus as s
from anabranch.common.contracts import topics as t
from anabranch.common.contracts.objects import CONSUMERS_BUCKET
from anabranch.common.errors import (
    Conflict,
    Retry,
    SpuExists,
    SpuGroupNotFound,
    SpuNotFound,
    TopicExists,
    TopicNotFound,
    Unknown,
)
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Computed,
    SpuGroupSpec,
    SpuSpec,
    TopicSpec,
)
from anabranch.common.model.topics import INCARNATION_LENGTH
from anabranch.controller.domain.cluster.objects.topic_checks import grown
from anabranch.controller.handlers.topics import spu_actions, topic_actions
from anabranch.controller.handlers.topics.topic_actions import (
    add_partitions,
    create_topic,
    delete_topic,
    update_topic,
)
from kit.topics.cluster import Cluster
from kit.topics.lives import StormyLife

ANSWER_S_MAX = 15.0
CUSTOM_IDS = range(1, 6)
GROUPS = {"main": 10, "other": 12}
"""Groups and their first ids; if `main` has three SPUs, their ids meet."""


class Caller:
    """Asks some controller, and again if the answer is not clear."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rng = cluster.rng

    async def ask(self, action: Callable[[StormyLife], Awaitable[object]]) -> None:
        """Perform the action. Raises the errors that more patience does not help against."""
        while True:
            lives = list(self.cluster.controllers.values())
            if lives:
                try:
                    async with asyncio.timeout(ANSWER_S_MAX):
                        await action(self.rng.choice(lives))
                except (Retry, Unknown, TimeoutError):
                    self.cluster.counts["repeated requests"] += 1
                else:
                    return
            await asyncio.sleep(0.2 + self.rng.random())


@dataclass
class Wanted:
    """The topic of a name as its user wants it."""

    incarnation: str
    spec: TopicSpec


class TopicUser(Caller):
    """One user has one name of a topic. `wanted`: None if there must be no topic."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster)
        self.name = name
        self.wanted: Wanted | None = None
        self.stopping = False

    async def run(self) -> None:
        """Create, change, delete and create again, until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.rng.random() * 4.0)
            if self.wanted is None:
                await self._create()
                continue
            draw = self.rng.random()
            if draw < 0.35:
                await self._delete()
            elif draw < 0.6:
                await self._grow()
            elif draw < 0.75:
                await self._update()
            else:
                await self._name_a_consumer()

    async def _create(self) -> None:
        incarnation = self.cluster.ids.new_id()[:INCARNATION_LENGTH]
        spec = TopicSpec(self._replicas())
        query = t.CreateTopic(topic=self.name, spec=spec, incarnation=incarnation)
        while True:
            try:
                await self.ask(lambda life: create_topic(life.desk, query))
            except TopicExists:
                await asyncio.sleep(1.0)  # the deletion of the topic before it takes its time
                continue
            break
        self.wanted = Wanted(incarnation, spec)
        self.cluster.counts["topics created"] += 1

    def _replicas(self) -> Computed | Assigned:
        rng = self.rng
        if rng.random() < 0.2:
            factor = rng.randint(1, 2)
            rows = [rng.sample(CUSTOM_IDS, factor) for _ in range(rng.randint(1, 3))]
            return Assigned(tuple(AssignedPartition(at, tuple(row)) for at, row in enumerate(rows)))
        return Computed(rng.randint(1, 4), rng.choice((1, 1, 2, 2, 3)), rng.random() < 0.5)

    async def _delete(self) -> None:
        query = t.DeleteTopic(topic=self.name)
        try:
            await self.ask(lambda life: delete_topic(life.desk, query))
        except TopicNotFound:
            self.cluster.counts["topics found deleted"] += 1
        self.wanted = None
        self.cluster.counts["topics deleted"] += 1

    async def _grow(self) -> None:
        assert self.wanted is not None
        spec = self.wanted.spec
        if not isinstance(spec.replicas, Computed) or spec.replicas.partitions > 8:
            return
        count = self.rng.randint(1, 3)
        query = t.AddPartitions(
            topic=self.name, count=count, expected=spec.replicas.partitions, wait_s=0.0
        )
        after = grown(self.name, spec, count)
        await self.ask(lambda life: add_partitions(life.desk, query))
        self.wanted.spec = after
        self.cluster.counts["topics grown"] += 1

    async def _update(self) -> None:
        assert self.wanted is not None
        query = t.UpdateTopic(topic=self.name, retention_s=self.rng.randint(3600, 7200))
        await self.ask(lambda life: update_topic(life.desk, query))
        self.wanted.spec = topic_actions._updated(self.wanted.spec, query)

    async def _name_a_consumer(self) -> None:
        assert self.wanted is not None
        bucket = self.cluster.referee.buckets[CONSUMERS_BUCKET]
        key = f"{self.wanted.incarnation}.c{self.rng.randint(1, 99)}"
        if await bucket.get(key) is None:
            await bucket.create(key, b"{}")


class Operator(Caller):
    """Registers and unregisters SPUs, scales groups, and lets stores come and go."""

    def __init__(self, cluster: Cluster, *, has_racks: bool) -> None:
        super().__init__(cluster)
        self._has_racks = has_racks
        self.stopping = False

    async def register(self, spu_id: int) -> None:
        """Register the custom SPU, and start its store."""
        rack = f"r{spu_id % 2}" if self._has_racks else ""
        spec = SpuSpec(spu_id, rack=rack)
        query = s.RegisterSpu(name=f"spu-{spu_id}", spec=spec)
        try:
            await self.ask(lambda life: spu_actions.register_spu(life.desk, query))
        except SpuExists:
            return
        self.cluster.stores.set_live(f"spu-{spu_id}", live=True)

    async def run(self) -> None:
        """Change something every few seconds, until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(0.5 + self.rng.random() * 4.0)
            draw = self.rng.random()
            if draw < 0.4:
                self._flap()
            elif draw < 0.5:
                self._elect()
            elif draw < 0.65:
                await self._unregister()
            elif draw < 0.8:
                await self.register(self.rng.choice(CUSTOM_IDS))
            else:
                await self._change_group()

    def _flap(self) -> None:
        stores = self.cluster.stores
        if stores.live:
            name = self.rng.choice(sorted(stores.live))
            stores.set_live(name, live=not stores.live[name])
            self.cluster.counts["stores that came or went"] += 1

    def _elect(self) -> None:
        if self.cluster.stores.placements:
            container = self.rng.choice(sorted(self.cluster.stores.placements))
            self.cluster.stores.move(container)

    async def _unregister(self) -> None:
        name = f"spu-{self.rng.choice(CUSTOM_IDS)}"
        query = s.UnregisterSpu(name=name, force=self.rng.random() < 0.5)
        try:
            await self.ask(lambda life: spu_actions.unregister_spu(life.desk, query))
        except (SpuNotFound, Conflict):
            return
        self.cluster.counts["SPUs unregistered"] += 1

    async def _change_group(self) -> None:
        name, draw = self.rng.choice(sorted(GROUPS)), self.rng.random()
        rack = f"r{self.rng.randint(0, 1)}" if self._has_racks else ""
        spec = SpuGroupSpec(self.rng.randint(0, 3), GROUPS[name], rack)
        try:
            if draw < 0.4:
                await self.ask(
                    lambda life: spu_actions.create_spu_group(
                        life.desk, s.CreateSpuGroup(name=name, spec=spec)
                    )
                )
            elif draw < 0.8:
                await self.ask(
                    lambda life: spu_actions.scale_spu_group(
                        life.desk, s.ScaleSpuGroup(name=name, replicas=spec.replicas)
                    )
                )
            else:
                await self.ask(
                    lambda life: spu_actions.delete_spu_group(
                        life.desk, s.DeleteSpuGroup(name=name)
                    )
                )
        except (Conflict, SpuGroupNotFound):
            return
        self.cluster.counts["changes of SPU groups"] += 1
