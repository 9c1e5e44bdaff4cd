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
from typing import TYPE_CHECKING, Generic, Self, cast

from anabranch.client.backoff import Backoff
from anabranch.client.reading.bounds import Start, StreamBounds
from anabranch.client.reading.events import Event, EventBatch, T, arrow_batch
from anabranch.client.reading.frontier import Frontier, Position
from anabranch.client.reading.intake import Intake, IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer, require_pyarrow
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import AnabranchError, Closed, SerializationFailed
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.messages import SegmentInfo

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 2048
ARROW_SIZE_BYTES = 32 * 1024 * 1024
"""A batch of Arrow takes no more blocks when it has as much."""


class EventReader(Generic[T]):
    """See the module. Its events have the payloads that its serializer makes: T.

    Started by `async with`, or by the first iteration; ends with the client at the latest. One
    consumer at a time.
    """

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
        serializer: Serializer[T] | None = None,
    ) -> None:
        self.stream = stream
        self._serializer = serializer
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
        self._untold: SegmentFailed | None = None
        """What is to be raised before anything else is taken."""
        self._open_batch: EventBatch | None = None
        self._open_events: deque[Event[T]] = deque()
        self._no_value: tuple[int, SerializationFailed] | None = None
        """What is wrong with the row of the open batch that follows the open events."""

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
        while (item := self._untold or await self._intake.next()) is not None:
            self._untold = None
            if (batch := self._taken(item)) is not None:
                return batch
        return None

    def _taken(self, item: IntakeItem) -> EventBatch | None:
        """Count what came as read; None for the end of a segment. Raises what failed."""
        match item:
            case EventBatch() as batch:
                self._frontier.positions[batch.segment] = batch.next
                self._intake.consumed(batch)
                return batch
            case SegmentEnd(segment, successors):
                self._read(self._frontier.finish(segment, successors))
                return None
            case SegmentFailed(segment, error, Position() as place):
                self._frontier.positions[segment] = place
                raise error
            case SegmentFailed(_, error):
                self._failure = error
                raise error.copy()

    async def next_arrow(self, rows: int = ARROW_ROWS) -> "pa.RecordBatch | None":
        """The events of as many blocks as are there, as one batch of Arrow (see `arrow`) of about
        `rows` events, at least one; None at the end.

        Waits for the first block alone. Needs pyarrow. Raises as `next_batch`; CodecMissing, and
        CorruptBlock, which it raises again at every later call.
        """
        require_pyarrow()
        first = await self.next_batch()
        if first is None:
            return None
        positions = {**self._frontier.positions, first.segment: first.start}
        taken, count, size = [first], len(first), first.held_size
        while count < rows and size < ARROW_SIZE_BYTES:
            item = self._intake.next_nowait()
            if item is None or isinstance(item, SegmentFailed):
                self._untold = item
                break
            batch = self._taken(item)
            if batch is not None:
                taken.append(batch)
                count, size = count + len(batch), size + batch.held_size
        try:
            return arrow_batch(taken)
        except AnabranchError as error:
            self._frontier.positions = positions
            self._failure = error
            raise error.copy() from error

    async def arrow_batches(self, rows: int = ARROW_ROWS) -> AsyncIterator["pa.RecordBatch"]:
        """Batches of Arrow until the end (see `next_arrow`); each counts as read when yielded."""
        while not self._closed and (batch := await self.next_arrow(rows)) is not None:
            yield batch

    def _finish_open_batch(self) -> None:
        begun = self._open_events or self._no_value is not None
        assert not begun, "finish the iteration of the current block before you ask for batches"
        self._open_batch = None

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end (see `next_batch`); each counts as read when it is yielded."""
        while not self._closed and (batch := await self.next_batch()) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    def next_event_nowait(self) -> Event[T] | None:
        """The next event of the block that is open, None if there is none.

        Touches nothing that works in the background: the consumer may ask in another thread.
        """
        return self._open_events.popleft() if self._open_events else None

    async def __anext__(self) -> Event[T]:
        """The next event. Raises as `next_batch`, and SerializationFailed once for each event that
        the serializer refuses: the next call goes on behind it."""
        while not self._open_events:
            if self._no_value is not None:
                row, error = self._no_value
                self._open_rows(row + 1)
                raise error
            batch = None if self._closed else await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._open_batch = batch
            self._open_rows(0)
        return self._open_events.popleft()

    def _open_rows(self, row: int) -> None:
        """Let the open batch's events from `row` on come next, up to one that is no value."""
        batch = self._open_batch
        assert batch is not None
        self._no_value = None
        if self._serializer is None:
            self._open_events = cast("deque[Event[T]]", deque(batch.events()))
            return
        values, error = batch.values_from(row, self._serializer)
        self._open_events = deque(batch.events_with(values, row))
        if error is not None:
            self._no_value = row + len(values), error

    def positions(self) -> dict[str, Position]:
        """Segment → where the next event to be yielded lies; a reader's `start` later.

        A stream cut: for every key one segment. One that was read to its end stays there until
        all that comes after it is being read.
        """
        found = dict(self._frontier.positions)
        batch = self._open_batch
        if batch is not None and self._open_events:
            found[batch.segment] = self._open_events[0].position
        elif batch is not None and self._no_value is not None:
            offset, first = batch.start
            found[batch.segment] = Position(offset, first + self._no_value[0])
        return found
