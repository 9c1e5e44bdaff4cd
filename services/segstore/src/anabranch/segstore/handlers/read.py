"""Reads of one connection: a bounded queue that produces only what the connection takes.

    submitted ──► ready ──► answered from memory or the journal
                    ▲  ├──► reading from tier 2 (a few at a time) ──► answered
                    │  ├──► waiting until the segment is resident ──► as above
                    │  └──► waiting at the tail
                    └── woken, time up ──┘

While the connection's write buffer is full nothing is read, so its replies need no more memory
than a few reads.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from anabranch.common.errors import AnabranchError, Overloaded
from anabranch.common.wire.messages import Message, ReadSegment, failed
from anabranch.segstore.handlers.control import TIER_TWO_DEADLINE_S, Spawn, tier_two_error
from anabranch.segstore.shell.reader import read_now, read_tiered
from anabranch.segstore.shell.segment_index import InTierTwo
from anabranch.segstore.shell.store import OpenContainer, Store

OUTSTANDING_MAX = 1024
TIER_TWO_READS_MAX = 4
WAIT_S_MAX = 60.0

SendData = Callable[[Message, int, bytes], None]
"""(message, request id, payload)."""


class _Read:
    __slots__ = ("cancel_wait", "request", "request_id", "waited")

    def __init__(self, request_id: int, request: ReadSegment) -> None:
        self.request_id = request_id
        self.request = request
        self.waited = False
        self.cancel_wait: Callable[[], None] | None = None


class ReadDesk:
    """The reads of one connection."""

    def __init__(self, store: Store, send: SendData, spawn: Spawn) -> None:
        self._store = store
        self._send = send
        self._spawn = spawn
        self._ready: deque[_Read] = deque()
        self._outstanding: set[_Read] = set()
        self._in_tier_two = 0
        self._paused = False
        self._pumping = False

    def submit(self, request_id: int, request: ReadSegment) -> None:
        """ReadSegment → SegmentRead. Raises Overloaded."""
        if len(self._outstanding) >= OUTSTANDING_MAX:
            raise Overloaded("the connection has too many reads", limit=OUTSTANDING_MAX)
        read = _Read(request_id, request)
        self._outstanding.add(read)
        self._make_ready(read)

    def pause(self) -> None:
        """The connection takes no more for now."""
        self._paused = True

    def resume(self) -> None:
        """The connection takes more."""
        self._paused = False
        self._pump()

    def close(self) -> None:
        """The connection is gone: nothing is answered any more."""
        self._paused = True
        self._ready.clear()
        for read in self._outstanding:
            if read.cancel_wait is not None:
                read.cancel_wait()
        self._outstanding.clear()

    def _make_ready(self, read: _Read) -> None:
        self._ready.append(read)
        self._pump()

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready and not self._paused and self._in_tier_two < TIER_TWO_READS_MAX:
                self._start(self._ready.popleft())
        finally:
            self._pumping = False

    def _start(self, read: _Read) -> None:
        """A read whose segment must be loaded first counts as reading from tier 2."""
        request = read.request
        self._in_tier_two += 1

        def refuse(error: AnabranchError) -> None:
            self._in_tier_two -= 1
            self._finish(read, failed(error))
            self._pump()

        def resident() -> None:
            self._in_tier_two -= 1
            self._answer(read, opened)
            self._pump()

        try:
            opened = self._store.find(request.segment, request.container_epoch)
            opened.container.load_first((request.segment,), resident, refuse)
        except AnabranchError as error:
            refuse(error)

    def _answer(self, read: _Read, opened: OpenContainer) -> None:
        if read not in self._outstanding:
            return
        try:
            found = read_now(opened.container, read.request)
            if isinstance(found, InTierTwo):
                self._in_tier_two += 1
                opened.container.residency.pin(read.request.segment)
                self._spawn(self._read_tiered(read, opened, found))
            elif not found.data and found.reply.at_tail and _waits(read):
                self._wait(read, opened, found.number)
            else:
                self._finish(read, found.reply, found.data)
        except (AnabranchError, OSError) as error:
            self._finish(read, failed(tier_two_error(error)))

    def _wait(self, read: _Read, opened: OpenContainer, number: int) -> None:
        def woken(_: bool) -> None:
            read.cancel_wait = None
            read.waited = True
            self._make_ready(read)

        seconds = min(read.request.wait_ms / 1000, WAIT_S_MAX)
        read.cancel_wait = opened.container.tails.wait(number, seconds, woken)

    async def _read_tiered(self, read: _Read, opened: OpenContainer, place: InTierTwo) -> None:
        try:
            async with asyncio.timeout(TIER_TWO_DEADLINE_S):
                found = await read_tiered(opened.container, opened.tier_two, read.request, place)
            self._finish(read, found.reply, found.data)
        except (AnabranchError, OSError, TimeoutError) as error:
            self._finish(read, failed(tier_two_error(error)))
        finally:
            opened.container.residency.unpin(read.request.segment)
            self._in_tier_two -= 1
            self._pump()

    def _finish(self, read: _Read, message: Message, data: bytes = b"") -> None:
        if read in self._outstanding:
            self._outstanding.remove(read)
            self._store.metrics.reads += 1
            self._store.metrics.read_bytes += len(data)
            self._send(message, read.request_id, data)


def _waits(read: _Read) -> bool:
    return read.request.wait_ms > 0 and not read.waited
