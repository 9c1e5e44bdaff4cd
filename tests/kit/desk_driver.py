"""Desks of connections over a container driven by hand: real reads, turns, read-ahead; no sockets.

`ask` submits a read and lets the event loop run until nothing moves any more. What tier 2 and the
journal are asked for is counted; `CountingStorage.gate` makes tier 2 wait.
"""

import asyncio
from collections.abc import Coroutine
from typing import cast

from anabranch.common.wire.messages import Failed, Message, ReadSegment, SegmentRead
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.memory.granule import Bytes
from anabranch.segstore.shell.memory.outgoing import SIZE_BYTES_MAX, Outgoing
from anabranch.segstore.shell.memory.read_ahead import ReadAhead
from kit.container_driver import SEGMENT
from kit.store_parts import a_store
from kit.tiered_driver import InterruptedStorage, TieredDriver

_TURNS_MAX = 2000
KIB = 1024


class CountingStorage(InterruptedStorage):
    """`ranges`: what was read, (name, offset, length). Reads wait for `gate`, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[str, int, int]] = []
        self.gate: asyncio.Event | None = None
        self.under_way = 0
        self.under_way_max = 0

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.ranges.append((name, offset, length))
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return await super().get_range(name, offset, length)
        finally:
            self.under_way -= 1

    @property
    def size_read(self) -> int:
        return sum(length for _, _, length in self.ranges)


class Desk:
    """One connection's reads. `answers`: request id → (message, payload)."""

    def __init__(self, driver: "DeskDriver") -> None:
        self.answers: dict[int, tuple[Message, bytes]] = {}
        self.order: list[int] = []
        self._driver = driver
        self._last_id = 0
        self.reads = ReadDesk(driver.store, self._answered, driver.spawn)

    def _answered(self, message: Message, request_id: int, data: Bytes) -> None:
        assert request_id not in self.answers, "a read is answered once"
        self.answers[request_id] = (message, bytes(data))
        self.order.append(request_id)
        self._driver.order.append(self)

    def submit(
        self, offset: int, size: int, *, segment: str = SEGMENT, wait_ms: int = 0,
        whole_appends: bool = True,
    ) -> int:  # fmt: skip
        """Only inside the event loop. Returns the request's id."""
        self._last_id += 1
        request = ReadSegment(
            segment=segment, offset=offset, size_max=size, wait_ms=wait_ms,
            whole_appends=whole_appends,
        )  # fmt: skip
        self.reads.submit(self._last_id, request)
        return self._last_id

    def ask(
        self, offset: int, size: int, *, segment: str = SEGMENT, whole_appends: bool = True
    ) -> tuple[Message, bytes]:
        """One read and its answer, at rest."""

        async def asking() -> int:
            return self.submit(offset, size, segment=segment, whole_appends=whole_appends)

        request_id = self._driver.wait(asking())
        self._driver.settle()
        return self.answers[request_id]

    def read(self, offset: int, size: int, *, whole_appends: bool = True) -> bytes:
        """The payload of an answer that is no refusal."""
        reply, data = self.ask(offset, size, whole_appends=whole_appends)
        assert isinstance(reply, SegmentRead), reply
        assert reply.offset == offset
        return data

    def read_on(self, offset: int, end: int, size: int, *, whole_appends: bool = True) -> bytes:
        """[offset, end) by reads in order."""
        parts = [b""]
        while offset < end:
            parts.append(self.read(offset, size, whole_appends=whole_appends))
            assert parts[-1]
            offset += len(parts[-1])
        return b"".join(parts)

    def code(self, request_id: int) -> str:
        reply, _ = self.answers[request_id]
        assert isinstance(reply, Failed), reply
        return reply.code


class DeskDriver(TieredDriver):
    """A store of one container, and desks. Call `finish` at the end."""

    def __init__(self, *, cache_size: int, unsent_max: int = SIZE_BYTES_MAX) -> None:
        self.counted = CountingStorage()
        super().__init__(cache_size=cache_size, storage=self.counted)
        ahead = ReadAhead(self.cache, self.time, self.time.call_later)
        self.catch_up = CatchUp(ahead, outgoing=Outgoing(unsent_max))
        self.store = a_store(1, self.catch_up)
        self.store.assign(0)
        self.store.opened(self.opened(self.catch_up))
        self.frames_read: list[LogAddress] = []
        self.order: list[Desk] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._count_frames()

    def _count_frames(self) -> None:
        log = self.container.log
        real = log.read_aside

        async def read_aside(address: LogAddress) -> bytes:
            self.frames_read.append(address)
            await asyncio.sleep(0)
            return await real(address)

        log.read_aside = read_aside  # type: ignore[method-assign]

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def settle(self) -> None:
        """Run until nothing moves any more."""
        self.wait(self._settled())

    async def _settled(self) -> None:
        for _ in range(_TURNS_MAX):
            if not self._tasks or (self.counted.under_way and self.counted.gate):
                break
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)

    def fill(
        self, count: int, *, size: int = 10 * KIB, per_frame: int = 1, first: int = 1
    ) -> bytes:
        """Append `count` blocks of about `size` bytes, different ones; returns all bytes."""
        if first == 1:
            self.create()
        session = self.setup()
        found = []
        for number in range(first, first + count):
            event = number.to_bytes(4, "big") * (size // 4)
            found.append(self.append(session, number, [event]))
            if (number - first + 1) % per_frame == 0:
                self.commit()
        self.commit()
        return b"".join(found)

    def drop_tail(self) -> None:
        """The memory loses all bytes of the tail; its budget stays."""
        size_max, self.cache.size_max = self.cache.size_max, 0
        self.cache._make_room()
        self.cache.size_max = size_max

    def finish(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        self.settle_cancelled()
        super().finish()

    def settle_cancelled(self) -> None:
        if self._tasks:
            self.wait(_ended(cast("set[asyncio.Task[None]]", set(self._tasks))))


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
