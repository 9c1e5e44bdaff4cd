"""The event reader: all segments of a stream, read ahead concurrently, merged as they come.

Events of one key are yielded in the order of their writing, because one segment holds a key
and each segment is yielded in order; across segments there is no order. `positions()` says
what was yielded, and a reader started from it continues with the very next event.

Blocks wait in one queue in the order of their arrival; each segment has its own share of the
read-ahead, so a slow consumer bounds memory and no segment can starve another.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Literal, NamedTuple, Self

from anabranch.client.backoff import Backoff
from anabranch.client.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.fetcher import FetchedBlock, FetcherEvents, SegmentFetcher
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.common.errors import (
    AnabranchError,
    CorruptBlock,
    InvalidRequest,
    SegmentNotFound,
)
from anabranch.common.model.names import StreamRef


class Position(NamedTuple):
    """A place in a segment: event number `event_index` (from 0) of the block at byte `offset`."""

    offset: int
    event_index: int = 0


Positions = Mapping[str, tuple[int, int]]
Start = Literal["head", "tail"] | Positions


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
        self._fetchers: dict[str, SegmentFetcher] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: deque[EventBatch | AnabranchError] = deque()
        self._running = 0
        self._started = False
        self._closed = False
        self._failure: AnabranchError | None = None
        self._news = asyncio.Event()
        self._positions: dict[str, Position] = {}
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
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _begin(self) -> None:
        """Place every segment's fetcher and start them all; after an error it can be repeated."""
        segments = (await current_segments(self._control, self.stream)).segments
        names = [segment.name for segment in segments]
        self._refuse_unknown_positions(names)
        await self._directory.learn(names)
        share = max(self._settings.read_ahead_bytes // len(names), 64 * 1024)
        self._fetchers = {name: self._new_fetcher(name, share) for name in names}
        for fetcher in self._fetchers.values():
            await self._place(fetcher)
        if self._closed:
            return
        self._started = True
        self._runtime.open_parts.add(self)
        for fetcher in self._fetchers.values():
            self._running += 1
            self._tasks.append(self._runtime.tasks.create_task(fetcher.run()))

    def _refuse_unknown_positions(self, names: list[str]) -> None:
        if isinstance(self._start, str):
            if self._start not in ("head", "tail"):
                raise InvalidRequest(
                    f"a reader cannot start at {self._start!r}",
                    remedy="start at head, at tail, or at positions",
                )
            return
        for segment in self._start:
            if segment not in names:
                raise InvalidRequest(
                    "a position names a segment that the stream does not have",
                    stream=str(self.stream), segment=segment,
                )  # fmt: skip

    def _new_fetcher(self, segment: str, share_bytes: int) -> SegmentFetcher:
        runtime = self._runtime
        return SegmentFetcher(
            segment,
            settings=self._settings,
            share_bytes=share_bytes,
            directory=self._directory,
            clock=runtime.clock,
            backoff=Backoff(BackoffSettings(), runtime.rng, self._settings.retry_timeout_s),
            tasks=runtime.tasks,
            events=FetcherEvents(fetched=self._fetched, ended=self._fetcher_ended),
        )

    async def _place(self, fetcher: SegmentFetcher) -> None:
        """Set where the fetcher starts and ends."""
        if isinstance(self._start, str):
            if self._start == "tail" or self._until_tail:
                info = await fetcher.info()
                fetcher.offset = info.length if self._start == "tail" else info.start
                fetcher.end_offset = info.length if self._until_tail else None
        else:
            fetcher.offset, fetcher.index = self._start.get(fetcher.segment, (0, 0))
            if self._until_tail:
                fetcher.end_offset = (await fetcher.info()).length
        self._positions[fetcher.segment] = Position(fetcher.offset, fetcher.index)

    # --- called by the fetchers -----------------------------------------------------------

    def _fetched(self, fetched: FetchedBlock) -> None:
        self._ready.append(EventBatch(fetched))
        self._news.set()

    def _fetcher_ended(self, error: AnabranchError | None) -> None:
        self._running -= 1
        if error is not None:
            error.fields = {**error.fields, "stream": str(self.stream)}
            self._ready.append(error)
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
        while not self._ready:
            if self._closed or not self._running:
                return None
            self._news.clear()
            await self._news.wait()
        ready = self._ready.popleft()
        if isinstance(ready, EventBatch):
            ready = self._opened(ready)
        if isinstance(ready, AnabranchError):
            self._failure = ready
            self._failure = await self._explained(ready)
            raise _again(self._failure)
        self._positions[ready.segment] = ready.next
        self._fetchers[ready.segment].consumed(ready.next.offset - ready.start.offset)
        return ready

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
        """Segment → where the next event to be yielded lies; a reader's `start` later."""
        found = dict(self._positions)
        if self._open_batch is not None and self._open_events:
            found[self._open_batch.segment] = self._open_events[0].position
        return found


def _again(error: AnabranchError) -> AnabranchError:
    """A fresh copy to raise, so that one failure can be raised by many calls."""
    return type(error)(error.message, remedy=error.remedy, **error.fields)
