"""Opening, flushing and reading a container's tier 2, over memory."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import (
    Busy,
    CorruptChunk,
    CorruptJournal,
    CorruptManifest,
    Deposed,
    LogNotHere,
    OutcomeUnknown,
    TierTwoNotHere,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.chunk import CRC_BLOCK_BYTES, crc_of
from anabranch.common.tier2.manifest import (
    LogBinding,
    Manifest,
    SnapshotRef,
    decode_manifest,
    encode_manifest,
)
from anabranch.common.tier2.names import manifest_name
from anabranch.common.tier2.page import Page, encode_page
from anabranch.common.tier2.page_index import PageIndex, encode_index
from anabranch.common.tier2.state import Catalog, ChunkRef
from anabranch.segstore.domain.storage.paging import PageLimits, head_of
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.shell.tiering.opening import FEW_MANIFESTS, OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from kit.chunk_faults import UnknownOutcomes
from kit.container_driver import ManualTime
from kit.tier2_catalog import catalog_of
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container
from kit.tier2_pages import encode_index_format_1

NAME = "s/a/0.#epoch.0"


async def _open(
    storage: ChunkStorage,
    epoch: int,
    *,
    log_id: str = "log",
    new_log: bool = False,
    limits: TierTwoLimits | None = None,
) -> ContainerTierTwo:
    open_tier_two = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime(), limits)
    return await open_tier_two(3, epoch, log_id, new_log=new_log)


async def _flush(tier_two: ContainerTierTwo, model: ModelContainer) -> None:
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)


def _manifests(storage: MemoryChunkStorage) -> list[str]:
    return [name for name in sorted(storage.objects) if "/m/" in name]


# --- open -------------------------------------------------------------------------------------


async def test_a_first_open_finds_an_empty_catalog_and_fences_with_manifest_one() -> None:
    storage = MemoryChunkStorage()
    tier_two = await _open(storage, 1, new_log=True)
    assert await catalog_of(tier_two) == Catalog()
    assert list(storage.objects) == ["c3/m/0000000001"]


async def test_an_open_reads_many_manifests_in_their_order_and_finds_a_missing_one() -> None:
    storage = MemoryChunkStorage()
    count = 2 * FEW_MANIFESTS
    for epoch in range(1, count + 1):
        tier_two = await _open(storage, epoch, new_log=epoch == 1)
        if epoch == 2:
            await _flush(tier_two, small_container())
    expected = await catalog_of(tier_two)
    assert await catalog_of(await _open(storage, count + 1)) == expected != Catalog()
    del storage.objects[manifest_name(3, 5)]
    with pytest.raises(CorruptManifest):
        await _open(storage, count + 2)


async def test_an_empty_list_is_refused_if_the_container_has_a_log() -> None:
    storage = MemoryChunkStorage()
    with pytest.raises(TierTwoNotHere):
        await _open(storage, 1)
    assert storage.objects == {}


async def test_another_log_is_refused_unless_the_old_one_was_closed() -> None:
    storage = MemoryChunkStorage()
    await _open(storage, 1, new_log=True)
    with pytest.raises(LogNotHere):
        await _open(storage, 2, log_id="another")
    closed = Manifest(3, 2, 1, bytes(16), LogBinding("log", closed=True), 0)
    storage.objects[manifest_name(3, 2)] = encode_manifest(closed)
    await _open(storage, 2, log_id="another")


@pytest.mark.parametrize("epoch", [4, 5])
async def test_an_epoch_that_is_not_above_the_last_one_is_deposed(epoch: int) -> None:
    storage = MemoryChunkStorage()
    await _open(storage, 5, new_log=True)
    with pytest.raises(Deposed):
        await _open(storage, epoch)
    assert len(storage.objects) == 1


async def test_a_missing_manifest_is_corruption_not_a_shorter_history() -> None:
    storage = MemoryChunkStorage()
    for epoch in (1, 2, 3):
        await _open(storage, epoch, new_log=True)
    del storage.objects[manifest_name(3, 2)]
    with pytest.raises(CorruptManifest, match="missing"):
        await _open(storage, 4)


@pytest.mark.parametrize("encode", [encode_index, encode_index_format_1])
async def test_a_snapshot_and_the_manifests_after_it_make_the_catalog(
    encode: Callable[[PageIndex], bytes],
) -> None:
    # given a flushed container whose manifests up to 2 are replaced by a snapshot
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    snapshot = _store_snapshot(storage, await catalog_of(tier_two), 2, encode)
    del storage.objects[manifest_name(3, 1)], storage.objects[manifest_name(3, 2)]
    third = Manifest(3, 3, 1, bytes(16), LogBinding("log"), model.sequence, snapshot)
    storage.objects[manifest_name(3, 3)] = encode_manifest(third)
    # when it is opened, flushed and opened again
    second = await _open(storage, 2)
    assert model.matches(await catalog_of(second))
    model.append(NAME, b"after the snapshot")
    await _flush(second, model)
    again = await _open(storage, 3)
    # then nothing is missing, and the manifests go on naming the snapshot
    assert model.matches(await catalog_of(again))
    assert await read_back(again) == expected_contents(model)
    assert _last_manifest(storage).snapshot == snapshot


async def test_a_damaged_missing_or_exchanged_page_of_a_snapshot_is_corruption() -> None:
    for damage in ("flip", "remove", "exchange"):
        storage, model = MemoryChunkStorage(), small_container()
        tier_two = await _open(storage, 1, new_log=True)
        await _flush(tier_two, model)
        catalog = await catalog_of(tier_two)
        extents = catalog.extents
        snapshot = _store_snapshot(storage, catalog, through=2)
        third = Manifest(3, 3, 1, bytes(16), LogBinding("log"), model.sequence, snapshot)
        storage.objects[manifest_name(3, 3)] = encode_manifest(third)
        page = storage.objects.pop("c3/0000000001-0000000900")
        if damage == "flip":
            storage.objects["c3/0000000001-0000000900"] = page[:-1] + bytes([page[-1] ^ 1])
        if damage == "exchange":
            unsealed = [replace(held, sealed=False) for held in model.segments.values()]
            entries = tuple((held, extents[held.number]) for held in unsealed)
            storage.objects["c3/0000000001-0000000900"] = encode_page(Page(entries))
            assert len(storage.objects["c3/0000000001-0000000900"]) == len(page)
        successor = await _open(storage, 2)
        with pytest.raises(CorruptManifest):
            await successor.find([NAME])
        with pytest.raises(CorruptManifest):
            await catalog_of(successor)


def _store_snapshot(
    storage: MemoryChunkStorage,
    catalog: Catalog,
    through: int,
    encode: Callable[[PageIndex], bytes] = encode_index,
) -> SnapshotRef:
    """Three pages, one of each kind, in objects of their own, and their index."""
    states = sorted(catalog.segments.values(), key=lambda state: state.name)
    segments = tuple((state, catalog.extents[state.number]) for state in states)
    pages = (
        Page(segments),
        Page(tombstones=tuple(catalog.tombstones.values())),
        Page(writers=catalog.writers),
    )
    refs = [_store(storage, 900 + at, encode_page(page)) for at, page in enumerate(pages)]
    heads = tuple(head_of(page, PageLimits()) for page in pages)
    index = PageIndex(3, through, catalog.applied_sequence, tuple(refs), heads)
    return SnapshotRef(through, _store(storage, 999, encode(index)))


def _store(storage: MemoryChunkStorage, counter: int, data: bytes) -> ChunkRef:
    name = f"c3/0000000001-{counter:010}"
    storage.objects[name] = data
    return ChunkRef(name, 0, len(data), crc_of([data]))


def _last_manifest(storage: MemoryChunkStorage) -> Manifest:
    name = _manifests(storage)[-1]
    return decode_manifest(storage.objects[name], 3, int(name[-10:]))


# --- flush ------------------------------------------------------------------------------------


async def test_what_was_flushed_is_the_catalog_of_the_next_owner() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    first = await _open(storage, 1, new_log=True)
    await _flush(first, model)
    model.append(NAME, b"later")
    await _flush(first, model)
    second = await _open(storage, 2)
    assert await catalog_of(second) == await catalog_of(first)
    assert model.matches(await catalog_of(second))
    assert await read_back(second) == expected_contents(model)


async def test_the_extents_returned_are_those_added_adjacent_and_complete() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    model.append(NAME, b"more")
    before = (await catalog_of(tier_two)).extents[model.segments[NAME].number]
    (added,) = await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
    after = (await catalog_of(tier_two)).extents[model.segments[NAME].number]
    assert (*before, *added.extents) == after


async def test_where_nothing_happened_nothing_is_written() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    before = dict(storage.objects)
    assert await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch) == ()
    assert storage.objects == before


async def test_a_change_without_bytes_writes_a_manifest_and_no_chunk() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    before = set(storage.objects)
    model.seal(NAME)
    await _flush(tier_two, model)
    assert set(storage.objects) - before == {"c3/m/0000000003"}
    assert model.matches(await catalog_of(await _open(storage, 2)))


async def test_large_segments_are_cut_into_chunks_and_read_back() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    for size in range(1, 60):
        model.append(NAME, bytes([size]) * size * 3)
    limits = TierTwoLimits(ChunkLimits(chunk_max=1000, own_chunk_min=400, sparse_interval=100))
    tier_two = await _open(storage, 1, new_log=True, limits=limits)
    await _flush(tier_two, model)
    assert len((await catalog_of(tier_two)).extents[model.segments[NAME].number]) > 4
    assert await read_back(tier_two) == expected_contents(model)


async def test_a_large_piece_is_fetched_in_small_steps() -> None:
    storage, model = MemoryChunkStorage(), ModelContainer()
    model.create(NAME)
    model.append(NAME, bytes(range(256)) * 40 * 1024)
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    assert [length for _, _, length in model.fetched] == [2 << 20] * 5
    assert await read_back(tier_two) == expected_contents(model)


async def test_an_owner_whose_number_was_collected_long_ago_is_deposed_by_the_list() -> None:
    # given an owner that slept while successors went on and collected old manifests
    storage, model = MemoryChunkStorage(), small_container()
    sleeper = await _open(storage, 1, new_log=True)
    before = await catalog_of(sleeper)
    for epoch in (2, 3):
        await _open(storage, epoch)
    del storage.objects[manifest_name(3, 2)]
    # when it flushes, its number is free, but it looks and stops
    for _ in range(2):
        with pytest.raises(Deposed):
            await _flush(sleeper, model)
    assert await catalog_of(sleeper) == before
    assert _manifests(storage)[-2:] == ["c3/m/0000000002", "c3/m/0000000003"]


@pytest.mark.parametrize("performed", [True, False])
async def test_a_chunk_of_unknown_outcome_is_written_again_under_a_new_name(
    performed: bool,
) -> None:
    memory, model = MemoryChunkStorage(), small_container()
    storage = UnknownOutcomes(memory, **{"performed" if performed else "lost": [2]})
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    assert [name[-10:] for name in storage.puts[1:3]] == ["0000000001", "0000000002"]
    assert await read_back(await _open(memory, 2)) == expected_contents(model)


@pytest.mark.parametrize("performed", [True, False])
async def test_a_manifest_of_unknown_outcome_is_recognised_as_ones_own(performed: bool) -> None:
    for put in (1, 3):
        memory, model = MemoryChunkStorage(), small_container()
        numbers = {"performed" if performed else "lost": [put]}
        storage = UnknownOutcomes(memory, **numbers)
        tier_two = await _open(storage, 1, new_log=True)
        await _flush(tier_two, model)
        assert _manifests(memory) == ["c3/m/0000000001", "c3/m/0000000002"]
        assert model.matches(await catalog_of(await _open(memory, 2)))


@pytest.mark.parametrize("performed", [True, False])
async def test_a_manifest_that_stays_unknown_is_finished_by_the_next_flush_of_its_cut(
    performed: bool,
) -> None:
    memory, model = MemoryChunkStorage(), small_container()
    storage = UnknownOutcomes(memory, **{"performed" if performed else "lost": [3, 4, 5]})
    tier_two = await _open(storage, 1, new_log=True)
    cut = model.cut(await catalog_of(tier_two))
    with contextlib.suppress(OutcomeUnknown):
        await tier_two.flush(cut, model.fetch)
    assert tier_two.unfinished != performed
    puts = len(storage.puts)
    if tier_two.unfinished:
        await tier_two.flush(cut, model.fetch)
        assert storage.puts[puts:] == ["c3/m/0000000002"], "its chunks were written already"
    assert not tier_two.unfinished
    assert model.matches(await catalog_of(tier_two))
    assert model.matches(await catalog_of(await _open(memory, 2)))


async def test_while_a_manifest_is_unfinished_only_its_own_cut_may_be_flushed() -> None:
    memory, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(UnknownOutcomes(memory, lost=[3, 4, 5]), 1, new_log=True)
    with pytest.raises(OutcomeUnknown):
        await _flush(tier_two, model)
    model.append(NAME, b"since then")
    with pytest.raises(AssertionError):
        await _flush(tier_two, model)


async def test_an_unfinished_manifest_whose_number_a_successor_took_deposes() -> None:
    memory, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(UnknownOutcomes(memory, lost=[3, 4, 5]), 1, new_log=True)
    cut = model.cut(await catalog_of(tier_two))
    with pytest.raises(OutcomeUnknown):
        await tier_two.flush(cut, model.fetch)
    await _open(memory, 2)
    with pytest.raises(Deposed):
        await tier_two.flush(cut, model.fetch)


async def test_a_flush_that_fails_in_its_chunks_may_be_tried_again() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)

    async def broken_fetch(number: int, offset: int, length: int) -> bytes:
        raise CorruptJournal("a frame is damaged")

    with pytest.raises(CorruptJournal):
        await tier_two.flush(model.cut(await catalog_of(tier_two)), broken_fetch)
    assert _manifests(storage) == ["c3/m/0000000001"]
    model.append(NAME, b"since then")
    await _flush(tier_two, model)
    assert await read_back(await _open(storage, 2)) == expected_contents(model)


async def test_a_second_flush_beside_a_running_one_is_refused() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)

    async def flush_again(number: int, offset: int, length: int) -> bytes:
        with pytest.raises(Busy):
            await _flush(tier_two, model)
        return await model.fetch(number, offset, length)

    await tier_two.flush(model.cut(await catalog_of(tier_two)), flush_again)
    assert model.matches(await catalog_of(tier_two))


async def test_a_cut_whose_marks_leave_bytes_out_is_refused() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    tier_two = await _open(storage, 1, new_log=True)
    for marks in model.marks.values():
        del marks[-1:]
    with pytest.raises(AssertionError):
        await _flush(tier_two, model)
    assert _manifests(storage) == ["c3/m/0000000001"]


async def test_an_owner_meets_the_manifest_of_its_successor_and_is_deposed() -> None:
    storage, model = MemoryChunkStorage(), small_container()
    first = await _open(storage, 1, new_log=True)
    await _open(storage, 2)
    with pytest.raises(Deposed):
        await _flush(first, model)


# --- read -------------------------------------------------------------------------------------


async def _flushed_blocks() -> tuple[MemoryChunkStorage, ContainerTierTwo, ChunkRef, bytes]:
    """A segment of 2.5 checksum blocks behind a small one in the same chunk."""
    storage, model = MemoryChunkStorage(), ModelContainer()
    model.create("s/a/9.#epoch.0")
    model.append("s/a/9.#epoch.0", b"small")
    model.create(NAME)
    model.append(NAME, bytes(range(256)) * (CRC_BLOCK_BYTES * 5 // 2 // 256))
    tier_two = await _open(storage, 1, new_log=True)
    await _flush(tier_two, model)
    number = model.segments[NAME].number
    return (
        storage,
        tier_two,
        (await catalog_of(tier_two)).extents[number][0].ref,
        model.contents[number],
    )


async def test_any_part_of_a_piece_can_be_read() -> None:
    _, tier_two, ref, data = await _flushed_blocks()
    edge = CRC_BLOCK_BYTES
    for start, end in ((0, 1), (edge - 7, edge + 7), (edge, 2 * edge), (3, len(data)), (9, 9)):
        assert await tier_two.read(ref, start, end - start) == data[start:end]


async def test_a_flipped_bit_is_seen_by_every_read_that_touches_its_block() -> None:
    storage, tier_two, ref, data = await _flushed_blocks()
    damaged = bytearray(storage.objects[ref.name])
    damaged[ref.offset + CRC_BLOCK_BYTES + 5] ^= 0x10
    storage.objects[ref.name] = bytes(damaged)
    assert await tier_two.read(ref, 0, 100) == data[:100]
    for start, length in ((0, ref.length), (CRC_BLOCK_BYTES, 1), (CRC_BLOCK_BYTES + 500, 9)):
        with pytest.raises(CorruptChunk):
            await tier_two.read(ref, start, length)


async def test_a_missing_or_exchanged_chunk_is_corruption() -> None:
    storage, tier_two, ref, _ = await _flushed_blocks()
    original = storage.objects.pop(ref.name)
    for length in (1, ref.length):
        with pytest.raises(CorruptChunk, match="missing"):
            await tier_two.read(ref, 0, length)
    other = MemoryChunkStorage()
    model = small_container()
    await _flush(await _open(other, 2, new_log=True), model)
    storage.objects[ref.name] = next(v for k, v in other.objects.items() if "/m/" not in k)
    for length in (1, ref.length):
        with pytest.raises(CorruptChunk):
            await tier_two.read(ref, 0, length)
    storage.objects[ref.name] = original
    assert len(await tier_two.read(ref, 0, 1)) == 1


async def test_a_reference_that_is_no_piece_of_its_chunk_is_corruption() -> None:
    _, tier_two, ref, _ = await _flushed_blocks()
    with pytest.raises(CorruptChunk):
        await tier_two.read(replace(ref, offset=ref.offset + 1, length=ref.length - 1), 0, 5)
