"""The directory of tier 2 shrinks when streams that share chunks are truncated, in virtual time."""

from anabranch.common.wire.messages import Stamp
from kit.rng import seeded
from kit.simdisk import LOSE_ALL, SimDisk
from kit.store_check import check_everything
from kit.store_requests import create, flush, truncate
from kit.store_world import TIER_TWO_LIMITS, Client, Life, World
from kit.store_writer import WriterScript

SEGMENTS = [f"s/a/{number}.#epoch.0" for number in range(6)]
KEPT, TRUNCATED = SEGMENTS[0], SEGMENTS[1:]
FLUSHES = 8
ROUNDS_S = 60.0
"""Enough for several rounds of the collector, and more than the grace."""


def _size(disk: SimDisk) -> int:
    """Bytes of all objects of the container."""
    paths = [f"{path}/{name}" for path in ("c0", "c0/m") for name in disk.list(path)]
    return sum(disk.open(path).size() for path in paths if path.endswith(".obj"))


def test_the_directory_shrinks_although_one_stream_of_every_chunk_keeps_everything() -> None:
    world = World(container_count=1, flush_bytes=1 << 30, segments_in_memory=3)
    sizes: list[int] = []

    async def write_and_truncate(life: Life) -> None:
        await life.opened()
        client, rng = Client(life), seeded(5)
        for segment in SEGMENTS:
            await create(client, segment, Stamp(1, 1))
        writers = [
            WriterScript(segment, bytes([number]) * 16, world.history, rng)
            for number, segment in enumerate(SEGMENTS, 1)
        ]
        for _ in range(FLUSHES):
            for writer in writers:
                assert await writer.begin(client)
                for _ in range(4):
                    writer.send(client, 4)
            await flush(client, 0)
        sizes.append(_size(world.tier_disk))
        for segment in TRUNCATED:
            await truncate(client, segment, 1.0, Stamp(1, 2))
        await flush(client, 0)
        await life.clock.sleep(ROUNDS_S)
        sizes.append(_size(world.tier_disk))
        content, _ = await client.read_all(KEPT)
        sizes.append(len(content))

    assert world.run(write_and_truncate)
    full, left, live = sizes
    assert full > 5 * live
    assert live < left < 1.5 * live, "catalog and footers come on top of the live bytes"
    for survival in (None, LOSE_ALL):
        world.kill() if survival is None else world.power_loss(survival)
        assert world.run(check_everything)
    assert TIER_TWO_LIMITS.gc_grace_s < ROUNDS_S
