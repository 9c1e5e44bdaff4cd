"""The records of one copy in the store's own log, in the order of their numbers.

Each record is one frame of the local log: its sequence number is the record's number, from 1 on.
The local container epoch counts the openings of this log by processes of the store; it is no epoch
of the replicated log, because a copy may be created twice under one of these.

    append ──► queued ──take_frame──► being written ──frame_durable──► its address is known

State owned: the records that are not synced yet, and the addresses of those that are.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from anabranch.common.errors import AnabranchError, ObjectNotFound, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.ports import ContainerLog, DurableDataLog, FrameContents, LogAddress

WAIT_S_MAX = 5.0
"""How long a copy waits for its local log."""
RETRY_S = 0.005
YIELD_SIZE_BYTES = 4 * 1024 * 1024
"""How much an opening reads before it lets other tasks run."""

T = TypeVar("T")
Spawn = Callable[[Coroutine[None, None, None]], object]

_log = get_logger(__name__)


class LocalLog(DurableDataLog, Protocol):
    """The log of this store alone: a journal, or memory."""

    def logs(self) -> Mapping[int, str]:
        """Container → log id."""
        ...

    def highest_epoch(self, container: int) -> int:
        """The highest container epoch under which a log of the container was opened here."""
        ...

    def oldest_sequence(self, container: int) -> int:
        """The first operation of the container's frames that were not released; 0 without one."""
        ...


