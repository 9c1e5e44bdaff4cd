"""Space returns although segments share chunks, over memory and a clock that is moved by hand."""

from collections.abc import Callable, Sequence

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptChunk, Deposed, DiskFailed, OutcomeUnknown
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.audit import audit_container, read_catalog
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.shell.tiering import extent_fetch
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.rewriter import RETRY_S_MIN
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from kit.container_driver import ManualTime
from kit.planted_tier2 import copies_not_verified
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, collect_all
from kit.tier2_model import ModelContainer, expected_contents, read_back

GRACE_S, REST_S = 1000.0, 100.0
LIMITS = TierTwoLimits(
    snapshots=SnapshotLimits(manifests_max=4, page_target=400, page_max=900, extents_inline=2),
    gc_grace_s=GRACE_S,
    rewrite=RewriteLimits(rest_s=REST_S),
)
NAMES = [f"s/a/{number}.#epoch.0" for number in range(8)]
LIVING, DEAD = NAMES[:2], NAMES[2:]
PIECE_BYTES = 1000
FLUSHES = 5


class _Storage(MemoryChunkStorage):
    """Calls `before_put`, which may raise, with each name."""

    def __init__(self) -> None:
        super().__init__()
        self.before_put: Callable[[str], None] = lambda _: None

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.before_put(name)
        await super().put_new(name, parts)

    @property
    def chunks(self) -> dict[str, bytes]:
        """Chunks, pages and indexes."""
        return {name: data for name, data in self.objects.items() if "/m/" not in name}

    def damage(self, extent: TieredExtent) -> None:
        """Flip a bit of the extent's last byte."""
        data = bytearray(self.objects[extent.ref.name])
        data[extent.ref.offset + extent.ref.length - 1] ^= 1
        self.objects[extent.ref.name] = bytes(data)


class _World:
    """Eight segments that share the chunks of five flushes."""

    def __init__(self) -> None:
        self.storage = _Storage()
        self.time = ManualTime()
        self.model = ModelContainer()
        for name in NAMES:
            self.model.create(name)

    async def open(self, epoch: int) -> ContainerTierTwo:
        opening = OpenContainerTierTwo(self.storage, SeededIds(epoch), self.time, LIMITS)
        tier_two = await opening(CONTAINER, epoch, "log", new_log=epoch == 1)
        await collect_all(tier_two)  # count what it refers to
        return tier_two

    async def opened_and_written(self) -> ContainerTierTwo:
        tier_two = await self.open(1)
        for flush in range(FLUSHES):
            for at, name in enumerate(NAMES):
                self.model.append(name, bytes([flush * 10 + at]) * PIECE_BYTES)
            await self.flush(tier_two)
        return tier_two

    async def flush(self, tier_two: ContainerTierTwo) -> None:
        await tier_two.flush(self.model.cut(await catalog_of(tier_two)), self.model.fetch)

    async def delete(self, tier_two: ContainerTierTwo, *names: str) -> None:
        for name in names:
            self.model.delete(name)
        await self.flush(tier_two)

    async def settle(self, tier_two: ContainerTierTwo) -> None:
        """Rewrite and collect until nothing is left to do."""
        await tier_two.rewrite()  # it measures objects of earlier owners, which then rest
        self.time.advance(REST_S)
        while await tier_two.rewrite():
            await self.flush(tier_two)
            self.time.advance(REST_S)
        self.time.advance(GRACE_S)
        await collect_all(tier_two)

    async def extents(self, tier_two: ContainerTierTwo, name: str) -> tuple[TieredExtent, ...]:
        catalog = await catalog_of(tier_two)
        return catalog.extents[catalog.segments[name].number]

    async def check(self, tier_two: ContainerTierTwo) -> None:
        assert self.model.matches(await catalog_of(tier_two))
        assert await read_back(tier_two) == expected_contents(self.model)

    def size(self) -> int:
        return sum(map(len, self.storage.objects.values()))


async def test_space_returns_although_a_piece_of_every_chunk_lives_on() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    before = world.size()
    assert before > FLUSHES * len(NAMES) * PIECE_BYTES
    assert tier_two.dead_bytes == FLUSHES * len(DEAD) * PIECE_BYTES
    await world.settle(tier_two)
    assert tier_two.dead_bytes == 0
    live = FLUSHES * len(LIVING) * PIECE_BYTES
    assert live < world.size() < live + 8000, "manifests, pages and footers come on top"
    await world.check(tier_two)
    await world.check(await world.open(2))


