"""What every chunk storage promises, whatever it stands on."""

import asyncio
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from anabranch.common.adapters.chunk_bucket import bucket_storage
from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.chunk_objects import ObjectChunkStorage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import CorruptChunk, ObjectExists, ObjectNotFound
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.probe import probe_create_only
from kit.rng import seeded
from kit.s3_server import S3Server
from kit.simdisk import SimDisk

NAME = "c3/0000000007-0000000001"


@pytest.fixture(
    params=[
        "memory",
        "simulated disk",
        "local disk",
        "local disk with a deadline",
        "objects in memory",
        "objects on a server",
    ]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ChunkStorage:
    if request.param == "memory":
        return MemoryChunkStorage()
    if request.param == "objects in memory":
        store = MemoryStore()
        return ObjectChunkStorage(store, store, SystemClock(), seeded(0))
    if request.param == "objects on a server":
        server: S3Server = request.getfixturevalue("s3_server")
        return bucket_storage(
            server.location(), server.options(tmp_path), SystemClock(), limit_s=20.0
        )
    if request.param == "simulated disk":
        simulated = LocalChunkStorage(SimDisk(), SeededIds(1), "node-1", in_threads=False)
        simulated.open()
        return simulated
    local = LocalChunkStorage(LocalDisk(tmp_path), SeededIds(1), "node-1", in_threads=True)
    local.open()
    return local if request.param == "local disk" else DeadlineChunkStorage(local, 60.0)


async def test_what_was_put_is_got_whole_and_in_ranges(storage: ChunkStorage) -> None:
    await storage.put_new(NAME, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert await storage.get(NAME) == b"abcdefghi"
    assert await storage.get_range(NAME, 2, 4) == b"cdef"
    assert await storage.get_range(NAME, 9, 0) == b""
    assert await storage.size(NAME) == 9


async def test_a_name_is_taken_once(storage: ChunkStorage) -> None:
    await storage.put_new(NAME, [b"first"])
    with pytest.raises(ObjectExists):
        await storage.put_new(NAME, [b"second"])
    assert await storage.get(NAME) == b"first"


async def test_of_many_racers_for_a_name_one_wins(storage: ChunkStorage) -> None:
    await probe_create_only(storage, SeededIds(7))
    assert await storage.list("probe/") == []


async def test_what_is_not_there_is_not_found(storage: ChunkStorage) -> None:
    for call in (storage.get(NAME), storage.get_range(NAME, 0, 1), storage.size(NAME)):
        with pytest.raises(ObjectNotFound):
            await call


async def test_a_range_beyond_the_end_is_refused_never_shortened(storage: ChunkStorage) -> None:
    await storage.put_new(NAME, [b"abc"])
    with pytest.raises(CorruptChunk):
        await storage.get_range(NAME, 1, 3)


async def test_a_list_is_sorted_and_holds_what_starts_with_the_prefix(
    storage: ChunkStorage,
) -> None:
    names = ["c3/m/0000000002", "c3/m/0000000001", "c30/m/0000000001", "c3/0000000001-0000000001"]
    for name in names:
        await storage.put_new(name, [b"x"])
    assert await storage.list("c3/m/") == ["c3/m/0000000001", "c3/m/0000000002"]
    assert await storage.list("c3/") == sorted(name for name in names if name < "c30")
    assert await storage.list("c3") == sorted(names)
    assert await storage.list("c3/m/0000000002") == ["c3/m/0000000002"]
    assert await storage.list("c4/") == []


async def test_deleting_twice_is_success(storage: ChunkStorage) -> None:
    await storage.put_new(NAME, [b"x"])
    await storage.delete(NAME)
    await storage.delete(NAME)
    assert await storage.list("") == []


async def test_objects_of_many_parts_and_of_no_bytes_are_kept(storage: ChunkStorage) -> None:
    await storage.put_new(NAME, [b"%d," % part for part in range(3000)])
    assert await storage.get(NAME) == b"".join(b"%d," % part for part in range(3000))
    await storage.put_new("empty", [])
    assert await storage.size("empty") == 0


async def test_puts_may_run_side_by_side(storage: ChunkStorage) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(storage.put_new(f"c1/m/{number:010}", [b"%d" % number]))
    assert [await storage.get(name) for name in await storage.list("c1/m/")] == [
        b"%d" % number for number in range(8)
    ]
