"""A container whose catalog is in pages: lives with restarts, its memory, and its expiry."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptManifest, Deposed, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.state import Catalog, Tombstone
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.ports import CatalogEntry
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from kit.container_driver import ManualTime
from kit.planted_tier2 import deletion_before_the_counts_are_complete
from kit.thorough import one_in
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import collect_all
from kit.tier2_model import ModelContainer, expected_contents, read_back

TINY = TierTwoLimits(
    snapshots=SnapshotLimits(
        manifests_max=3, page_target=300, page_max=700, extents_inline=2
    ),
    gc_grace_s=0.0,
    cached_pages_max=0,
)  # fmt: skip
NAMES = [f"s/{letter}/{at}" for letter in "ab" for at in range(6)]


class _Storage(MemoryChunkStorage):
    """Counts what is read and written; `before_read` may raise, `meanwhile` happens once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.puts: list[str] = []
        self.before_read: Callable[[str], None] = lambda _: None
        self.meanwhile: list[Callable[[], Awaitable[None]]] = []

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.puts.append(name)
        await super().put_new(name, parts)

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.reads += 1
        self.before_read(name)
        if self.meanwhile:
            await self.meanwhile.pop()()
        return await super().get_range(name, offset, length)


class _World:
    """One container, its model, and its present owner."""

    def __init__(self, limits: TierTwoLimits = TINY) -> None:
        self.storage = _Storage()
        self.time = ManualTime()
        self.limits = limits
        self.model = ModelContainer()
        self.flushed = Catalog()
        self.epoch = 0
        self.tier_two: ContainerTierTwo

    async def open(self) -> None:
        self.epoch += 1
        opening = OpenContainerTierTwo(self.storage, SeededIds(self.epoch), self.time, self.limits)
        self.tier_two = await opening(3, self.epoch, "log", new_log=self.epoch == 1)

    async def flush(self) -> None:
        await self.tier_two.flush(self.model.cut(self.flushed), self.model.fetch)
        self.flushed = self.model.catalog()

    async def make(self, count: int, *, per_flush: int = 500) -> None:
        """So many segments, each with a byte, in flushes of some."""
        for at in range(count):
            self.model.create(f"s/n/{at:05}")
            self.model.append(f"s/n/{at:05}", b"x")
            if at % per_flush == per_flush - 1:
                await self.flush()
        await self.flush()


# --- lives ------------------------------------------------------------------------------------


def _happen(model: ModelContainer, what: str, name: str, count: int) -> None:
    if name not in model.segments:
        model.create(name)
    elif what == "delete":
        model.delete(name)
    elif what == "seal":
        model.seal(name)
    elif not model.segments[name].sealed:
        model.append(name, bytes(count), writer=bytes([count]) * 16)


@settings(max_examples=40 // one_in(4))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "append", "delete", "seal", "open", "collect"]),
            st.sampled_from(NAMES),
            st.integers(1, 9),
            st.booleans(),
        ),
        max_size=40,
    )
)
async def test_in_every_life_with_restarts_what_is_found_is_what_was_flushed(
    steps: list[tuple[str, str, int, bool]],
) -> None:
    world = _World()
    await world.open()
    for what, name, count, flush in steps:
        if what == "open":
            await world.open()
        elif what == "collect":
            await collect_all(world.tier_two)
        else:
            _happen(world.model, what, name, count)
        if flush:
            await world.flush()
        await _check_found(world, [name, NAMES[count]])
    await world.flush()
    await collect_all(world.tier_two)
    await _check_found(world, NAMES)
    assert world.model.matches(await catalog_of(world.tier_two))
    assert await read_back(world.tier_two) == expected_contents(world.model)
    newest = await read_highest(world.storage, 3)
    assert newest is not None
    assert await load_catalog(world.storage, newest) == await catalog_of(world.tier_two)


async def _check_found(world: _World, names: Sequence[str]) -> None:
    found = await world.tier_two.find(names)
    for name in names:
        entry = found.get(name)
        if isinstance(entry, CatalogEntry):
            assert entry.state == world.flushed.segments[name]
            number = entry.state.number
            of_number = {k[1]: v for k, v in world.flushed.writers.items() if k[0] == number}
            assert entry.writers == of_number
            assert sum(extent.ref.length for extent in entry.extents) == entry.state.length
        else:
            assert entry == world.flushed.tombstones.get(name)
            assert name not in world.flushed.segments
        if world.tier_two.knows_nothing_of(name):
            assert entry is None


async def test_a_search_that_waits_while_a_snapshot_is_taken_finds_the_newest_state() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=10)

    async def go_on() -> None:
        for _ in range(6):
            world.model.append("s/n/00005", b"more")
            await world.flush()

    world.storage.meanwhile = [go_on]
    directory = world.tier_two._catalog.directory
    await _check_found(world, ["s/n/00005", "s/n/00006"])
    assert world.tier_two._catalog.directory is not directory


