"""A controller of objects in bad weather: its buckets are faulty, its mirrors lag, and it dies."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.common.contracts.objects import SPU_GROUPS_BUCKET, SPUS_BUCKET
from anabranch.common.contracts.subjects import CLUSTER_BUCKET
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.topics.group_controller import GroupController
from anabranch.controller.cluster.topics.holding import holders
from anabranch.controller.cluster.topics.reconciler import Step
from kit.topic_world import Budget, ControllerLife, Mortal
from kit.topics.platform import Mirror
from kit.topics.weather import FaultyBucket

if TYPE_CHECKING:
    from kit.topics.cluster import Cluster


class Mortality(Budget):
    """A budget that says when it is used up."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    def take(self) -> bool:
        """See `Budget.take`."""
        if super().take():
            return True
        self.over.set()
        return False

    def end_after(self, writes: int) -> None:
        """Let the controller die at one of its next writes."""
        self.left = self.spent + writes


class StormyLife(ControllerLife):
    """One controller, from its start to its death. `number`: its place among the controllers."""

    world: "Cluster"

    def __init__(self, world: "Cluster", number: int, strategy: str) -> None:
        self.number = number
        self.mirror = Mirror(world.stores.seen())
        self.mortality = Mortality()
        self._drains = Drains(self._faulty(world, CLUSTER_BUCKET), world.clock)
        super().__init__(world, self.mortality, strategy)
        self.lead.leading = False
        self._drains.on_change(self.wake)

    def _faulty(self, world: "Cluster", name: str) -> ObjectStore:
        inner = FaultyBucket(world.buckets[name], world.weather, self.number)
        return Mortal(inner, self.mortality)

    def _bucket(self, name: str) -> ObjectStore:
        return self._faulty(self.world, name)

    def _desk_bucket(self, name: str) -> ObjectStore:
        return self.buckets[name]

    def _streams(self) -> Mirror:
        return self.mirror

    def placements(self) -> Mapping[int, Placement]:
        return self.mirror.seen.placements

    def members(self) -> Mapping[str, bool]:
        return self.mirror.seen.live

    def drained(self) -> Collection[str]:
        return self._drains.nodes

    def _more_steps(self) -> Mapping[str, Step]:
        groups = GroupController(
            self.store(SPU_GROUPS_BUCKET),
            self.spus,
            self._drains,
            self.performer(SPU_GROUPS_BUCKET, SPUS_BUCKET),
            holding=lambda name: name in holders(self.placements()),
            holding_known=lambda: True,
        )
        self.store(SPU_GROUPS_BUCKET).on_change(self.wake)
        return {"groups": groups.step}

    def _more_parts(self) -> Sequence[Callable[[], Coroutine[None, None, None]]]:
        return (self._drains.serve, self._look)

    def set_leading(self, *, leading: bool) -> None:
        """Begin or cease to believe that this controller leads."""
        if self.lead.leading != leading:
            self.lead.leading = leading
            for listener in self.lead.listeners:
                listener()

    async def _look(self) -> None:
        """Follow the placements, the members and the streams, with a lag."""
        weather = self.world.weather
        while True:
            seen = self.world.stores.seen()
            await asyncio.sleep(0.05 + weather.rng.random() * weather.lag_s_max)
            if self.number in weather.cut:
                continue
            before = self.mirror.seen
            touched = self.mirror.take(seen)
            for topic, incarnation in touched:
                self.folded(topic, incarnation)
            if touched or before != seen:
                self.wake()