async def test_without_rewriting_no_space_returns() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(GRACE_S)
    await collect_all(tier_two)
    assert len([data for data in world.storage.chunks.values() if len(data) > 7000]) == FLUSHES


async def test_a_container_in_which_nothing_changes_rewrites_too_and_at_no_other_sequence() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    sequence = tier_two.applied_sequence
    world.time.advance(REST_S)
    assert await tier_two.rewrite()
    await world.flush(tier_two)
    assert tier_two.applied_sequence == sequence
    assert not tier_two.copied
    await world.check(tier_two)
    puts: list[str] = []
    world.storage.before_put = puts.append
    await world.flush(tier_two)
    assert puts == [], "an empty cut without copies writes nothing"


async def test_readers_of_the_originals_have_until_the_grace_is_over() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    old = [held for name in LIVING for held in await world.extents(tier_two, name)]
    world.time.advance(REST_S)
    assert await tier_two.rewrite()
    await world.flush(tier_two)
    new = [held for name in LIVING for held in await world.extents(tier_two, name)]
    assert not {held.ref.name for held in old} & {held.ref.name for held in new}
    world.time.advance(GRACE_S - 1)
    await collect_all(tier_two)
    reader = ChunkReader(world.storage)
    for before, after in zip(old, new, strict=True):
        length = before.ref.length
        assert await reader.read(before.ref, 0, length) == await reader.read(after.ref, 0, length)
        assert await reader.entries(before.ref) == await reader.entries(after.ref)
    world.time.advance(1)
    await collect_all(tier_two)
    with pytest.raises(CorruptChunk, match="missing"):
        await reader.read(old[0].ref, 0, 1)


async def test_an_audit_finds_every_copy_as_good_as_its_original() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    await world.settle(tier_two)
    found = await read_catalog(world.storage, CONTAINER)
    audits = [audit async for audit in audit_container(world.storage, CONTAINER, found)]
    assert [audit.segment.name for audit in audits] == LIVING
    assert not [fault for audit in audits for fault in audit.faults if "checksum" in fault]
    assert {audit.chunks for audit in audits} == {1}


async def test_a_successor_rewrites_what_was_dead_before_it_came() -> None:
    world = _World()
    await world.delete(await world.opened_and_written(), *DEAD)
    successor = await world.open(2)
    await world.settle(successor)
    assert world.size() < FLUSHES * len(LIVING) * PIECE_BYTES + 8000
    await world.check(successor)


async def test_a_whole_object_of_an_earlier_owner_is_measured_and_left_alone() -> None:
    world = _World()
    await world.opened_and_written()
    successor = await world.open(2)
    puts: list[str] = []
    world.storage.before_put = puts.append
    world.time.advance(REST_S)
    assert not await successor.rewrite()
    assert puts == []
    assert successor.dead_bytes == 0


async def test_large_pieces_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent_fetch, "WINDOW_BYTES_MAX", PIECE_BYTES - 1)
    await test_space_returns_although_a_piece_of_every_chunk_lives_on()


# --- changes while copies wait ----------------------------------------------------------------


async def test_copies_of_segments_that_were_deleted_meanwhile_are_garbage_themselves() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(REST_S)
    assert await tier_two.rewrite()
    await world.delete(tier_two, *LIVING)
    assert not tier_two.copied
    await world.settle(tier_two)
    snapshot = tier_two._snapshots._last
    assert snapshot is not None
    assert set(world.storage.chunks) == snapshot.names
    await world.check(tier_two)


async def test_copies_of_a_segment_that_stays_count_although_another_one_was_deleted() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(REST_S)
    assert await tier_two.rewrite()
    world.model.append(LIVING[1], b"and more")
    await world.delete(tier_two, LIVING[0])
    assert len({held.ref.name for held in await world.extents(tier_two, LIVING[1])}) == 2
    await world.settle(tier_two)
    await world.check(tier_two)
    await world.check(await world.open(2))


async def test_a_manifest_of_unknown_outcome_is_finished_with_the_same_copies() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(REST_S)
    assert await tier_two.rewrite()

    def lose_manifests(name: str) -> None:
        if "/m/" in name:
            raise OutcomeUnknown("the connection broke")

    world.storage.before_put = lose_manifests
    with pytest.raises(OutcomeUnknown):
        await world.flush(tier_two)
    assert tier_two.unfinished
    chunks = set(world.storage.chunks)
    assert await tier_two.rewrite(), "they still wait, and nothing more is copied"
    assert set(world.storage.chunks) == chunks
    world.storage.before_put = lambda _: None
    await world.flush(tier_two)
    assert not tier_two.copied
    await world.settle(tier_two)
    await world.check(tier_two)


