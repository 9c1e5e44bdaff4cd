"""The cost of a truncation that gives up 10,000 chunks of a segment, and of their deletion.

    .venv/bin/python -m bench.retention_costs [DIRECTORY]

A container over a journal in memory holds a segment in so many small chunks of its own. It is
truncated, which ends when the manifest without the chunks is durable. Then the chunks are deleted,
here without a grace time. Tier 2 is the memory, and a local directory (in DIRECTORY, or a temporary
one), whose file system decides how fast files are synced and deleted.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    AppendOnce,
    CreateSegment,
    Failed,
    Message,
    Request,
    Stamp,
    TruncateSegment,
)
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.domain.container.circumstances import Given, InTierTwo
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.lease import NO_LEASE, NoSession
from anabranch.segstore.shell.container.metrics import uncounted
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.container.tiered_boundaries import find_boundaries
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from anabranch.segstore.wiring.parts import call_later

CHUNKS = 10_000
EVENT_BYTES = 1024
APPENDS_PER_FLUSH = 1000
SEGMENT = "bench/stream/0.#epoch.0"
WRITER = bytes(16)
LOG_ID = "bench"


def _block(number: int) -> bytes:
    return encode_block(
        [bytes(EVENT_BYTES)], writer_id=WRITER, first_event_number=number, base_timestamp_ms=0
    )


BLOCK_BYTES = len(_block(1))
LIMITS = TierTwoLimits(chunks=ChunkLimits(chunk_max=BLOCK_BYTES, own_chunk_min=1), gc_grace_s=1e-6)


def main() -> None:
    """Print the figures."""
    asyncio.run(_measure("in memory", MemoryChunkStorage()))
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        disk = LocalDisk(Path(directory))
        storage = LocalChunkStorage(disk, SystemIds(), "bench", in_threads=True)
        storage.open()
        asyncio.run(_measure("in a directory", storage))


@dataclass(frozen=True, slots=True)
class _Parts:
    container: Container
    tier_two: ContainerTierTwo
    flusher: Flusher


async def _measure(where: str, storage: ChunkStorage) -> None:
    parts = await _opened(storage)
    await _ask(parts, CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)))
    for number in range(1, CHUNKS + 2):
        block = _block(number)
        append = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=number, count=1)
        await _ask(parts, append, Given(block))
        if number % APPENDS_PER_FLUSH == 0:
            await parts.flusher.flush()
    await parts.flusher.flush()
    await _collect(parts)
    _say(f"{where}: {CHUNKS} chunks of {BLOCK_BYTES} bytes")
    await _timed("truncated, and the manifest is durable", partial(_truncate, parts))
    await _timed("and the chunks are deleted", partial(_collect, parts))
    parts.container.applied.index.clear()


async def _timed(what: str, work: Callable[[], Awaitable[None]]) -> None:
    clock = SystemClock()
    began_s, used_s = clock.monotonic(), time.process_time()
    await work()
    taken_s, used_s = clock.monotonic() - began_s, time.process_time() - used_s
    _say(f"    {what}: {taken_s:.3f} s, {used_s:.3f} s of processor time")


async def _truncate(parts: _Parts) -> None:
    offset = CHUNKS * BLOCK_BYTES
    await _ask(parts, TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=offset))
    await parts.flusher.flush()


async def _collect(parts: _Parts) -> None:
    while await parts.tier_two.collect():
        pass


async def _ask(parts: _Parts, request: Request, given: Given | None = None) -> None:
    answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    place = parts.container.ask(request, answered.set_result, given or Given())
    if place is not None:
        assert isinstance(place, InTierTwo), "a truncation asks for a boundary"
        found = Given(tiered=await find_boundaries(parts.tier_two, place))
        assert parts.container.ask(request, answered.set_result, found) is None
    answer = await answered
    assert not isinstance(answer, Failed), answer


async def _opened(storage: ChunkStorage) -> _Parts:
    clock, ids = SystemClock(), SystemIds()
    tier_two = await OpenContainerTierTwo(storage, ids, clock, LIMITS)(0, 1, LOG_ID, new_log=True)
    throttle = Throttle(
        ThrottleLimits(untiered=1 << 40), journal_size=lambda: 0, no_room=lambda: False
    )
    around = Surroundings(
        clock=clock,
        cache=Cache(0),
        throttle=throttle,
        call_later=call_later,
        back_off_s=lambda _: 1.0,
        metrics=uncounted(),
        tracing=None,
        residency=ResidencyLimits(),
        session=NoSession(),
    )
    container = Container(0, 1, tier_two, around, NO_LEASE)
    frames = MemoryFrames("bench")
    frames.logs[0] = LOG_ID
    log = MemoryLog(frames, _soon)
    container.serve(await log.open_log(0, LOG_ID, 1, container))
    flusher = Flusher(
        container,
        tier_two,
        clock=clock,
        throttle=throttle,
        call_later=call_later,
        limits=FlushLimits(),
        back_off_s=around.back_off_s,
    )
    container.residency.pin(SEGMENT)
    container.load_first([SEGMENT], lambda: None, _refused)
    await container.loading.load_next()
    return _Parts(container, tier_two, flusher)


def _soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _refused(error: Exception) -> None:
    raise error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
