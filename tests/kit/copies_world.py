"""A store's copies under test: a local log, a leader that writes, a caller that listens."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import IdSource, SeededIds
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.copy import Copy
from anabranch.segstore.adapters.replicated_log.records import LocalLog
from anabranch.segstore.domain.log.replica.history import Counted, History, Position, Record
from anabranch.segstore.domain.log.replica.records import decode_record, encode_first
from anabranch.segstore.domain.log.stream.messages import (
    NOTHING,
    FrameFields,
    Link,
    frame_head,
    log_seed,
)
from kit.virtual_time import VirtualClock

CONTAINER = 3
LOG = "log-1"
NODE = "store-a"


class Gate:
    """A `Schedule` on the running loop that can be held: then no commit begins."""

    def __init__(self) -> None:
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        if self.held:
            self._waiting.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def open(self) -> None:
        """Let everything happen that was held up."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            self(callback)


class Leader:
    """Writes the messages of a log, and keeps them; its history is that of its own copy."""

    def __init__(self, container: int = CONTAINER, log_id: str = LOG, base: Link = NOTHING) -> None:
        self.container = container
        self.seed = log_seed(log_id)
        self.history = History(base)
        self.messages: list[bytes] = []

    def open(self, epoch: int) -> bytes:
        """The opening of an epoch, behind the present end."""
        return self._take(encode_first(self.container, epoch, self.history.end, self.seed))

    def frame(self, count: int = 1, content: bytes = b"operation") -> bytes:
        """The next frame of the epoch."""
        end = self.history.end
        fields = FrameFields(self.container, end.container_epoch, end.last_sequence + 1, count)
        head, _ = frame_head(
            fields, [content], number=end.number + 1, previous_crc=end.crc, confirmed=0,
            seed=self.seed,
        )  # fmt: skip
        return self._take(head + content)

    def _take(self, data: bytes) -> bytes:
        record = self.record(data)
        self.messages.append(data)
        self.history.add(record.message, record.opening, len(self.messages))
        return data

    def record(self, data: bytes) -> Record:
        """A message, decoded."""
        return decode_record(data, self.seed, len(self.messages) + 1)

    @property
    def position(self) -> Position:
        """The position of the last message."""
        end = self.history.end
        return end.container_epoch, end.number

    def twin(self) -> "Leader":
        """Another leader with the same messages so far."""
        twin = Leader(self.container)
        for data in self.messages:
            twin._take(data)
        return twin


@dataclass(eq=False)
class Listening:
    """A `CopyCaller` that remembers what it was told."""

    reports: list[Position] = field(default_factory=list)
    refusals: list[AnabranchError] = field(default_factory=list)
    flushes: int = 0

    def synced(self, container: int, container_epoch: int, through: Position) -> None:
        assert container == CONTAINER
        assert container_epoch
        self.reports.append(through)

    def flush_wanted(self, container: int, container_epoch: int) -> None:
        assert container == CONTAINER
        assert container_epoch
        self.flushes += 1

    def refused(self, container: int, container_epoch: int, error: AnabranchError) -> None:
        assert container == CONTAINER
        assert container_epoch
        self.refusals.append(error)


class CopyStore:
    """One life of a store with copies in `local`, on the running loop."""

    def __init__(self, local: LocalLog, schedule: Schedule, ids: IdSource | None = None) -> None:
        self.local = local
        self.failures: list[AnabranchError] = []
        self.broken: list[BaseException] = []
        """The errors that ended tasks, such as a simulated crash."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.copies = Copies(
            local, NODE, ids or SeededIds(1), VirtualClock(asyncio.get_running_loop()),
            schedule=schedule, spawn=self._spawn, on_failure=self.failures.append,
        )  # fmt: skip

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self.broken += [error for error in [task.exception()] if error is not None]

    async def settled(self) -> None:
        """Wait until nothing is under way any more, not counting waits for time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def copy(self) -> Copy:
        """The copy of the log, which must exist."""
        copy = await self.copies.find(CONTAINER, LOG)
        assert copy is not None
        return copy

    async def fed_copy(self, leader: Leader, caller: Listening, epoch: int) -> Copy:
        """A new copy of the leader's log, with all messages so far."""
        await self.copies.promise(CONTAINER, LOG, epoch, caller)
        await self.copies.reset(CONTAINER, LOG, epoch, leader.history.base, caller)
        for data in leader.messages:
            self.append(data, caller, epoch)
        await self.settled()
        return await self.copy()

    def append(self, data: bytes, caller: Listening, epoch: int) -> None:
        """Send one message to the copy."""
        self.copies.append(CONTAINER, epoch, data, caller)


def memory_store(frames: MemoryFrames, gate: Gate) -> CopyStore:
    """A store whose log is in memory; another one on the same frames is its next life."""
    return CopyStore(MemoryLog(frames, gate), gate, SeededIds(frames.owner + 1))


def append_own(
    copy: Copy, leader: Leader, data: bytes, on_synced: Callable[[Counted], None], epoch: int
) -> Counted:
    """Append a message as the leader of the log does to its own copy."""
    record = leader.record(data)
    return copy.append((data,), record.message, record.opening, on_synced, container_epoch=epoch)


class FedStore:
    """A store in memory, a leader with an opening and two frames, and the leader's caller."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.frames = MemoryFrames("journal")
        self.store = memory_store(self.frames, self.gate)
        self.caller = Listening()
        self.leader = Leader()
        self.leader.open(5)
        self.leader.frame()
        self.leader.frame(3)

    def restart(self) -> None:
        """The store's next life."""
        self.store.copies.close()
        self.store = memory_store(self.frames, self.gate)
