"""The last manifest of an owner that leaves, and who may open after it, or in spite of it."""

import contextlib
from dataclasses import replace

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Deposed, LogNotHere, OutcomeUnknown
from anabranch.common.model.cluster import Abandonment, VoidLogs
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.objects import read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import LogBinding, Manifest
from anabranch.segstore.domain.storage.fence import closing_manifest, decide_fence, first_fence
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.chunk_faults import UnknownOutcomes
from kit.container_driver import ManualTime
from kit.tier2_catalog import catalog_of
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container

SERVED = replace(first_fence(3, 7, bytes(16), "theirs"), number=5, applied_sequence=40)
OWNER = first_fence(3, 9, b"n" * 16, "mine")


async def opened(storage: ChunkStorage, epoch: int, log_id: str, *, new: bool) -> ContainerTierTwo:
    open_tier_two = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime())
    return await open_tier_two(3, epoch, log_id, new_log=new)


async def flushed(storage: ChunkStorage) -> tuple[ContainerTierTwo, ModelContainer]:
    tier_two = await opened(storage, 1, "first", new=True)
    model = small_container()
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
    return tier_two, model


async def test_after_the_last_manifest_another_log_goes_on_with_the_same_catalog() -> None:
    storage = MemoryChunkStorage()
    tier_two, model = await flushed(storage)
    with pytest.raises(LogNotHere):
        await opened(storage, 2, "second", new=False)
    await tier_two.close()
    await tier_two.close()
    again = await opened(storage, 2, "second", new=False)
    assert again.applied_sequence == tier_two.applied_sequence
    assert await read_back(again) == expected_contents(model)


@pytest.mark.parametrize("performed", [True, False])
async def test_a_last_manifest_whose_fate_is_unknown_is_written_again(performed: bool) -> None:
    memory = MemoryChunkStorage()
    _, model = await flushed(memory)
    last = (2,)  # the fence manifest comes before it
    storage = UnknownOutcomes(
        memory, performed=last if performed else (), lost=() if performed else last
    )
    tier_two = await opened(storage, 2, "first", new=False)
    with contextlib.suppress(OutcomeUnknown):
        await tier_two.close()
    await tier_two.close()
    newest = await read_highest(memory, 3)
    assert newest is not None
    assert newest.log == LogBinding("first", closed=True)
    assert len(storage.puts) == 3, "once more, under the same name"
    assert await read_back(tier_two) == expected_contents(model)


async def test_an_owner_that_was_replaced_closes_nothing() -> None:
    storage = MemoryChunkStorage()
    tier_two, _ = await flushed(storage)
    await opened(storage, 2, "first", new=False)
    with pytest.raises(Deposed):
        await tier_two.close()
    newest = await read_highest(storage, 3)
    assert newest is not None
    assert not newest.log.closed


async def test_a_flush_after_an_abandonment_repeats_its_record() -> None:
    storage = MemoryChunkStorage()
    _, model = await flushed(storage)
    open_tier_two = OpenContainerTierTwo(storage, SeededIds(2), ManualTime())
    void = VoidLogs(0, 1, abandoned_ms=9)
    tier_two = await open_tier_two(3, 2, "second", void=void)
    given_up = Abandonment("first", tier_two.applied_sequence, 9)
    assert tier_two.abandoned == given_up
    model.create("s/b/1.#epoch.0")
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
    newest = await read_highest(storage, 3)
    assert newest is not None
    assert newest.abandoned == given_up


def fence(last: Manifest, void: VoidLogs | None) -> Manifest:
    return decide_fence(last, OWNER, new_log=False, void=void)


def test_the_fence_after_a_closed_log_records_nothing() -> None:
    made = fence(closing_manifest(SERVED), VoidLogs(0, 8, abandoned_ms=5))
    assert (made.number, made.log, made.applied_sequence) == (7, LogBinding("mine"), 40)
    assert made.abandoned is None


def test_an_open_log_is_passed_over_only_if_its_epoch_is_void() -> None:
    for void in (None, VoidLogs(7, 8), VoidLogs(0, 6), VoidLogs(7, 7)):
        with pytest.raises(LogNotHere):
            fence(SERVED, void)
    assert fence(SERVED, VoidLogs(6, 7)).abandoned is None, "it never served, so nothing is lost"


def test_a_log_that_an_operator_gave_up_is_recorded_once() -> None:
    void = VoidLogs(0, 8, abandoned_ms=1234)
    first = fence(SERVED, void)
    assert first.abandoned == Abandonment("theirs", 40, 1234)
    # the store that wrote this fence died, and a third one passes over its empty log
    died = replace(first, container_epoch=8, log=LogBinding("empty"))
    assert fence(died, void).abandoned == first.abandoned
    assert closing_manifest(first).abandoned == first.abandoned
