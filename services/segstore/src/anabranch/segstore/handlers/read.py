"""Reads of one connection: a bounded queue that produces answers only while the client takes them.

    submitted ──► ready ──► answered from memory
                    ▲  ├──► behind ──turn──► reading from the journal or tier 2 ──► answered
                    │  ├──► waiting until the segment is resident ──► as above
                    │  └──► waiting at the tail
                    └── woken, time up ──┘

The desk reads nothing while its client does not take its answers, or while all clients together
leave too many of them untaken. After a large answer the remaining reads wait for the event loop's
next turn, so that commits can run in between.

A read that starts where an earlier answer ended is *in order*: the desk reads ahead of it, and
further the longer the run of such reads is. A connection that is held up or closed starts no
further read-ahead; its read-ahead data stays in the cache until it ages out.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

import structlog

from anabranch.common.errors import (
    AnabranchError,
    CorruptChunk,
    CorruptJournal,
    ObjectNotFound,
    Overloaded,
    Unavailable,
)
from anabranch.common.wire.messages import Message, ReadSegment, failed
from anabranch.segstore.handlers.control import TIER_TWO_DEADLINE_S, Spawn, tier_two_error
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.reader import Found, Needed, granules_ahead, read_now
from anabranch.segstore.shell.memory.granule import Bytes, ChunkRange, Granule
from anabranch.segstore.shell.memory.read_ahead import WINDOWS_AHEAD_MAX, Load
from anabranch.segstore.shell.node.store import OpenContainer, Store

OUTSTANDING_MAX = 1024
WAIT_S_MAX = 60.0
ROUNDS_MAX = 8
"""How often a read may find that its bytes have moved."""
CONTINUATIONS_MAX = 256
"""The ends of answers that a connection remembers in order to recognize reads in order."""
LARGE_ANSWER_BYTES = 256 * 1024

SendData = Callable[[Message, int, Bytes], None]
"""(message, request id, payload)."""

_log = structlog.get_logger(__name__)


class _Read:
    """One read. `run` counts the reads in order before it.

    `opened` is the container and `number` the segment in which the bytes were looked up.
    """

    __slots__ = (
        "cancel_wait", "number", "opened", "pinned", "request", "request_id", "run", "waited",
    )  # fmt: skip

    def __init__(self, request_id: int, request: ReadSegment, run: int) -> None:
        self.request_id = request_id
        self.request = request
        self.run = run
        self.opened: OpenContainer | None = None
        self.number = 0
        self.pinned = False
        self.waited = False
        self.cancel_wait: Callable[[], None] | None = None

    def pin(self) -> None:
        """Keep the segment resident until the read is over."""
        assert self.opened is not None
        if not self.pinned:
            self.pinned = True
            self.opened.container.residency.pin(self.request.segment)

    def end(self) -> None:
        """Cancel the wait and unpin the segment."""
        if self.cancel_wait is not None:
            self.cancel_wait()
        if self.pinned and self.opened is not None:
            self.pinned = False
            self.opened.container.residency.unpin(self.request.segment)


class ReadDesk:
    """The reads of one connection."""

    def __init__(self, store: Store, send: SendData, spawn: Spawn) -> None:
        self._store = store
        self._shared = store.catch_up
        self._send = send
        self._spawn = spawn
        self._ready: deque[_Read] = deque()
        self._behind: deque[_Read] = deque()
        self._outstanding: set[_Read] = set()
        self._continuations: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._paused = False
        self._closed = False
        self._pumping = False
        self._rests = False

    def submit(self, request_id: int, request: ReadSegment) -> None:
        """ReadSegment → SegmentRead. Raises Overloaded."""
        if len(self._outstanding) >= OUTSTANDING_MAX:
            raise Overloaded("the connection has too many reads", limit=OUTSTANDING_MAX)
        run = self._continuations.pop((request.segment, request.offset), 0)
        read = _Read(request_id, request, run)
        self._outstanding.add(read)
        self._make_ready(read)

    def pause(self, held: int = 0) -> None:
        """Stop answering: the connection takes no more, and `held` bytes wait to be written."""
        self._paused = True
        self._shared.outgoing.hold_up(self, held)

    def resume(self) -> None:
        """Answer again: the connection takes more."""
        self._paused = False
        self._shared.outgoing.drained(self)
        self._pump()

    def close(self) -> None:
        """Drop all reads without an answer, because the connection is gone."""
        self._closed = True
        self._ready.clear()
        self._behind.clear()
        for read in self._outstanding:
            read.end()
        self._outstanding.clear()
        self._shared.turns.leave(self)
        self._shared.outgoing.forget(self)

    def _make_ready(self, read: _Read) -> None:
        self._ready.append(read)
        self._pump()

    def _is_held_up(self) -> bool:
        """Whether no read may be answered now. `_pump` runs again when that changes."""
        if self._paused or self._closed or self._rests:
            return True
        if self._shared.outgoing.full:
            self._shared.outgoing.when_room(self, self._pump)
            return True
        return False

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready and not self._is_held_up():
                self._start(self._ready.popleft())
        finally:
            self._pumping = False
        if self._behind and not self._is_held_up():
            self._shared.turns.ask(self)

    def _start(self, read: _Read) -> None:
        request = read.request
        try:
            opened = self._store.find(request.segment, request.container_epoch)
            opened.container.load_first(
                (request.segment,),
                lambda: self._read(read, opened),
                lambda error: self._refuse(read, error),
            )
        except AnabranchError as error:
            self._refuse(read, error)

    def _read(self, read: _Read, opened: OpenContainer) -> None:
        """Read from the resident segment. Loading may have taken time, so this checks first
        whether the connection is held up."""
        if read not in self._outstanding:
            return
        if self._is_held_up():
            self._ready.append(read)
            return
        read.opened = opened
        request = read.request
        try:
            found = read_now(opened.container, request, self._shared.ahead.look, self._window(read))
            if isinstance(found, Needed):
                read.number = found.number
                read.pin()
                self._behind.append(read)
                self._shared.turns.ask(self)
            elif not found.data and found.reply.at_tail and _waits(read):
                self._wait(read, opened, found.number)
            else:
                self._answer(read, opened, found)
        except (AnabranchError, OSError) as error:
            self._refuse(read, error)

    def _window(self, read: _Read) -> int:
        return self._shared.ahead.window if read.run else 0

    def _wait(self, read: _Read, opened: OpenContainer, number: int) -> None:
        def woken(_: bool) -> None:
            read.cancel_wait = None
            read.waited = True
            self._make_ready(read)

        seconds = min(read.request.wait_ms / 1000, WAIT_S_MAX)
        read.cancel_wait = opened.container.tails.wait(number, seconds, woken)

    # --- behind the memory --------------------------------------------------------------------

    @property
    def wants_turn(self) -> bool:
        """See `TakesTurns`."""
        return bool(self._behind)

    def take_turn(self) -> bool:
        """See `TakesTurns`."""
        if not self._behind or self._is_held_up():
            return False
        self._spawn(self._catch_up(self._behind.popleft()))
        return True

    async def _catch_up(self, read: _Read) -> None:
        try:
            async with asyncio.timeout(TIER_TWO_DEADLINE_S):
                opened, found = await self._found(read)
            self._answer(read, opened, found)
        except (AnabranchError, OSError, TimeoutError) as error:
            self._refuse(read, error)
        # Skipped if cancelled: the store is ending, so no connection may begin another read.
        self._shared.turns.done()
        self._pump()

    async def _found(self, read: _Read) -> tuple[OpenContainer, Found]:
        """The answer, once all granules that it needs are at hand; the read keeps the granules
        until then."""
        request, at_hand = read.request, dict[Granule, bytes]()
        for _ in range(ROUNDS_MAX):
            opened = self._store.find(request.segment, request.container_epoch)
            if opened is not read.opened or read not in self._outstanding:
                break  # the segment may not be resident in a newly opened container
            try:
                found = read_now(opened.container, request, at_hand.get, self._window(read))
                if found.number != read.number:
                    break
                if isinstance(found, Found):
                    return opened, found
                for granule in found.granules:
                    at_hand[granule] = await self._fetch(read, opened, granule)
            except ObjectNotFound:
                continue  # the journal deleted the frame, because tier 2 has it now
        raise Unavailable("the bytes moved during the read", segment=request.segment)

    async def _fetch(self, read: _Read, opened: OpenContainer, granule: Granule) -> bytes:
        """Load a granule, through the shared cache unless its range was cut to fit this read
        alone."""
        load = _load_for(opened)
        if isinstance(granule, ChunkRange) and not self._window(read):
            return await load(granule)
        return await self._shared.ahead.get(granule, load)

    def _read_ahead(self, opened: OpenContainer, number: int, offset: int, run: int) -> None:
        """Fetch the data after `offset`: one window more for every read in order, up to four."""
        ahead = self._shared.ahead
        window = ahead.window
        if window == 0:
            return
        size = window * min(run + 1, WINDOWS_AHEAD_MAX)
        load = _load_for(opened)
        for granule in granules_ahead(opened.container, number, offset, size, window):
            if not ahead.begin(granule, load, self._spawn):
                return

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, read: _Read, opened: OpenContainer, found: Found) -> None:
        if read in self._outstanding and found.data:
            end = read.request.offset + len(found.data)
            self._continuations[read.request.segment, end] = read.run + 1
            if len(self._continuations) > CONTINUATIONS_MAX:
                self._continuations.popitem(last=False)
            if read.run:
                self._read_ahead(opened, found.number, end, read.run)
        self._finish(read, found.reply, found.data)

    def _refuse(self, read: _Read, error: AnabranchError | OSError | TimeoutError) -> None:
        if isinstance(error, CorruptJournal) and read.opened is not None:
            # No other copy exists: the container goes offline under this name.
            read.opened.container.fail(error)
        elif isinstance(error, CorruptChunk):
            self._store.metrics.corrupt_chunks += 1
            _log.error(
                "a read met a damaged object in tier 2; the container continues",
                segment=read.request.segment,
                offset=read.request.offset,
                object=error.fields.get("name"),
                error=str(error),
                remedy="run `anabranch tier2 verify` to list all damage",
            )
        self._finish(read, failed(tier_two_error(error)))

    def _finish(self, read: _Read, message: Message, data: Bytes = b"") -> None:
        if read not in self._outstanding:
            return
        self._outstanding.remove(read)
        read.end()
        self._store.metrics.reads += 1
        self._store.metrics.read_bytes += len(data)
        if len(data) >= LARGE_ANSWER_BYTES and not self._rests:
            self._rests = True
            self._spawn(self._rest())
        self._send(message, read.request_id, data)

    async def _rest(self) -> None:
        """Continue in the event loop's next turn."""
        self._rests = False
        self._pump()


def _load_for(opened: OpenContainer) -> Load:
    def load(granule: Granule) -> Awaitable[bytes]:
        if isinstance(granule, LogAddress):
            return opened.container.log.read_aside(granule)
        return opened.tier_two.read(granule.ref, granule.start, granule.size)

    return load


def _waits(read: _Read) -> bool:
    return read.request.wait_ms > 0 and not read.waited
