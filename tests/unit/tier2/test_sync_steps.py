"""An object of the local tier 2 is written and synced in steps."""

from collections.abc import Sequence

import pytest

from anabranch.common.adapters import chunk_local
from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer
from kit.simdisk import SimDisk, SimFile

STEP = 10


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ((3,), [3]),
        ((10,), [10]),
        ((25,), [10, 10, 5]),
        ((4, 4, 4), [10, 2]),
        ((1,) * 23, [10, 10, 3]),
        ((9, 0, 30, 1), [10, 10, 10, 10]),
    ],
)
async def test_each_step_is_synced_before_the_next_is_written(
    monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int], steps: list[int]
) -> None:
    calls: list[int | str] = []
    write, sync = SimFile.write, SimFile.sync

    def noted_write(self: SimFile, buffers: Sequence[Buffer], offset: int) -> None:
        calls.append(sum(map(len, buffers)))
        write(self, buffers, offset)

    def noted_sync(self: SimFile) -> None:
        calls.append("sync")
        sync(self)

    monkeypatch.setattr(chunk_local, "SYNC_STEP_SIZE_BYTES", STEP)
    storage = LocalChunkStorage(SimDisk(), SeededIds(1), "node-1", in_threads=False)
    storage.open()
    monkeypatch.setattr(SimFile, "write", noted_write)
    monkeypatch.setattr(SimFile, "sync", noted_sync)
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]

    await storage.put_new("c1/0000000001-0000000001", parts)

    written = [call for step in steps for call in (step, "sync")]
    assert [call for call in calls if call][: len(written)] == written
    assert await storage.get("c1/0000000001-0000000001") == b"".join(parts)