@dataclass(frozen=True, slots=True)
class Local:
    """The local log and the runtime of the copies in it.

    `on_failure` is called when the local log failed for all copies, so the store must end; it may
    be called once for each copy.
    """

    log: LocalLog
    clock: Clock
    schedule: Schedule
    spawn: Spawn
    on_failure: Callable[[AnabranchError], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    contents: FrameContents
    on_synced: Callable[[int], None]


class Records:
    """`FrameSource` of one copy.

    `failure`: the error that ended it, or the reason of its closing; None while it takes records.
    `on_end` is called once, with the failure.
    """

    def __init__(self, local: Local, container: int) -> None:
        self._local = local
        self._container = container
        self.on_end: Callable[[AnabranchError], None] = _nothing
        self._view: ContainerLog | None = None
        self._queued: deque[_Pending] = deque()
        self._writing: deque[_Pending] = deque()
        self._addresses: dict[int, LogAddress] = {}
        self._last = 0
        self._synced = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._release_to = 0
        """The last record that shall be released."""
        self._released = 0
        self._releasing = False
        self.failure: AnabranchError | None = None

    # --- opening and closing ------------------------------------------------------------------

    async def open(self, name: str) -> AsyncIterator[tuple[int, bytes]]:
        """Open the log `name` and read its records: number, bytes. Read it to its end first.

        Raises LogNotHere, CorruptJournal, Unavailable.
        """
        log = self._local.log

        async def open_view() -> ContainerLog:
            epoch = log.highest_epoch(self._container) + 1
            return await log.open_log(self._container, name, epoch, self)

        view = self._view = await until_written(self._local, open_view)
        oldest = log.oldest_sequence(self._container)
        self._last = self._synced = self._release_to = self._released = max(0, oldest - 1)
        size = 0
        async for frame in view.replay(self._last):
            self._last = self._synced = frame.first_sequence
            self._addresses[frame.first_sequence] = frame.address
            yield frame.first_sequence, frame.payload
            size += len(frame.payload)
            if size > YIELD_SIZE_BYTES:
                size = 0
                await self._local.clock.sleep(0)

    def close(self, reason: AnabranchError) -> None:
        """Write nothing more; frames on their way may still reach the disk. Repeatable."""
        if self._view is not None:
            self._view.close()
        self._end(reason)

    def _end(self, failure: AnabranchError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        self._queued.clear()
        self._writing.clear()
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(failure)
        self.on_end(failure)

    # --- appending ----------------------------------------------------------------------------

    @property
    def synced(self) -> int:
        """The last record that is synced."""
        return self._synced

    @property
    def idle(self) -> bool:
        """Whether every record is synced."""
        return self._synced == self._last

    def append(self, record: Sequence[Buffer], on_synced: Callable[[int], None]) -> int:
        """Append a record and return its number; `on_synced` gets it when the record is durable.

        The buffers must not change until then. Raises the failure.
        """
        if self.failure is not None:
            raise self.failure
        assert self._view is not None, "the records were not read"
        self._last += 1
        contents = FrameContents(self._last, 1, record, sum(map(len, record)))
        self._queued.append(_Pending(contents, on_synced))
        self._view.ready()
        return self._last

    async def wait(self) -> None:
        """Wait until the records that were appended so far are synced.

        Raises the failure; Unavailable after `WAIT_S_MAX`.
        """
        if self.failure is not None:
            raise self.failure
        if self.idle:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((self._last, waiter))
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await waiter
        except TimeoutError:
            raise Unavailable(
                "the store's log did not write the records of a copy in time",
                container=self._container, seconds=WAIT_S_MAX,
            ) from None  # fmt: skip

    # --- ports.FrameSource --------------------------------------------------------------------

    def take_frame(self, size_max: int) -> FrameContents | None:  # noqa: ARG002
        """See `FrameSource`: one record of any size."""
        if not self._queued:
            return None
        pending = self._queued.popleft()
        self._writing.append(pending)
        return pending.contents

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """See `FrameSource`."""
        pending = self._writing.popleft()
        assert pending.contents is contents, "records become durable in order"
        self._synced = contents.first_sequence
        self._addresses[self._synced] = address
        pending.on_synced(self._synced)
        while self._waiters and self._waiters[0][0] <= self._synced:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def log_failed(self, error: AnabranchError) -> None:
        """See `FrameSource`."""
        self._end(error)

    def journal_failed(self, error: AnabranchError) -> None:
        """See `FrameSource`."""
        self._end(error)
        self._local.on_failure(error)

    # --- reading and releasing ----------------------------------------------------------------

    async def read(self, number: int) -> bytes:
        """The bytes of a record. Raises ObjectNotFound if it was released; the failure,
        CorruptJournal, Unavailable."""
        if self.failure is not None:
            raise self.failure
        for pending in (*self._writing, *self._queued):
            if pending.contents.first_sequence == number:
                return b"".join(pending.contents.payload)
        address = self._addresses.get(number)
        if address is None:
            raise ObjectNotFound("the record was released", record=number)
        assert self._view is not None
        return await self._view.read_aside(address)

    async def read_from(self, number: int) -> AsyncIterator[tuple[int, bytes]]:
        """The synced records from this one on, which was not released: number, bytes.

        Faster than `read` for many records, but it blocks commits. Raises the errors of `read`.
        """
        if self.failure is not None:
            raise self.failure
        assert self._view is not None
        async for frame in self._view.replay(number - 1):
            yield frame.first_sequence, frame.payload

    def release(self, below: int) -> None:
        """Let the local log forget the records below this one, soon; it must be synced."""
        self._forget(below)
        if self._released < self._release_to and not self._releasing and self.failure is None:
            self._releasing = True
            self._local.spawn(self._release_soon())

    async def release_now(self, below: int) -> None:
        """Like `release`; on return the local log has forgotten them. Raises its errors."""
        self._forget(below)
        await self._release()

    def _forget(self, below: int) -> None:
        assert below <= self._synced, "a copy would be empty after a crash"
        for number in range(self._release_to + 1, below):
            self._addresses.pop(number, None)
        self._release_to = max(self._release_to, below - 1)

    async def _release(self) -> None:
        while self._released < self._release_to and self.failure is None:
            assert self._view is not None
            through = self._release_to
            await self._view.release(through)
            self._released = through

    async def _release_soon(self) -> None:
        try:
            await self._release()
        except AnabranchError as error:
            _log.warning(
                "records of a copy were not released, a later release does it",
                container=self._container, error=str(error),
            )  # fmt: skip
        finally:
            self._releasing = False


async def until_written(local: Local, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work; repeat it while frames of an older view are still being written.

    Raises Unavailable after `WAIT_S_MAX`, and the other errors of the work.
    """
    deadline = local.clock.monotonic() + WAIT_S_MAX
    while True:
        try:
            return await work()
        except Unavailable:
            if local.log.failure is not None or local.clock.monotonic() >= deadline:
                raise
        await local.clock.sleep(RETRY_S)


def _nothing(_: AnabranchError) -> None:
    return
