"""The list of drained stores: changed by compare-and-set, whoever else changes it."""

import pytest

from anabranch.common.contracts.cluster import DRAINS_KEY, StoredDrains
from anabranch.common.contracts.queries import DrainStore, UndrainStore
from anabranch.common.errors import Corrupt, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.domain.cluster.placement_actions import (
    StoreView,
)

KNOWN = ("a", "b", "c")


class Contested(InMemoryObjectStore):
    """An object store in which another operator changes the list before each of some writes."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def _interfere(self) -> None:
        if self.left == 0:
            return
        self.left -= 1
        found = await super().get(DRAINS_KEY)
        value = StoredDrains(nodes=(f"other-{self.left}",)).to_bytes()
        if found is None:
            await super().create(DRAINS_KEY, value)
        else:
            await super().update(DRAINS_KEY, value, found.revision)

    async def create(self, key: str, value: bytes) -> int:
        await self._interfere()
        return await super().create(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        await self._interfere()
        return await super().update(key, value, revision)


async def stored(objects: InMemoryObjectStore) -> tuple[str, ...]:
    found = await objects.get(DRAINS_KEY)
    assert found is not None
    return StoredDrains.parsed(found.value).nodes


async def test_a_change_is_made_on_the_list_that_others_changed_meanwhile() -> None:
    objects = Contested(2)
    drains = Drains(objects, SystemClock())
    assert await drains.perform(DrainStore(node_id="a"), KNOWN)
    assert await stored(objects) == ("a", "other-0")
    assert drains.nodes == {"a", "other-0"}


async def test_a_list_that_changes_all_the_time_is_refused_in_the_end() -> None:
    drains = Drains(Contested(1000), SystemClock())
    with pytest.raises(Unavailable):
        await drains.perform(DrainStore(node_id="a"), KNOWN)


async def test_a_repeated_change_writes_nothing() -> None:
    objects = InMemoryObjectStore()
    drains = Drains(objects, SystemClock())
    for _ in range(2):
        assert await drains.perform(DrainStore(node_id="a"), KNOWN)
    before = await objects.get(DRAINS_KEY)
    assert await drains.perform(DrainStore(node_id="a"), KNOWN)
    assert await objects.get(DRAINS_KEY) == before
    assert not await drains.perform(UndrainStore(node_id="b"), KNOWN)
    assert await objects.get(DRAINS_KEY) == before


async def test_a_damaged_list_is_not_overwritten() -> None:
    objects = InMemoryObjectStore()
    await objects.create(DRAINS_KEY, b"{")
    with pytest.raises(Corrupt):
        await Drains(objects, SystemClock()).perform(DrainStore(node_id="a"), KNOWN)


async def test_only_drained_stores_are_marked() -> None:
    drains = Drains(InMemoryObjectStore(), SystemClock())
    await drains.perform(DrainStore(node_id="a"), KNOWN)
    marked = drains.marked({"a": StoreView(True), "b": StoreView(True)})
    assert [marked[name].draining for name in ("a", "b")] == [True, False]