async def test_a_deposed_owners_copies_change_nothing_and_are_collected() -> None:
    world = _World()
    sleeper = await world.opened_and_written()
    await world.delete(sleeper, *DEAD)
    world.time.advance(REST_S)
    assert await sleeper.rewrite()
    (copied,) = {move.to.name for move in sleeper._rewriter.copies.moves}  # type: ignore[union-attr]
    successor = await world.open(2)
    with pytest.raises(Deposed):
        await world.flush(sleeper)
    with pytest.raises(Deposed):
        await sleeper.rewrite()
    await world.check(successor)
    await world.settle(successor)
    assert copied not in world.storage.objects
    await world.check(successor)
    await world.check(await world.open(3))


# --- failures ---------------------------------------------------------------------------------


async def test_a_full_tier_two_costs_one_attempt_at_a_time_and_no_space() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(REST_S)
    tried: list[str] = []

    def full(name: str) -> None:
        tried.append(name)
        raise DiskFailed("the disk is full")

    world.storage.before_put = full
    before = world.size()
    for pause_s in (RETRY_S_MIN, 2 * RETRY_S_MIN, 4 * RETRY_S_MIN):
        tried.clear()
        with pytest.raises(DiskFailed):
            await tier_two.rewrite()
        world.time.advance(pause_s - 1)
        assert not await tier_two.rewrite()
        assert len(tried) == 1
        world.time.advance(1)
    assert world.size() == before
    world.storage.before_put = lambda _: None
    await world.settle(tier_two)
    assert world.size() < before / 2


async def test_nothing_is_rewritten_while_flushes_fail() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    world.time.advance(REST_S)
    world.model.append(LIVING[0], b"more")
    tried: list[str] = []

    def full(name: str) -> None:
        tried.append(name)
        raise DiskFailed("the disk is full")

    world.storage.before_put = full
    with pytest.raises(DiskFailed):
        await world.flush(tier_two)
    tried.clear()
    assert not await tier_two.rewrite()
    assert tried == []
    world.storage.before_put = lambda _: None
    await world.flush(tier_two)
    assert await tier_two.rewrite()


async def _rewrite_a_damaged_object() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    damaged = (await world.extents(tier_two, LIVING[0]))[2]
    world.storage.damage(damaged)
    world.time.advance(REST_S)
    structlog.reset_defaults()
    with capture_logs() as logs:
        assert not await tier_two.rewrite()
        assert await tier_two.rewrite()
        await world.flush(tier_two)
        world.time.advance(REST_S)
        assert not await tier_two.rewrite()
    (said,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert said["objects"] == [damaged.ref.name]
    world.time.advance(GRACE_S)
    await collect_all(tier_two)
    assert (await world.extents(tier_two, LIVING[0]))[2] == damaged, "it stays as it is"
    assert len([data for data in world.storage.chunks.values() if len(data) > 7000]) == 2
    for held in await world.extents(tier_two, LIVING[1]):
        await tier_two.read(held.ref, 0, held.ref.length)
    with pytest.raises(CorruptChunk):
        await tier_two.read(damaged.ref, 0, damaged.ref.length)


async def test_a_damaged_object_stays_and_is_named_and_the_others_are_rewritten() -> None:
    await _rewrite_a_damaged_object()


async def test_copies_that_are_not_verified_are_found_out() -> None:
    with copies_not_verified(), pytest.raises(AssertionError):
        await _rewrite_a_damaged_object()


async def test_an_object_whose_footer_is_damaged_stays_and_the_others_are_rewritten() -> None:
    world = _World()
    tier_two = await world.opened_and_written()
    await world.delete(tier_two, *DEAD)
    damaged = (await world.extents(tier_two, LIVING[0]))[0].ref.name
    world.storage.objects[damaged] = world.storage.objects[damaged][:-3] + b"bad"
    await world.settle(tier_two)
    assert {held.ref.name for held in await world.extents(tier_two, LIVING[0])} > {damaged}
    assert len([data for data in world.storage.chunks.values() if len(data) > 7000]) == 2