async def test_all_entries_are_those_of_one_moment_whatever_is_flushed_meanwhile() -> None:
    world = _World(replace(TINY, snapshots=replace(TINY.snapshots, manifests_max=6)))
    await world.open()
    await world.make(60, per_flush=10)
    before, found = world.flushed, set[str]()
    async for entry in world.tier_two.entries():
        assert isinstance(entry, CatalogEntry)
        assert entry.state == before.segments[entry.state.name]
        found.add(entry.state.name)
        if len(found) == 3:
            for name in before.segments:
                world.model.append(name, b"more")
            world.model.delete("s/n/00059")
            await world.flush()
    assert found == before.segments.keys()


# --- memory and work --------------------------------------------------------------------------


def _held(tier_two: ContainerTierTwo) -> int:
    """How many entries of any kind are in memory."""
    overlay = tier_two._catalog.overlay
    count = len(overlay.names) + sum(map(len, overlay.writers.values()))
    for page, _ in tier_two._pages._cached.values():
        held = page.page
        count += len(held.segments) + len(held.tombstones) + len(held.writers)
        count += sum(len(run) for _, run in held.extents)
    return count


async def test_after_a_snapshot_few_of_many_segments_are_in_memory() -> None:
    limits = TierTwoLimits(
        snapshots=SnapshotLimits(manifests_max=4, page_target=4000, page_max=9000),
        cached_pages_max=64 * 1024,
    )
    world = _World(limits)
    await world.open()
    await world.make(20_000, per_flush=1000)
    world.model.append("s/n/00007", b"more")
    await world.flush()
    # of the overlay: three manifests of a thousand segments and a writer each
    assert _held(world.tier_two) < 3 * 2000 + 2500
    await world.open()
    count = 0
    async for _ in world.tier_two.entries():
        count += 1
        if count % 100 == 0:
            assert _held(world.tier_two) < 3 * 2000 + 2500
    assert count == 20_000


async def test_a_flush_of_one_segment_among_many_reads_and_writes_a_few_objects() -> None:
    limits = TierTwoLimits(
        snapshots=SnapshotLimits(manifests_max=30, page_target=1500, page_max=4000),
        cached_pages_max=0,
    )
    world = _World(limits)
    await world.open()
    await world.make(2000, per_flush=50)
    assert len(world.tier_two._catalog.directory.pages) > 100
    await world.open()
    for name in ("s/n/00003", "s/n/00750", "s/n/00003"):
        world.model.append(name, b"more")
        world.storage.reads, world.storage.puts = 0, []
        await world.flush()
        assert world.storage.reads <= 4
        assert len(world.storage.puts) == 2, "a chunk and a manifest"


async def test_an_open_reads_no_page_and_a_search_those_that_can_hold_the_name() -> None:
    world = _World()
    await world.open()
    await world.make(200, per_flush=10)
    world.storage.reads = 0
    await world.open()
    assert world.storage.reads == 1, "the page index"
    await world.tier_two.find(["s/n/00077"])
    assert 1 < world.storage.reads <= 6


async def test_a_name_of_which_nothing_can_be_known_is_told_without_reading() -> None:
    world = _World(replace(TINY, cached_pages_max=1 << 20))
    await world.open()
    assert world.tier_two.knows_nothing_of("s/n/00003x")
    await world.make(60, per_flush=10)
    await world.open()
    assert world.tier_two.knows_nothing_of("a")
    assert world.tier_two.knows_nothing_of("z")
    assert not world.tier_two.knows_nothing_of("s/n/00003")
    assert not world.tier_two.knows_nothing_of("s/n/00003x"), "a page may hold it"
    await catalog_of(world.tier_two)
    assert world.tier_two.knows_nothing_of("s/n/00003x"), "its page is in memory and does not"
    assert not world.tier_two.knows_nothing_of("s/n/00003")


# --- counting before collecting ---------------------------------------------------------------


async def _drop_a_shared_chunk_before_it_is_counted() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=20)
    await world.open()
    world.model.delete("s/n/00003")
    await world.flush()
    await collect_all(world.tier_two)
    contents = await read_back(world.tier_two)
    assert contents == expected_contents(world.model), "bytes are lost"


async def test_what_was_dropped_before_the_count_stays_while_anything_else_refers_to_it() -> None:
    await _drop_a_shared_chunk_before_it_is_counted()


@pytest.mark.parametrize("manifests_max", [3, 50])
async def test_what_came_and_went_before_the_count_is_collected(manifests_max: int) -> None:
    world = _World()
    await world.open()
    await world.make(8, per_flush=2)
    snapshots = replace(TINY.snapshots, manifests_max=manifests_max)
    world.limits = replace(TINY, snapshots=snapshots)
    await world.open()
    for name in ("s/p/1", "s/p/2"):
        world.model.create(name)
        world.model.append(name, b"passing")
        await world.flush()
        world.model.delete(name)
        await world.flush()
    world.model.append("s/n/00001", b"for a while")
    await world.flush()
    await collect_all(world.tier_two)
    world.model.delete("s/n/00001")
    await world.flush()
    await collect_all(world.tier_two)
    catalog = await catalog_of(world.tier_two)
    used = {extent.ref.name for held in catalog.extents.values() for extent in held}
    snapshot = world.tier_two._snapshots._last
    used |= snapshot.names if snapshot is not None else set()
    assert {name for name in world.storage.objects if "/m/" not in name} == used


