"""Controllers of topics in bad weather, while users and operators change everything.

    register SPUs ─► users, operators, deaths, weather ─► all of it stops ─► settled in bounded time
                                                       ─► topics made at once are assigned in turn

Two or three controllers work on one object store. Several of them may believe that they lead. Each
seed draws how bad the weather is, how many controllers and users there are, and the strategy of the
assignment. `kit.topics.referee` judges every write, `kit.topics.converged` the end.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from itertools import pairwise

from anabranch.common.contracts import topics as t
from anabranch.common.model.objects import Computed, TopicSpec
from anabranch.controller.handlers.topics.topic_actions import create_topic
from kit.rng import Random, seeded
from kit.topics.cluster import Cluster
from kit.topics.converged import problems
from kit.topics.lives import StormyLife
from kit.topics.users import CUSTOM_IDS, Operator, TopicUser, Wanted
from kit.virtual_time import OrderedLoop, cancel_all

FAULTS_S = (25.0, 60.0)
SETTLE_S_MAX = 240.0
ANSWERS_S_MAX = 120.0
LOOK_S = 1.0
AT_ONCE_COUNT = 4


class Story:
    """One run."""

    def __init__(self, rng: Random, seed: int) -> None:
        self.rng = rng
        self.cluster = Cluster(rng, seed)
        self.users = [TopicUser(self.cluster, f"t{at}") for at in range(rng.randint(2, 4))]
        self.operator = Operator(self.cluster, has_racks=rng.random() < 0.4)
        self.count = rng.randint(2, 3)
        self._stormy = True

    async def run(self) -> None:
        """Live the whole story. Raises AssertionError."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in self._background()]
            try:
                await self._live(group)
            finally:
                for task in tasks:
                    task.cancel()

    def _background(self) -> Iterator[Coroutine[None, None, None]]:
        cluster = self.cluster
        yield from (cluster.serve(), cluster.report(), self._lead())
        for number in range(self.count):
            yield cluster.serve_controller(number)

    async def _live(self, group: asyncio.TaskGroup) -> None:
        await asyncio.sleep(1.0)
        for spu_id in CUSTOM_IDS[: self.rng.randint(2, 4)]:
            await self.operator.register(spu_id)
        await self._storm(group)
        await self._settle()
        await self._assign_at_once()
        await self._settle()

    # --- the faults ----------------------------------------------------------------------------

    async def _storm(self, group: asyncio.TaskGroup) -> None:
        """Let users and operators work in bad weather, then wait for their last answers."""
        parts = [*(user.run() for user in self.users), self.operator.run()]
        tasks = [group.create_task(part) for part in parts]
        trouble = [group.create_task(self._weather()), group.create_task(self._deaths())]
        await asyncio.sleep(self.rng.uniform(*FAULTS_S))
        self._stormy = False
        for task in trouble:
            task.cancel()
        self._calm()
        for user in self.users:
            user.stopping = True
        self.operator.stopping = True
        _, late = await asyncio.wait(tasks, timeout=ANSWERS_S_MAX)
        assert not late, "a user waits for an answer"
        self._calm()

    def _calm(self) -> None:
        stores = self.cluster.stores
        self.cluster.weather.calm()
        stores.streams.held = False
        stores.streams.slowest_s = 0.2
        for life in self.cluster.controllers.values():
            life.mortality.left = None
        for name in sorted(stores.live):
            stores.set_live(name, live=True)

    async def _weather(self) -> None:
        """The weather changes every few seconds."""
        weather, rng, streams = self.cluster.weather, self.rng, self.cluster.stores.streams
        while True:
            weather.calm()
            weather.refused = rng.choice((0.0, 0.0, 0.05))
            weather.lost = rng.choice((0.01, 0.1, 0.3))
            weather.late = rng.choice((0.0, 0.05, 0.15))
            weather.broken_watch = rng.choice((0.0, 0.02, 0.2))
            weather.listed_again = rng.choice((0.0, 0.02, 0.2))
            weather.lag_s_max = rng.choice((0.05, 0.5, 3.0))
            weather.call_s_max = rng.choice((0.02, 0.2))
            if rng.random() < 0.2:
                weather.cut.add(rng.randrange(self.count))
            streams.held = rng.random() < 0.2
            streams.slowest_s = rng.choice((0.2, 2.0))
            await asyncio.sleep(2.0 + rng.random() * 8.0)

    async def _deaths(self) -> None:
        while True:
            await asyncio.sleep(1.0 + self.rng.random() * 10.0)
            self.cluster.kill(self.rng.randrange(self.count))

    async def _lead(self) -> None:
        """Controllers take the lead from each other; the last leader may notice it late."""
        lives, rng = self.cluster.controllers, self.rng
        loop = asyncio.get_running_loop()
        leader = -1
        while True:
            if self._stormy and lives:
                leader = rng.choice(sorted(lives))
                lives[leader].set_leading(leading=True)
                for other in [one for one in lives.values() if one.number != leader]:
                    if other.lead.leading:
                        self.cluster.counts["leaders that lead on"] += 1
                    loop.call_later(rng.random() * 6.0, _cease, other)
                await asyncio.sleep(2.0 + rng.random() * 8.0)
            else:
                leader = leader if leader in lives else min(lives, default=-1)
                self.cluster.alone(leader)
                await asyncio.sleep(LOOK_S)

    # --- the end -------------------------------------------------------------------------------

    def _leader(self) -> StormyLife | None:
        leading = [one for one in self.cluster.controllers.values() if one.lead.leading]
        return leading[0] if len(leading) == 1 else None

    async def _settle(self) -> None:
        """Require that everything is as it must be, in bounded time."""
        found = ["there is not one leader"]
        begun_s = self.cluster.clock.monotonic()
        while self.cluster.clock.monotonic() - begun_s < SETTLE_S_MAX:
            await asyncio.sleep(LOOK_S)
            leader = self._leader()
            if leader is not None:
                found = problems(self.cluster, self.users, leader)
                if not found:
                    return
        raise AssertionError(f"not settled: {'; '.join(found[:5])}")

    async def _assign_at_once(self) -> None:
        """Topics that one plan assigns count the replicas of each other."""
        for spu_id in CUSTOM_IDS[:3]:
            await self.operator.register(spu_id)
        leader = self._leader()
        assert leader is not None
        new = [TopicUser(self.cluster, f"once-{at}") for at in range(AT_ONCE_COUNT)]
        for user in new:
            incarnation = self.cluster.ids.new_id()[:12]
            spec = TopicSpec(Computed(self.rng.randint(1, 3), 1))
            query = t.CreateTopic(topic=user.name, spec=spec, incarnation=incarnation)
            await create_topic(leader.desk, query)
            user.wanted = Wanted(incarnation, spec)
        self.users += new
        await self._settle()
        topics = self.cluster.referee.topics()
        starts = sorted(
            (status.start, len(status.replica_map))
            for user in new
            if (status := topics[user.name].status).replica_map
        )
        for (start, count), (following, _) in pairwise(starts):
            assert start + count <= following, f"topics do not see one another: {starts}"


def _cease(life: StormyLife) -> None:
    life.set_leading(leading=False)


def _first(error: BaseException) -> BaseException:
    """The first error in nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def random_topics(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    loop, counts = OrderedLoop(), Counter[str]()

    async def live() -> None:
        story = Story(seeded(seed), seed)
        await story.run()
        counts.update(story.cluster.counts + story.cluster.weather.counts)

    try:
        loop.run_until_complete(live())
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        cancel_all(loop)
        loop.close()
    return counts
