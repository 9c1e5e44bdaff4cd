"""The event reader: all segments of a stream, read ahead concurrently, merged as they come.

Events of one key are yielded in the order of their writing, because at any time one segment takes
a key, each segment is yielded in order, and its successors after its end (`frontier`); across
segments there is no order. `positions()` says what was yielded, and a reader started from it
continues with the very next event, whatever scales happened before or since.

Blocks wait in one queue in the order of their arrival, and so do the ends of segments; each
segment has its own share of the read-ahead, so a slow consumer bounds memory and no segment can
starve another. Successors are read from when the consumer has come to their predecessors' ends.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from functools import cached_property
from types import TracebackType
from typing import NamedTuple, Self

from anabranch.client.backoff import Backoff
from anabranch.client.bounds import Start, StreamBounds
from anabranch.client.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.fetcher import FetchedBlock, SegmentFetcher
from anabranch.client.followers import Followers
from anabranch.client.frontier import Frontier, Position
from anabranch.client.runtime import Runtime
from anabranch.client.segment_calls import SegmentCalls
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.errors import (
    AnabranchError,
    CorruptBlock,
    SegmentNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.messages import SegmentInfo

SHARE_SIZE_BYTES_MIN = 64 * 1024


class Event(NamedTuple):
    """One event; `position` is its own, not the next one's."""

    payload: bytes
    key: str | None
    timestamp_ms: int
    segment: str
    position: Position


class EventBatch:
    """The events of one block, without an object per event."""

    def __init__(self, fetched: FetchedBlock) -> None:
        self._fetched = fetched
        self.segment = fetched.segment
        self.start = Position(fetched.offset, fetched.start_index)
        self.next = Position(fetched.next_offset)

    def __len__(self) -> int:
        return len(self._fetched.block) - self._fetched.start_index

    @cached_property
    def payloads(self) -> list[bytes]:
        return self._fetched.block.events(self._fetched.start_index)

    @cached_property
    def keys(self) -> list[str | None]:
        """Parallel to `payloads`; None where an event has no key. Raises CorruptBlock."""
        stored = self._fetched.block.keys()[self._fetched.start_index :]
        try:
            return [None if key is None else key.decode() for key in stored]
        except UnicodeDecodeError as error:
            raise CorruptBlock(
                "a block's routing keys are not UTF-8",
                segment=self.segment, offset=self.start.offset,
            ) from error  # fmt: skip

    def open(self) -> None:
        """Decompress the block if it is compressed; repeatable. Raises CorruptBlock, CodecMissing.

        Blocks that wait to be read stay compressed, so that the read-ahead bounds memory.
        """
        try:
            self._fetched.block.open()
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message, segment=self.segment, offset=self.start.offset, cause=str(error)
            ) from error

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """Event times, parallel to `payloads`."""
        return self._fetched.block.timestamps_ms()[self._fetched.start_index :]

    def events(self) -> list[Event]:
        """The same as one object per event."""
        offset, first = self.start
        columns = zip(self.payloads, self.keys, self.timestamps_ms, strict=True)
        return [
            Event(payload, key, timestamp_ms, self.segment, Position(offset, index))
            for index, (payload, key, timestamp_ms) in enumerate(columns, first)
        ]


class _SegmentEnd(NamedTuple):
    """Everything of the segment lies before; in the queue like a block."""

    segment: str
    successors: tuple[Successor, ...]


