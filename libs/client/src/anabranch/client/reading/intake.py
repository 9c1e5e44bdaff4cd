"""Reads several segments ahead at once; their blocks come out of one queue.

    open ──► fetcher ──verified blocks──► queue ──next──► EventBatch …, then one of
               │                            ▲             SegmentEnd, SegmentFailed
               └──end: which successors? ───┘
    drop ──► nothing of that opening comes any more

    place to read next truncated ──► EventsTruncated, then continues at the segment's start
    segment deleted by a truncation ──► EventsTruncated, then its end: its successors follow

The queue holds blocks, ends and failures in the order of their arrival, so those of one segment are
in order. A segment counts as open until the consumer has taken its end or failure. Every segment
has an even share of the read-ahead, so a slow consumer bounds memory and no segment can starve
another. The segments may be of several streams, and may come and go at any time. If a segment is
dropped and opened again, this is another opening, which the blocks of the first one cannot reach.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.client.backoff import Backoff
from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.fetcher import SegmentFetcher
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.client.wire.followers import Followers
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    SegmentNotFound,
    SegmentTruncated,
)
from anabranch.common.model.names import parse_segment_name

SHARE_SIZE_BYTES_MIN = 64 * 1024


class SegmentEnd(NamedTuple):
    """The segment was read to its end, and is no longer open.

    If `reached_end_offset`, it was read to the offset given to `open`. Otherwise it was read to its
    own end, and its `successors` follow; it has none if it is its stream's last segment for its
    keys.
    """

    segment: str
    successors: tuple[Successor, ...] = ()
    reached_end_offset: bool = False


class SegmentFailed(NamedTuple):
    """A read of the segment failed.

    If `next` is None, the segment is no longer open. Otherwise `error` is EventsTruncated, and
    reading continues at `next` by itself.
    """

    segment: str
    error: AnabranchError
    next: Position | None = None


IntakeItem = EventBatch | SegmentEnd | SegmentFailed


@dataclass(eq=False, slots=True)
class _Opening:
    """One opening of a segment, until it ends, fails or is dropped."""

    number: int
    fetcher: SegmentFetcher
    task: asyncio.Task[None]


class Intake:
    """Reads segments ahead for one consumer; it shares no state with other intakes.

    `news` is set whenever an item can be taken, for a consumer that waits for other things too.
    """

    def __init__(
        self,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ReaderSettings,
        news: asyncio.Event | None = None,
    ) -> None:
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._open: dict[str, _Opening] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: deque[tuple[int, IntakeItem]] = deque()
        """With the numbers of their openings."""
        self._opened_count = 0
        self._news = news or asyncio.Event()
        self._shares_are_due = False
        self._closed = False

    @property
    def segments(self) -> tuple[str, ...]:
        """The open segments, in the order of their openings."""
        return tuple(self._open)

    # --- opening and dropping ---------------------------------------------------------------

    def open(self, segment: str, position: Position, end_offset: int | None = None) -> None:
        """Start to read a segment that is not open, from `position` to `end_offset` (None: to its
        end).

        An `end_offset` within a block means the end of that block.
        """
        assert segment not in self._open, "a segment is opened once at a time"
        assert not self._closed, "a closed intake opens nothing"
        self._opened_count = number = self._opened_count + 1
        fetcher = self._new_fetcher(segment, number)
        fetcher.place.offset, fetcher.place.index = position
        fetcher.place.end_offset = end_offset
        task = self._runtime.tasks.create_task(self._follow(fetcher, number))
        self._open[segment] = _Opening(number, fetcher, task)
        self._shares_are_due = True
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self, segment: str) -> None:
        """Stop reading the segment, and discard its queued items. Idempotent."""
        if segment not in self._open:
            return
        number = self._end(segment)
        self._ready = deque(each for each in self._ready if each[0] != number)
        self._news.set()

    async def close(self) -> None:
        """Stop reading all segments, and discard all queued items. Idempotent."""
        self._closed = True
        self._open.clear()
        self._ready.clear()
        self._news.set()
        if tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _end(self, segment: str) -> int:
        """Close the opening, but keep its queued items; returns its number."""
        opening = self._open.pop(segment)
        opening.task.cancel()
        self._shares_are_due = True
        return opening.number

    # --- in the background ----------------------------------------------------------------

    async def _follow(self, fetcher: SegmentFetcher, number: int) -> None:
        """Read a segment to its end, then look up its successors."""
        self._share_out()
        segment = fetcher.segment
        try:
            while (end := await self._read(fetcher, number)) is None:
                pass
            self._put(number, end)
        except AnabranchError as error:
            self._put(number, _failed(segment, error))

    async def _read(self, fetcher: SegmentFetcher, number: int) -> SegmentEnd | None:
        """Read until the end; None if the next bytes were truncated."""
        segment = fetcher.segment
        try:
            if not await fetcher.run():
                return SegmentEnd(segment, reached_end_offset=True)
            successors = await self._followers(segment).after(segment)
        except SegmentTruncated as error:
            start = error.fields.get("start")
            if not isinstance(start, int) or start <= fetcher.place.offset:
                raise
            told = _truncated(fetcher, start)
            fetcher.place.offset, fetcher.place.index = start, 0
            self._put(number, SegmentFailed(segment, told, Position(start)))
            return None
        except SegmentNotFound as error:
            successors = await self._followers(segment).in_place_of(segment, error)
            place = Position(fetcher.place.offset, fetcher.place.index)
            self._put(number, SegmentFailed(segment, _truncated(fetcher, None), place))
        await self._directory.prepare(each.name for each in successors)
        return SegmentEnd(segment, successors)

    def _followers(self, segment: str) -> Followers:
        stream = parse_segment_name(segment)[0]
        return Followers(self._control, stream, self._runtime.clock, self._new_backoff)

    def _put(self, number: int, item: IntakeItem) -> None:
        opening = self._open.get(item.segment)
        if opening is not None and opening.number == number:
            self._ready.append((number, item))
            self._news.set()

    # --- taking ---------------------------------------------------------------------------

    async def next(self) -> IntakeItem | None:
        """The next item, once there is one; None if no segment is open, or the intake is closed.

        Cancelling the wait loses nothing.
        """
        while (item := self.next_nowait()) is None and self._open:
            self._news.clear()
            await self._news.wait()
        return item

    async def arrived(self) -> None:
        """Wait until an item can be taken, or no segment is open; takes nothing."""
        self._share_out()
        while not self._ready and self._open:
            self._news.clear()
            await self._news.wait()

    def next_nowait(self) -> IntakeItem | None:
        """The next item, if there is one; blocks are decompressed."""
        self._share_out()
        if not self._ready:
            return None
        _, item = self._ready.popleft()
        if not isinstance(item, EventBatch):
            if isinstance(item, SegmentEnd) or item.next is None:
                self._end(item.segment)
            return item
        try:
            item.open()
        except AnabranchError as error:
            self.drop(item.segment)
            return _failed(item.segment, error)
        return item

    def consumed(self, batch: EventBatch) -> None:
        """Note that the consumer is done with the batch, so that more may be read ahead."""
        opening = self._open.get(batch.segment)
        if opening is not None and opening.number == batch.opening:
            opening.fetcher.consumed(batch.held_size)

    # --- shares ---------------------------------------------------------------------------

    def _share_out(self) -> None:
        """Divide the read-ahead anew, once for all segments that came or went."""
        if not self._shares_are_due:
            return
        self._shares_are_due = False
        share = self._share()
        for opening in self._open.values():
            opening.fetcher.share(share)

    def _share(self) -> int:
        share = self._settings.read_ahead_bytes // max(1, len(self._open))
        return max(share, SHARE_SIZE_BYTES_MIN)

    def _new_fetcher(self, segment: str, number: int) -> SegmentFetcher:
        def fetched(block: FetchedBlock) -> None:
            self._put(number, EventBatch(block, number))

        runtime = self._runtime
        return SegmentFetcher(
            segment,
            settings=self._settings,
            share_bytes=self._share(),
            directory=self._directory,
            clock=runtime.clock,
            backoff=self._new_backoff(),
            tasks=runtime.tasks,
            fetched=fetched,
        )

    def _new_backoff(self) -> Backoff:
        runtime, settings = self._runtime, self._settings
        return Backoff(BackoffSettings(), runtime.rng, settings.retry_timeout_s)


def _truncated(fetcher: SegmentFetcher, start: int | None) -> EventsTruncated:
    """If `start` is None, the whole segment is gone."""
    stream, _ = parse_segment_name(fetcher.segment)
    return EventsTruncated(
        "events were truncated before they were read",
        stream=str(stream), segment=fetcher.segment, offset=fetcher.place.offset, start=start,
    )  # fmt: skip


def _failed(segment: str, error: AnabranchError) -> SegmentFailed:
    stream, _ = parse_segment_name(segment)
    error.fields = {**error.fields, "stream": str(stream)}
    return SegmentFailed(segment, error)
