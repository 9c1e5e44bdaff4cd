"""A shard that ends before what was read stops the service."""

import pytest

from anabranch.common.contracts.subjects import HEADS_KEY
from anabranch.common.errors import StreamRewound, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.heads import HeadWatch


class World:
    """Shards of which only the heads matter."""

    def __init__(self) -> None:
        self.objects = InMemoryObjectStore()
        self.heads = [0] * SHARD_COUNT
        self.reached = [0] * SHARD_COUNT
        self.watch = self.another()

    def another(self) -> HeadWatch:
        async def last_sequence(shard: int) -> int:
            return self.heads[shard]

        return HeadWatch(self.objects, last_sequence, lambda: self.reached, SystemClock())


async def test_a_new_cluster_has_nothing_to_compare() -> None:
    await World().watch.check()


async def test_what_was_read_is_found_missing_by_the_next_controller() -> None:
    world = World()
    world.heads[3] = world.reached[3] = 9
    await world.watch.record()
    await world.another().check()
    world.heads[3] = 8

    with pytest.raises(StreamRewound) as refusal:
        await world.another().check()

    assert refusal.value.fields == {"shard": 3, "read": 9, "newest": 8}
    assert "ANABRANCH_CONTROLLER_ACCEPT_REWOUND=true" in refusal.value.remedy


async def test_a_loss_that_is_accepted_once_is_no_news_afterwards() -> None:
    world = World()
    world.heads[3] = world.reached[3] = 9
    await world.watch.record()
    world.heads[3] = 8

    await world.another().check(accept=True)

    await world.another().check()
    world.heads[3] = 7
    with pytest.raises(StreamRewound):
        await world.another().check()


async def test_the_record_of_a_peer_that_is_ahead_never_falls() -> None:
    world = World()
    world.heads = [20] * SHARD_COUNT
    world.reached = [9] * SHARD_COUNT
    await world.watch.record()
    world.reached = [4] * SHARD_COUNT
    world.reached[2] = 11
    await world.another().record()
    world.heads[5] = 8

    with pytest.raises(StreamRewound):
        await world.watch.check()


async def test_nothing_new_is_not_written() -> None:
    world = World()
    world.reached[0] = 1
    await world.watch.record()
    before = await world.objects.get(HEADS_KEY)
    await world.watch.record()

    assert await world.objects.get(HEADS_KEY) == before


async def test_an_event_store_that_is_away_is_asked_again_and_a_rewound_one_ends_the_watch() -> (
    None
):
    class Impatient(SystemClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(0)

    world, answers = World(), iter([9, 9, 3])
    world.reached[0] = 9

    async def last_sequence(shard: int) -> int:
        if shard:
            return 0
        found = next(answers)
        if found == 3 and (await world.objects.get(HEADS_KEY)) is None:
            raise Unavailable("away")
        return found

    watch = HeadWatch(world.objects, last_sequence, lambda: world.reached, Impatient())

    with pytest.raises(StreamRewound):
        await watch.serve()
