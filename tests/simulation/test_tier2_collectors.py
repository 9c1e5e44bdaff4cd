"""Three owners of a container that write snapshots, rewrite and collect without grace.

Each of the first two stops between any two of its calls to tier 2 and wakes after its successors
have gone on: with its number collected, its snapshot's pages collected, or in the middle of its
open. Whatever the order: nothing is deleted that the newest state refers to, an owner makes and
deletes nothing visible once it is deposed, and the last state is whole. All replay one log.
"""

from collections.abc import Coroutine
from typing import Any

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptManifest, Deposed
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest
from anabranch.common.tier2.names import manifest_number
from anabranch.common.tier2.page_index import decode_index
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.chunk_faults import PausingStorage
from kit.container_driver import ManualTime
from kit.planted_tier2 import no_list_after_manifest, no_list_after_the_fence
from kit.rng import seeded
from kit.thorough import one_in
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, TIGHT, collect_all, go_on, run
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container

FLUSHES = {1: 3, 2: 2, 3: 4}
"""By epoch; the third has snapshots of its own and collects those of the second."""
LOG_STEPS = 12
SHARES = 4
ONE_IN = one_in(18)


def _journal(steps: int) -> ModelContainer:
    """The container after so many steps of the log that all owners share; 0: nothing at all."""
    if steps == 0:
        return ModelContainer()
    model = small_container()
    for step in range(steps - 1):
        go_on(model, step % 4)
    return model


SEQUENCES = [_journal(steps).sequence for steps in range(LOG_STEPS)]


class _Watched(MemoryChunkStorage):
    """Holds every deletion against the newest state there is."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted = 0

    async def delete(self, name: str) -> None:
        newest = await read_highest(self, CONTAINER)
        assert newest is not None
        self.deleted += name in self.objects
        assert name not in await self._needed(newest), f"{name} is deleted and needed"
        await super().delete(name)

    async def _needed(self, newest: Manifest) -> set[str]:
        quiet = MemoryChunkStorage()
        quiet.objects = self.objects
        catalog = await load_catalog(quiet, newest)
        needed = {e.ref.name for held in catalog.extents.values() for e in held}
        through = 0
        if newest.snapshot is not None:
            through = newest.snapshot.through
            index = decode_index(self.objects[newest.snapshot.index.name], "index")
            needed |= {ref.name for ref in index.pages} | {newest.snapshot.index.name}
        numbers = {name: manifest_number(CONTAINER, name) for name in self.objects}
        return needed | {name for name, number in numbers.items() if (number or 0) > through}


class _Owners:
    """One arrangement from scratch."""

    def __init__(self) -> None:
        self.storage = _Watched()
        self.deposed: set[int] = set()

    async def open(self, epoch: int, storage: ChunkStorage) -> ContainerTierTwo:
        opening = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime(), TIGHT)
        return await opening(CONTAINER, epoch, "log", new_log=True)

    async def live(self, epoch: int) -> None:
        try:
            tier_two = await self.open(epoch, PausingStorage(self.storage))
            for _ in range(FLUSHES[epoch]):
                steps = SEQUENCES.index(tier_two.applied_sequence)
                before, model = _journal(steps), _journal(steps + 1)
                await tier_two.flush(model.cut(before.catalog()), model.fetch)
                await self.check_newest(epoch)
                await collect_all(tier_two)
                if await tier_two.rewrite():
                    await tier_two.flush(model.cut(model.catalog()), model.fetch)
                    await self.check_newest(epoch)
        except Deposed:
            self.deposed.add(epoch)

    async def check_newest(self, epoch: int) -> None:
        newest = await read_highest(self.storage, CONTAINER)
        assert newest is not None
        assert newest.container_epoch == epoch, "a deposed owner flushed"

    async def check(self) -> None:
        last = await self.open(9, self.storage)
        model = _journal(SEQUENCES.index(last.applied_sequence))
        assert model.matches(await catalog_of(last))
        for _ in range(2):
            assert await read_back(last) == expected_contents(model)
            await collect_all(last)


Owner = Coroutine[Any, Any, None]


def _go(owner: Owner, steps: int | None = None) -> int:
    """Run an owner for so many pauses, or to its end; how many there were."""
    taken = 0
    while steps is None or taken < steps:
        try:
            owner.send(None)
        except StopIteration:
            return taken
        taken += 1
    return taken


def _finish(*owners: Owner) -> None:
    for owner in owners:
        if owner.cr_frame is not None:  # type: ignore[attr-defined]
            _go(owner)


def _pauses(epoch: int) -> int:
    """How often an owner pauses that is alone after those before it."""
    owners = _Owners()
    for before in range(1, epoch):
        _go(owners.live(before))
    return _go(owners.live(epoch))


def _arrange(first_steps: int, second_steps: int, *, second_wakes_first: bool) -> _Owners:
    owners = _Owners()
    first, second = owners.live(1), owners.live(2)
    _go(first, first_steps)
    _go(second, second_steps)
    _go(owners.live(3))
    assert 3 not in owners.deposed
    _finish(*((second, first) if second_wakes_first else (first, second)))
    run(owners.check())
    return owners


@pytest.mark.parametrize("share", range(SHARES))
def test_owners_that_wake_between_any_two_calls_delete_nothing_that_is_needed(share: int) -> None:
    arrangements = deleted = deposed = 0
    for first_steps in range(share, _pauses(1) + 1, SHARES):
        for second_steps in range(0, _pauses(2) + 1, ONE_IN):
            for wakes_first in (True, False):
                owners = _arrange(first_steps, second_steps, second_wakes_first=wakes_first)
                arrangements += 1
                deleted += owners.storage.deleted
                deposed += len(owners.deposed)
    assert arrangements >= 250 / ONE_IN
    assert deleted > arrangements * 5
    assert deposed > arrangements


def test_owners_in_random_order_delete_nothing_that_is_needed() -> None:
    for seed in range(150 // one_in(3)):
        rng = seeded(seed)
        owners = _Owners()
        running = [owners.live(epoch) for epoch in FLUSHES]
        while running:
            chosen = running[rng.randrange(len(running))]
            if _go(chosen, 1) == 0:
                running.remove(chosen)
        run(owners.check())


def _sleep_until_deposed_then_collect() -> None:
    owners = _Owners()

    async def sleep_and_collect() -> None:
        sleeper = await owners.open(1, owners.storage)
        for steps in range(1, 6):
            model = _journal(steps)
            await sleeper.flush(model.cut(await catalog_of(sleeper)), model.fetch)
        await owners.open(2, owners.storage)
        before = set(owners.storage.objects)
        with pytest.raises(Deposed):
            await sleeper.collect()
        assert set(owners.storage.objects) == before

    run(sleep_and_collect())


def test_an_owner_that_slept_until_it_was_deposed_deletes_nothing() -> None:
    _sleep_until_deposed_then_collect()


def test_an_owner_that_does_not_look_for_a_successor_before_it_deletes_is_found_out() -> None:
    with no_list_after_manifest(), pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        _sleep_until_deposed_then_collect()


def _sleep_in_the_open() -> None:
    """The second wakes in the middle of its open, when its fence's number was collected."""
    for second_steps in range(_pauses(2)):
        _arrange(0, second_steps, second_wakes_first=True)
        _arrange(_pauses(1) // 2, second_steps, second_wakes_first=True)


def test_an_open_that_does_not_list_after_its_fence_is_found_out() -> None:
    _sleep_in_the_open()
    with no_list_after_the_fence(), pytest.raises(CorruptManifest, match="missing"):
        _sleep_in_the_open()
