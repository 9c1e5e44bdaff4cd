"""Two owners of a container, interleaved at every call to tier 2.

The first was opened under epoch 1 and flushes twice; the second opens under epoch 2 and flushes.
Whatever the order of their calls: the first makes nothing visible after the second's fence and
is told so, and what tier 2 then says is one history.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Deposed
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import manifest_number
from anabranch.common.tier2.state import Catalog
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.chunk_faults import PausingStorage, all_schedules, run_schedule
from kit.container_driver import ManualTime
from kit.planted_tier2 import no_list_after_manifest
from kit.thorough import one_in
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, SEGMENT, run
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container

FIRST_STEPS: tuple[Callable[[ModelContainer], None], ...] = (
    lambda model: model.append(SEGMENT, b"first"),
    lambda model: model.delete("s/a/1.#epoch.0"),
)
"""What the first owner does before each of its flushes; the second needs no chunk."""


async def _open(storage: ChunkStorage, epoch: int) -> ContainerTierTwo:
    open_tier_two = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime())
    return await open_tier_two(CONTAINER, epoch, "log", new_log=True)


class _Rivals:
    """One interleaving from scratch. The journal, fenced before tier 2 is, holds it all."""

    def __init__(self) -> None:
        self.memory = MemoryChunkStorage()
        self.storage = PausingStorage(self.memory)
        self.journal = small_container()
        self.first: ContainerTierTwo
        self.flushes_of_first: list[Catalog] = []
        self.deposed = 0

    async def prepare(self) -> None:
        first = await _open(self.memory, 1)
        first._storage = self.storage
        self.first = first

    async def run_first(self) -> None:
        mine = deepcopy(self.journal)
        try:
            for step in FIRST_STEPS:
                step(mine)
                await self.first.flush(mine.cut(await catalog_of(self.first)), mine.fetch)
                assert not self.fenced(), "a deposed owner flushed"
                self.flushes_of_first.append(await catalog_of(self.first))
                self.journal = deepcopy(mine)
        except Deposed:
            self.deposed += 1

    async def run_second(self) -> None:
        second = await _open(self.storage, 2)
        mine = _journal_of(await catalog_of(second))
        mine.append(SEGMENT, b"second")
        await second.flush(mine.cut(await catalog_of(second)), mine.fetch)
        self.expected = mine

    def manifests(self) -> list[Manifest]:
        found = []
        for name in sorted(self.memory.objects):
            number = manifest_number(CONTAINER, name)
            if number is not None:
                found.append(decode_manifest(self.memory.objects[name], CONTAINER, number))
        return found

    def fenced(self) -> bool:
        """Whether the second's fence is there. The first's last call is the list, and nothing
        comes between it and the flush's return."""
        return any(manifest.container_epoch > 1 for manifest in self.manifests())

    def check(self) -> None:
        manifests = self.manifests()
        epochs = [manifest.container_epoch for manifest in manifests]
        assert epochs == sorted(epochs), "an owner wrote after its successor's fence"
        flushed_by_first = epochs.count(1) - 1
        assert len(self.flushes_of_first) <= flushed_by_first
        assert self.deposed == (1 if len(self.flushes_of_first) < 2 else 0)
        run(self._check_state())

    async def _check_state(self) -> None:
        last = await _open(self.memory, 3)
        found = await catalog_of(last)
        assert self.expected.matches(found)
        assert await read_back(last) == expected_contents(self.expected)
        for catalog in self.flushes_of_first:
            for number in catalog.extents.keys() & found.extents.keys():
                extents = catalog.extents[number]
                assert found.extents[number][: len(extents)] == extents


def _journal_of(catalog: Catalog) -> ModelContainer:
    """The journal's content up to a catalog: the second owner replays, then appends."""
    model = small_container()
    for step in FIRST_STEPS:
        if model.sequence < catalog.applied_sequence:
            step(model)
    return model


def _interleave(schedule: Sequence[int]) -> list[int]:
    rivals = _Rivals()
    run(rivals.prepare())
    choices = run_schedule([rivals.run_first(), rivals.run_second()], schedule)
    rivals.check()
    return choices


def test_in_every_interleaving_one_history_comes_out_and_the_older_owner_is_deposed() -> None:
    assert all_schedules(_interleave, stride=one_in(2)) >= 500 // one_in(2)


def _sleep_while_successors_collect(rivals: _Rivals) -> None:
    """The first wakes when its number is free again: collected with all below a snapshot."""
    run(rivals.prepare())
    rivals.first._storage = rivals.memory
    for epoch in (2, 3):
        run(_open_and_forget(rivals.memory, epoch))
    del rivals.memory.objects["c3/m/0000000002"]
    run(rivals.run_first())
    assert rivals.flushes_of_first == [], "a deposed owner flushed"
    assert rivals.deposed == 1


async def _open_and_forget(storage: ChunkStorage, epoch: int) -> None:
    await _open(storage, epoch)


def test_an_owner_that_slept_while_its_number_was_collected_is_deposed() -> None:
    _sleep_while_successors_collect(_Rivals())


def test_an_owner_that_does_not_list_after_its_manifest_is_found_out() -> None:
    with no_list_after_manifest(), pytest.raises(AssertionError, match="deposed owner flushed"):
        _sleep_while_successors_collect(_Rivals())
