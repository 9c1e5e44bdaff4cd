"""The event reader: all segments of a stream, read ahead concurrently, merged as they come.

Events of one key are yielded in the order of their writing, because at any time one segment takes
a key, each segment is yielded in order, and its successors after its end (`frontier`); across
segments there is no order. `positions()` says what was yielded, and a reader started from it
continues with the very next event, whatever scales happened before or since.

Blocks and ends of segments come in the order of their arrival (`intake`). Successors are read from
when the consumer has come to their predecessors' ends.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from anabranch.client.backoff import Backoff
from anabranch.client.bounds import Start, StreamBounds
from anabranch.client.control import ControlPlane, SegmentDirectory
from anabranch.client.events import Event, EventBatch
from anabranch.client.frontier import Frontier, Position
from anabranch.client.intake import Intake, SegmentEnd, SegmentFailed
from anabranch.client.runtime import Runtime
from anabranch.client.segment_calls import SegmentCalls
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.common.errors import AnabranchError, Closed
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.messages import SegmentInfo


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
        self._intake = Intake(control, directory, runtime, settings)
        self._frontier = Frontier(())
        self._ends: dict[str, int] = {}
        """Where reading ends before a segment does."""
        self._started = False
        self._closed = False
        self._failure: AnabranchError | None = None
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
        self._runtime.open_parts.discard(self)
        await self._intake.close()

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
        """Start to read these from their positions."""
        for segment in segments:
            position = self._frontier.positions[segment]
            self._intake.open(segment, position, self._ends.get(segment))

    # --- reading --------------------------------------------------------------------------

    async def next_batch(self) -> EventBatch | None:
        """The next block's events, counted as read; None at the end.

        Continues behind the last event that was yielded. Raises EventsTruncated, once each time
        that what comes next was truncated: the next call goes on behind it. Every other failure
        is raised again by all calls after it; StreamNotFound: the stream was deleted. Raises
        Closed for a reader that was closed; a call that waits then ends with None, and so do
        iterations.
        """
        if self._closed:
            raise Closed("the reader is closed", stream=str(self.stream))
        if not self._started:
            await self._begin()
        self._finish_open_batch()
        if self._failure is not None:
            raise self._failure.copy()
        match await self._next_item():
            case EventBatch() as batch:
                self._frontier.positions[batch.segment] = batch.next
                self._intake.consumed(batch)
                return batch
            case SegmentFailed(segment, error, Position() as place):
                self._frontier.positions[segment] = place
                raise error
            case SegmentFailed(_, error):
                self._failure = error
                raise error.copy()
            case _:
                return None

    async def _next_item(self) -> EventBatch | SegmentFailed | None:
        """What comes next, behind the ends of segments that come before; None at the end."""
        while isinstance(item := await self._intake.next(), SegmentEnd):
            self._read(self._frontier.finish(item.segment, item.successors))
        return item

    def _finish_open_batch(self) -> None:
        assert not self._open_events, "take what __anext__ has begun before asking for batches"
        self._open_batch = None

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end (see `next_batch`); each counts as read when it is yielded."""
        while not self._closed and (batch := await self.next_batch()) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._open_events:
            batch = None if self._closed else await self.next_batch()
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