class EventReader:
    """See the module. Started by `async with`, or by the first iteration; ends with the
    client at the latest. One consumer at a time."""

    def __init__(
        self,
        stream: StreamRef,
        *,
        start: Start,
        until_tail: bool,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ReaderSettings,
    ) -> None:
        self.stream = stream
        self._start = start
        self._until_tail = until_tail
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._followers = Followers(control, stream, runtime.clock, self._new_backoff)
        self._frontier = Frontier(())
        self._ends: dict[str, int] = {}
        """Where reading ends before a segment does."""
        self._fetchers: dict[str, SegmentFetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: deque[EventBatch | _SegmentEnd | AnabranchError] = deque()
        self._running = 0
        self._started = False
        self._closed = False
        self._failure: AnabranchError | None = None
        self._news = asyncio.Event()
        self._open_batch: EventBatch | None = None
        self._open_events: deque[Event] = deque()

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if not self._started:
            await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading; what was read ahead is dropped, `positions` stay. Repeatable."""
        self._closed = True
        self._news.set()
        self._ready.clear()
        self._runtime.open_parts.discard(self)
        if tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _begin(self) -> None:
        """Learn where to start and where to end; after an error it can be repeated."""
        bounds = StreamBounds(
            self.stream,
            control=self._control,
            directory=self._directory,
            clock=self._runtime.clock,
            info=self._info,
            new_backoff=self._new_backoff,
        )
        frontier = Frontier(await bounds.start(self._start))
        ends: dict[str, int] = {}
        if self._until_tail and self._start == "tail":
            ends = {name: place.offset for name, place in frontier.positions.items()}
        elif self._until_tail:
            ends = await bounds.tail()
        await self._directory.learn(frontier.begun)
        if self._closed:
            return
        self._frontier, self._ends = frontier, ends
        self._started = True
        self._runtime.open_parts.add(self)
        self._read(frontier.begun)

    def _new_backoff(self) -> Backoff:
        runtime, settings = self._runtime, self._settings
        return Backoff(BackoffSettings(), runtime.rng, settings.retry_timeout_s)

    async def _info(self, segment: str) -> SegmentInfo:
        calls = SegmentCalls(
            segment,
            directory=self._directory,
            clock=self._runtime.clock,
            backoff=self._new_backoff(),
        )
        return await calls.info()

    def _read(self, segments: Iterable[str]) -> None:
        """Start to read these from their positions; the segments share the read-ahead evenly."""
        for segment in segments:
            fetcher = self._new_fetcher(segment)
            fetcher.offset, fetcher.index = self._frontier.positions[segment]
            fetcher.end_offset = self._ends.get(segment)
            self._fetchers[segment] = fetcher
            self._running += 1
            task = self._runtime.tasks.create_task(self._follow(fetcher))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for fetcher in self._fetchers.values():
            fetcher.share(self._share())

    def _share(self) -> int:
        share = self._settings.read_ahead_bytes // len(self._frontier.positions)
        return max(share, SHARE_SIZE_BYTES_MIN)

    def _new_fetcher(self, segment: str) -> SegmentFetcher:
        runtime = self._runtime
        return SegmentFetcher(
            segment,
            settings=self._settings,
            share_bytes=self._share(),
            directory=self._directory,
            clock=runtime.clock,
            backoff=self._new_backoff(),
            tasks=runtime.tasks,
            fetched=self._fetched,
        )

    # --- in the background ----------------------------------------------------------------

    async def _follow(self, fetcher: SegmentFetcher) -> None:
        """Read a segment, and ask what comes after it."""
        try:
            if await fetcher.run():
                successors = await self._followers.after(fetcher.segment)
                await self._directory.prepare(each.name for each in successors)
                self._ready.append(_SegmentEnd(fetcher.segment, successors))
        except AnabranchError as error:
            error.fields = {**error.fields, "stream": str(self.stream)}
            self._ready.append(error)
        self._running -= 1
        self._news.set()

    def _fetched(self, fetched: FetchedBlock) -> None:
        self._ready.append(EventBatch(fetched))
        self._news.set()

    # --- reading --------------------------------------------------------------------------

    async def next_batch(self) -> EventBatch | None:
        """The next block's events, counted as read; None at the end. Raises the failure.

        Continues behind the last event that was yielded.
        """
        if not self._started and not self._closed:
            await self._begin()
        self._finish_open_batch()
        if self._failure is not None:
            raise _again(self._failure)
        ready = await self._next_ready()
        if ready is None:
            return None
        if isinstance(ready, EventBatch):
            ready = self._opened(ready)
        if isinstance(ready, AnabranchError):
            self._failure = ready
            self._failure = await self._explained(ready)
            raise _again(self._failure)
        self._frontier.positions[ready.segment] = ready.next
        self._fetchers[ready.segment].consumed(ready.next.offset - ready.start.offset)
        return ready

    async def _next_ready(self) -> EventBatch | AnabranchError | None:
        """What comes next, behind the ends of segments that come before; None at the end."""
        while True:
            while not self._ready:
                if self._closed or not self._running:
                    return None
                self._news.clear()
                await self._news.wait()
            ready = self._ready.popleft()
            if not isinstance(ready, _SegmentEnd):
                return ready
            opened = self._frontier.finish(ready.segment, ready.successors)
            for segment in set(self._fetchers) - set(self._frontier.positions):
                del self._fetchers[segment]
            self._read(opened)

    def _opened(self, batch: EventBatch) -> EventBatch | AnabranchError:
        try:
            batch.open()
        except AnabranchError as error:
            error.fields = {**error.fields, "stream": str(self.stream)}
            return error
        return batch

    def _finish_open_batch(self) -> None:
        assert not self._open_events, "take what __anext__ has begun before asking for batches"
        self._open_batch = None

    async def _explained(self, error: AnabranchError) -> AnabranchError:
        """A missing segment means that its stream is gone, if the controller says so."""
        if isinstance(error, SegmentNotFound):
            try:
                await current_segments(self._control, self.stream)
            except AnabranchError as answered:
                return answered
        return error

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end (see `next_batch`); each counts as read when it is yielded."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._open_events:
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._open_batch = batch
            self._open_events = deque(batch.events())
        return self._open_events.popleft()

    def positions(self) -> dict[str, Position]:
        """Segment → where the next event to be yielded lies; a reader's `start` later.

        A stream cut: for every key one segment. One that was read to its end stays there until
        all that comes after it is being read.
        """
        found = dict(self._frontier.positions)
        if self._open_batch is not None and self._open_events:
            found[self._open_batch.segment] = self._open_events[0].position
        return found


def _again(error: AnabranchError) -> AnabranchError:
    """A fresh copy to raise, so that one failure can be raised by many calls."""
    return type(error)(error.message, remedy=error.remedy, **error.fields)