async def test_a_deletion_before_the_counts_are_complete_is_found_out() -> None:
    with deletion_before_the_counts_are_complete(), pytest.raises(Exception, match="missing"):
        await _drop_a_shared_chunk_before_it_is_counted()


async def test_nothing_is_deleted_while_a_page_cannot_be_counted() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=5)
    await world.open()
    before = set(world.storage.objects)

    def refuse(name: str) -> None:
        raise OSError("the connection broke")

    world.storage.before_read = refuse
    for _ in range(3):
        with pytest.raises(Unavailable):
            await world.tier_two.collect()
    assert set(world.storage.objects) == before
    world.storage.before_read = lambda _: None
    await collect_all(world.tier_two)
    assert len(world.storage.objects) < len(before)
    assert await read_back(world.tier_two) == expected_contents(world.model)


# --- pages that are not there -----------------------------------------------------------------


async def test_a_deposed_owner_whose_pages_were_collected_is_told_so() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=10)
    await world.open()
    sleeper = world.tier_two
    await world.open()
    for page in sleeper._catalog.directory.pages:
        del world.storage.objects[page.ref.name]
    for work in (sleeper.find(["s/n/00001"]), sleeper.collect(), catalog_of(sleeper)):
        with pytest.raises(Deposed):
            await work


async def test_a_page_that_is_missing_from_the_newest_state_is_corruption() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=10)
    await world.open()
    for page in world.tier_two._catalog.directory.pages:
        del world.storage.objects[page.ref.name]
    world.model.append("s/n/00001", b"more")
    for work in (
        world.tier_two.find(["s/n/00001"]),
        world.tier_two.collect(),
        catalog_of(world.tier_two),
        world.flush(),
    ):
        with pytest.raises(CorruptManifest, match="missing"):
            await work


async def test_a_page_that_cannot_be_read_costs_the_snapshot_and_not_the_flush() -> None:
    world = _World()
    await world.open()
    await world.make(40, per_flush=5)
    pages = {page.ref.name for page in world.tier_two._catalog.directory.pages}
    world.model.append("s/n/00001", b"more")
    name = world.tier_two._catalog.directory.pages[0].ref.name

    def refuse_first(read: str) -> None:
        if read == name:
            raise OSError("the connection broke")

    world.storage.before_read = refuse_first
    for at in range(3):
        world.model.create(f"s/z/{at}")
        world.model.append(f"s/z/{at}", b"new")
        world.model.cut(world.flushed)
        with_first = at == 0
        if with_first:
            with pytest.raises(Unavailable):
                await world.flush()
            world.storage.before_read = lambda _: None
        await world.flush()
    assert world.model.matches(await catalog_of(world.tier_two))
    assert pages != {page.ref.name for page in world.tier_two._catalog.directory.pages}


# --- expiry -----------------------------------------------------------------------------------


async def test_a_tombstone_ends_with_its_time_and_leaves_the_pages() -> None:
    world = _World(replace(TINY, tombstone_s=100.0))
    await world.open()
    await world.make(20, per_flush=10)
    for at in range(0, 20, 2):
        name = f"s/n/{at:05}"
        world.model.delete(name)
        tombstone = world.model.tombstones[name]
        made_ms = world.time.now_ms() + at * 1000
        world.model.tombstones[name] = replace(tombstone, deleted_ms=made_ms)
    for _ in range(6):
        world.model.create(f"s/n/{world.model.sequence}")
        await world.flush()
    world.time.advance(100.0)
    assert await world.tier_two.find(["s/n/00000"]) == {}
    kept = {name for name, held in world.model.tombstones.items() if held.deleted_ms > 1_000_000}
    assert (await catalog_of(world.tier_two)).tombstones.keys() <= kept
    world.time.advance(10.0)
    late = await world.tier_two.find(["s/n/00008", "s/n/00012", "s/n/00018"])
    assert set(late) == {"s/n/00012", "s/n/00018"}
    assert all(isinstance(entry, Tombstone) for entry in late.values())
    for _ in range(6):
        world.model.create(f"s/n/{world.model.sequence}")
        await world.flush()
    in_pages = [page for page in world.tier_two._catalog.directory.pages if page.head.oldest_ms]
    assert min(page.head.oldest_ms for page in in_pages) > 1_010_000
    await world.open()
    assert {"s/n/00000", "s/n/00008"}.isdisjoint((await catalog_of(world.tier_two)).tombstones)
