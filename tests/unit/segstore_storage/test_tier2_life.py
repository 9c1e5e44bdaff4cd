"""Snapshots and collection of one owner, over memory and a clock that is moved by hand."""

from collections.abc import Callable, Sequence

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Deposed, DiskFailed, OutcomeUnknown, SyncFailed
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import manifest_name, manifest_number
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from kit.container_driver import ManualTime
from kit.planted_tier2 import no_grace
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, collect_all, go_on, run
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container

GRACE_S = 100.0
LIMITS = TierTwoLimits(
    snapshots=SnapshotLimits(manifests_max=3, page_target=400, page_max=900), gc_grace_s=GRACE_S
)


class _Storage(MemoryChunkStorage):
    """Notes reads; calls `before_put` and the like, which may raise, with each name."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.before_put: Callable[[str], None] = lambda _: None
        self.before_delete: Callable[[str], None] = lambda _: None
        self.before_get: Callable[[str], object] = lambda _: None

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.before_put(name)
        await super().put_new(name, parts)

    async def get(self, name: str) -> bytes:
        self.reads.append(name)
        self.before_get(name)
        return await super().get(name)

    async def delete(self, name: str) -> None:
        self.before_delete(name)
        await super().delete(name)

    def manifest_numbers(self) -> list[int]:
        found = (manifest_number(CONTAINER, name) for name in sorted(self.objects))
        return [number for number in found if number is not None]

    def newest(self) -> Manifest:
        number = self.manifest_numbers()[-1]
        return decode_manifest(self.objects[manifest_name(CONTAINER, number)], CONTAINER, number)


class _World:
    """One container, its model and its owners."""

    def __init__(self) -> None:
        self.storage = _Storage()
        self.time = ManualTime()
        self.model = small_container()
        self.step = 0

    async def open(self, epoch: int) -> ContainerTierTwo:
        opening = OpenContainerTierTwo(self.storage, SeededIds(epoch), self.time, LIMITS)
        return await opening(CONTAINER, epoch, "log", new_log=epoch == 1)

    async def flush(self, tier_two: ContainerTierTwo, times: int = 1) -> None:
        for _ in range(times):
            await tier_two.flush(self.model.cut(await catalog_of(tier_two)), self.model.fetch)
            go_on(self.model, self.step % 4)
            self.step += 1

    async def at_catalog(self, tier_two: ContainerTierTwo) -> ModelContainer:
        """The model as it was at the last flush."""
        model = small_container()
        for step in range(self.step - 1):
            go_on(model, step % 4)
        assert model.matches(await catalog_of(tier_two))
        return model

    async def check(self, tier_two: ContainerTierTwo) -> None:
        assert await read_back(tier_two) == expected_contents(await self.at_catalog(tier_two))


# --- snapshots --------------------------------------------------------------------------------


async def test_the_manifest_after_so_many_names_a_snapshot_and_an_open_reads_from_there() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 2)
    assert world.storage.newest().snapshot is None
    await world.flush(tier_two)
    snapshot = world.storage.newest().snapshot
    assert snapshot is not None
    assert (snapshot.through, world.storage.newest().number) == (3, 4)
    world.storage.reads.clear()
    successor = await world.open(2)
    manifests_read = [name for name in world.storage.reads if "/m/" in name]
    assert manifests_read == [manifest_name(CONTAINER, 4)] * 2, "to fence, and to load"
    assert await catalog_of(successor) == await catalog_of(tier_two)
    await world.check(successor)


async def test_a_successor_counts_on_and_names_unchanged_pages_again() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 3)
    first = tier_two._snapshots._last
    successor = await world.open(2)
    await world.flush(successor, 2)
    second = successor._snapshots._last
    assert first is not None
    assert second is not None
    assert second.ref.through == 6
    assert first.names & second.names
    assert await catalog_of(await world.open(3)) == await catalog_of(successor)


async def test_a_snapshot_that_fails_costs_the_flush_nothing_and_is_tried_again_later() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 2)
    puts = 0

    def full(name: str) -> None:
        nonlocal puts
        puts += 1
        if puts == 2:  # the first page, after the chunk
            raise DiskFailed("the disk is full")

    world.storage.before_put = full
    await world.flush(tier_two)
    assert world.storage.newest().number == 4
    assert world.storage.newest().snapshot is None
    world.storage.before_put = lambda _: None
    await world.flush(tier_two)
    snapshot = world.storage.newest().snapshot
    assert snapshot is not None
    assert snapshot.through == 4
    successor = await world.open(2)
    assert await catalog_of(successor) == await catalog_of(tier_two)
    await world.check(successor)


async def test_a_failed_sync_of_a_page_ends_the_flush() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 2)

    def failing(name: str) -> None:
        raise SyncFailed("a sync of tier 2 failed")

    world.storage.before_put = failing
    with pytest.raises(SyncFailed):
        await world.flush(tier_two)


async def test_a_page_of_unknown_outcome_is_written_again_under_a_new_name() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 2)
    lost: list[str] = []

    def lose_every_second(name: str) -> None:
        if "/m/" not in name and (not lost or lost[-1] == ""):
            lost.append(name)
            raise OutcomeUnknown("the connection broke")
        lost.append("")

    world.storage.before_put = lose_every_second
    await world.flush(tier_two)
    names = [name for name in lost if name]
    assert len(names) >= 3
    assert not set(names) & set(world.storage.objects)
    assert world.storage.newest().snapshot is not None
    assert await catalog_of(await world.open(2)) == await catalog_of(tier_two)


# --- collection -------------------------------------------------------------------------------


async def _check_nothing_goes_before_its_grace() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 7)
    before = dict(world.storage.objects)
    world.time.advance(GRACE_S - 1)
    await collect_all(tier_two)
    assert world.storage.objects == before, "an object was deleted before its grace was over"
    world.time.advance(1)
    await collect_all(tier_two)
    assert len(world.storage.objects) < len(before)
    await world.check(tier_two)


async def test_what_was_dropped_goes_after_its_grace_and_not_before() -> None:
    await _check_nothing_goes_before_its_grace()


async def test_deletion_before_the_grace_is_over_is_found_out() -> None:
    with no_grace(), pytest.raises(AssertionError, match="before its grace"):
        await _check_nothing_goes_before_its_grace()


async def test_manifests_chunks_and_pages_stay_bounded_however_long_an_owner_lives() -> None:
    world = _World()
    tier_two = await world.open(1)
    counts = []
    for _ in range(40):
        await world.flush(tier_two)
        world.time.advance(GRACE_S)
        await collect_all(tier_two)
        counts.append(len([name for name in world.storage.objects if "/m/" in name]))
    assert max(counts) <= 6
    used = {e.ref.name for held in (await catalog_of(tier_two)).extents.values() for e in held}
    snapshot = tier_two._snapshots._last
    assert snapshot is not None
    kept = {name for name in world.storage.objects if "/m/" not in name}
    assert kept == used | snapshot.names
    await world.check(await world.open(2))


async def test_a_successor_collects_what_its_predecessors_left_and_nothing_else() -> None:
    world = _World()
    first = await world.open(1)
    await world.flush(first, 4)
    strays = {
        "c3/0000000001-0000000900",  # of a lower epoch, referred to by nothing
        "c3/0000000002-0000000900",  # of the successor's own epoch
        "c3/0000000003-0000000900",  # of a later one
        "c3/notes",
        "c30/0000000001-0000000900",
    }
    world.storage.objects |= dict.fromkeys(strays, b"stray")
    second = await world.open(2)
    before = set(world.storage.objects)
    world.time.advance(GRACE_S - 1)
    await collect_all(second)
    assert set(world.storage.objects) == before
    late = "c3/0000000001-0000000901"  # the predecessor was still writing it at the open
    world.storage.objects[late] = b"late"
    world.time.advance(1)
    await collect_all(second)
    gone = (before | {late}) - set(world.storage.objects)
    assert gone & strays == {"c3/0000000001-0000000900"}
    assert late in gone
    assert manifest_name(CONTAINER, 1) in gone
    await world.check(second)
    assert await catalog_of(await world.open(3)) == await catalog_of(second)


async def test_a_deletion_that_fails_is_tried_again() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 7)
    world.time.advance(GRACE_S)
    tried: list[str] = []

    def refuse(name: str) -> None:
        tried.append(name)
        if len(tried) == 2:
            raise PermissionError("not allowed")

    world.storage.before_delete = refuse
    with pytest.raises(PermissionError):
        await tier_two.collect()
    await collect_all(tier_two)
    assert tried[2] == tried[1]
    assert not set(tried) & set(world.storage.objects)
    await world.check(tier_two)


async def test_an_owner_that_is_deposed_in_the_middle_of_a_batch_stops() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 7)
    world.time.advance(GRACE_S)
    tried: list[str] = []

    async def depose() -> None:
        await world.open(2)
        with pytest.raises(Deposed):
            await world.flush(tier_two)

    def depose_meanwhile(name: str) -> None:
        tried.append(name)
        run(depose())

    world.storage.before_delete = depose_meanwhile
    for _ in range(2):
        with pytest.raises(Deposed):
            await tier_two.collect()
    assert len(tried) == 1


async def test_an_owner_whose_number_is_collected_as_it_reads_it_is_deposed() -> None:
    world = _World()
    sleeper = await world.open(1)
    for epoch in (2, 3):
        await world.open(epoch)
    taken = manifest_name(CONTAINER, 2)
    world.storage.before_get = lambda name: name == taken and world.storage.objects.pop(name)
    with pytest.raises(Deposed):
        await world.flush(sleeper)


async def test_an_open_whose_highest_manifest_is_collected_as_it_reads_it_lists_again() -> None:
    world = _World()
    await world.open(1)

    def go_on_and_collect(name: str) -> None:
        world.storage.before_get = lambda _: None
        run(world.open(2))  # type: ignore[arg-type]
        del world.storage.objects[name]
        fence = decode_manifest(world.storage.objects[manifest_name(CONTAINER, 2)], CONTAINER, 2)
        assert fence.container_epoch == 2

    world.storage.before_get = go_on_and_collect
    with pytest.raises(Deposed):
        await world.open(2)


async def test_collection_beside_a_flush_does_not_take_its_own_manifest_for_a_successors() -> None:
    world = _World()
    tier_two = await world.open(1)
    await world.flush(tier_two, 7)
    world.time.advance(GRACE_S)
    collected: list[bool] = []
    listing = world.storage.list

    async def collect_first(prefix: str) -> Sequence[str]:
        world.storage.list = listing  # type: ignore[method-assign]
        collected.append(await tier_two.collect())
        return await listing(prefix)

    world.storage.list = collect_first  # type: ignore[method-assign]
    await world.flush(tier_two)
    assert collected == [True]
    await world.check(tier_two)
