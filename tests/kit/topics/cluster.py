"""All parts of a simulated cluster with topics: controllers, stores, object store, weather."""

import asyncio
from collections import Counter

from anabranch.common.contracts.cluster import DRAINS_KEY, StoredDrains
from anabranch.common.contracts.subjects import CLUSTER_BUCKET
from anabranch.common.model.objects import SpuType
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.cluster.objects.assignment.strategies import STRATEGIES
from anabranch.controller.domain.cluster.objects.topic_containers import nodes_by_container
from kit.rng import Random
from kit.topic_world import BUCKETS, TopicWorld
from kit.topics.lives import StormyLife
from kit.topics.platform import EPOCH_STEP, Stores
from kit.topics.referee import Referee
from kit.topics.weather import Weather

STEP_S = 0.25
REPORT_S = 1.0


class Cluster(TopicWorld):
    """What all controllers share. `controllers`: the present life of each, by number."""

    def __init__(self, rng: Random, seed: int) -> None:
        super().__init__()
        self.rng = rng
        self.ids = SeededIds(seed)
        self.weather = Weather(rng)
        self.stores = Stores(self.clock, rng)
        self.streams = self.stores.streams
        self.referee = Referee(self.clock.now_ms, BUCKETS, self.streams)
        self.buckets = dict(self.referee.buckets)
        self.strategy = rng.choice(sorted(STRATEGIES))
        self.controllers: dict[int, StormyLife] = {}
        self.counts: Counter[str] = Counter()

    def place(self, wanted: object) -> None:
        """Containers are placed by the stored table; see `serve`."""

    # --- the controllers -----------------------------------------------------------------------

    async def serve_controller(self, number: int) -> None:
        """Let the controller live, and another one in its place after its death."""
        while True:
            life = StormyLife(self, number, self.strategy)
            async with life.run():
                self.controllers[number] = life
                await life.mortality.over.wait()
                del self.controllers[number]
            self.counts["deaths of controllers"] += 1
            await asyncio.sleep(self.rng.random() * 3.0)

    def kill(self, number: int) -> None:
        """Have the controller die at one of its next writes, or now."""
        if (life := self.controllers.get(number)) is None:
            return
        writes = self.rng.randint(0, 8)
        if writes:
            life.mortality.end_after(writes - 1)
        else:
            life.mortality.over.set()

    def alone(self, number: int) -> None:
        """Only this controller leads."""
        for one in self.controllers.values():
            one.set_leading(leading=one.number == number)

    # --- the rest ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Let time pass in the stores, and check promises as it does."""
        while True:
            await asyncio.sleep(STEP_S)
            self._follow()
            self.stores.advance()
            for life in self.controllers.values():
                self._judge_numbers(life)
                for defect in life.containment.all():
                    self.referee.require(False, f"a defect of {defect.subject}: {defect.error}")
            assert not self.referee.broken, self.referee.broken[0]

    def _follow(self) -> None:
        """The stores learn the stored objects, and the provisioner starts and stops stores."""
        stores, spus = self.stores, self.referee.spus()
        stores.table = nodes_by_container(self.referee.table())
        stores.registered = set(spus)
        for found in self.referee.buckets[CLUSTER_BUCKET].present():
            if found.key == DRAINS_KEY:
                stores.drained = frozenset(StoredDrains.parsed(found.value).nodes)
        for name, spu in spus.items():
            if spu.spec.type is SpuType.MANAGED:
                stores.live.setdefault(name, True)
        for name in stores.live.keys() - spus.keys():
            stores.set_live(name, live=False)
            del stores.live[name]

    async def report(self) -> None:
        """Stores report the numbers of their partitions, also those that have lost them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REPORT_S)
            stormy = self.weather.lost > 0
            for name in sorted(self.stores.live):
                draw = self.rng.random() if stormy else 1.0
                zombie, impostor = draw < 0.2, 0.2 <= draw < 0.25
                self.counts["reports of former leaders"] += zombie
                self.counts["reports of impostors"] += impostor
                report = self.stores.report_of(name, zombie=zombie, impostor=impostor)
                for life in self.controllers.values():
                    delay_s = self.rng.random() * self.weather.lag_s_max
                    loop.call_later(delay_s, life.live.learn, report)

    def _judge_numbers(self, life: StormyLife) -> None:
        for container, placed in life.placements().items():
            for segment in self.stores.segments_in(container):
                found = life.live.of(container, segment)
                if found is None:
                    continue
                self.referee.require(
                    found.leo // EPOCH_STEP == placed.container_epoch,
                    f"numbers of {segment} are from an older container epoch",
                )
                self.referee.require(
                    found.size_bytes == self.stores.mark_of(placed.owner),
                    f"numbers of {segment} are not from the owner of its container",
                )
