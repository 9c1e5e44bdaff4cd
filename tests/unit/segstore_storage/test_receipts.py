"""Receipts of manifests: aside from flushes, tried until they are there, one at a time."""

import asyncio
from collections.abc import Sequence

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import DiskFailed
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.names import manifest_number, receipt_number
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.receipts import REST_AFTER_FAILURE_S
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, SEGMENT
from kit.tier2_model import ModelContainer, small_container
from kit.virtual_time import VirtualClock, run_virtual


class GatedStorage(MemoryChunkStorage):
    """Receipts wait until the gate is open, or are refused while it is `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.broken = False
        self.asked = 0

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        if receipt_number(CONTAINER, name) is not None:
            self.asked += 1
            await self.gate.wait()
            if self.broken:
                raise DiskFailed("the disk is full")
        await super().put_new(name, parts)

    @property
    def receipts(self) -> list[int]:
        found = (receipt_number(CONTAINER, name) for name in sorted(self.objects))
        return [number for number in found if number is not None]

    @property
    def newest(self) -> int:
        return max(manifest_number(CONTAINER, name) or 0 for name in self.objects)


async def opened(storage: GatedStorage, clock: VirtualClock, epoch: int) -> ContainerTierTwo:
    opening = OpenContainerTierTwo(storage, SeededIds(epoch), clock)
    return await opening(CONTAINER, epoch, "log", new_log=epoch == 1)


async def flush(tier_two: ContainerTierTwo, model: ModelContainer) -> None:
    model.append(SEGMENT, b"more")
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)


def test_no_flush_waits_for_a_receipt_and_the_newest_manifest_gets_one() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        storage, model = GatedStorage(), small_container()
        tier_two = await opened(storage, clock, 1)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(tier_two.leave_receipts())
            await clock.sleep(1)
            assert storage.asked == 1
            for _ in range(3):
                await flush(tier_two, model)
            assert storage.receipts == []
            storage.gate.set()
            await clock.sleep(1)
            assert storage.receipts == [storage.newest]
            leaving.cancel()
        # the next owner, after a crash before a receipt, leaves its own and no other
        await flush(tier_two, model)
        successor = await opened(storage, clock, 2)
        await successor.confirm()
        assert storage.receipts == [storage.newest]
        asked = storage.asked
        await successor.confirm()
        assert storage.asked == asked

    run_virtual(scenario())


def test_a_receipt_that_cannot_be_left_is_tried_until_it_can() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        storage = GatedStorage()
        storage.gate.set()
        storage.broken = True
        tier_two = await opened(storage, clock, 1)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(tier_two.leave_receipts())
            await clock.sleep(3.5 * REST_AFTER_FAILURE_S)
            assert storage.asked == 4
            storage.broken = False
            await clock.sleep(REST_AFTER_FAILURE_S)
            assert storage.receipts == [storage.newest]
            leaving.cancel()

    run_virtual(scenario())
