"""The event reader: it reads ahead in all segments of a stream concurrently, and merges them in the
order of arrival.

Events of one key are yielded in write order: at any time one segment takes a key, the reader yields
each segment in order, and its successors after its end (`frontier`). Across segments there is no
order. `positions()` is the place after the last yielded event; a reader started from it continues
with the very next event, whatever scales happened before or since.

Blocks and ends of segments come in the order of their arrival (`intake`). The reader starts on the
successors of a segment when the consumer has read the segment to its end.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, cast

from anabranch.client.backoff import Backoff
from anabranch.client.reading.bounds import Start, StreamBounds
from anabranch.client.reading.events import Event, EventBatch, T, arrow_batch
from anabranch.client.reading.frontier import Frontier, Position, ends_of
from anabranch.client.reading.intake import Intake, IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.reading.times.follower import WatermarkFollower, new_follower
from anabranch.client.reading.times.window import TimeWindow
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer, require_pyarrow
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import AnabranchError, Closed, SerializationFailed
from anabranch.common.model.names import StreamRef

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 2048
ARROW_SIZE_BYTES = 32 * 1024 * 1024
"""An Arrow batch takes no more blocks once it has reached this size."""


class EventReader(Generic[T]):
    """Reads the events of a stream; made by `Client.reader`. Its serializer makes the payloads (T).

    `async with` or the first iteration starts it; it ends with the client at the latest. One
    consumer at a time. See the module.

    ::

        async with client.reader("plant/sensors", until_tail=True) as reader:
            async for event in reader:
                print(event.key, event.payload)
    """

    def __init__(
        self,
        stream: StreamRef,
        *,
        start: Start,
        until_tail: bool,
        end: Start | None = None,
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
        self._end = end
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._intake = Intake(control, directory, runtime, settings)
        self._frontier = Frontier(())
        self._incarnation = 0
        self._follower: WatermarkFollower | None = None
        """Of the stream's watermarks, once a window is asked for."""
        self._ends: dict[str, Position] = {}
        """The ends of the reading that lie before the ends of segments, by full name."""
        self._started = False
        self._closed = False
        self._failure: AnabranchError | None = None
        self._untold: SegmentFailed | None = None
        """A failure to raise before anything else is taken."""
        self._open_batch: EventBatch | None = None
        self._open_events: deque[Event[T]] = deque()
        self._no_value: tuple[int, SerializationFailed] | None = None
        """The row after the open events that cannot be deserialized, and its error."""

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
        """Stop reading; events read ahead are dropped, `positions` stay. Repeatable."""
        self._closed = True
        self._runtime.open_parts.discard(self)
        await self._intake.close()

    async def _begin(self) -> None:
        """Find the start and the end of the reading; may be repeated after an error."""
        bounds = StreamBounds(
            self.stream,
            control=self._control,
            directory=self._directory,
            clock=self._runtime.clock,
            calls=self._calls,
            new_backoff=self._new_backoff,
        )
        frontier = Frontier(await bounds.start(self._start))
        ends = await self._find_ends(bounds, frontier)
        await self._directory.learn(frontier.begun)
        if self._closed:
            return
        self._frontier, self._ends = frontier, ends
        self._incarnation = bounds.incarnation
        self._started = True
        self._runtime.open_parts.add(self)
        self._read(frontier.begun)

    async def _find_ends(self, bounds: StreamBounds, frontier: Frontier) -> dict[str, Position]:
        if self._end is not None:
            return ends_of(frontier.standings, await bounds.start(self._end))
        if not self._until_tail:
            return {}
        if self._start == "tail":
            return dict(frontier.positions)
        return {name: Position(length) for name, length in (await bounds.tail()).items()}

    def _new_backoff(self) -> Backoff:
        runtime, settings = self._runtime, self._settings
        return Backoff(BackoffSettings(), runtime.rng, settings.retry_timeout_s)

    def _calls(self, segment: str) -> SegmentCalls:
        return SegmentCalls(
            segment,
            directory=self._directory,
            clock=self._runtime.clock,
            backoff=self._new_backoff(),
        )

    def _read(self, segments: Iterable[str]) -> None:
        """Start to read these segments from their positions."""
        for segment in segments:
            position = self._frontier.positions[segment]
            end = self._ends.get(segment)
            # Within a block, the end is that of the block, and `_before_end` drops the rest.
            end_offset = None if end is None else end.offset + (end.event_index > 0)
            self._intake.open(segment, position, end_offset)

    # --- reading --------------------------------------------------------------------------

    async def next_batch(self) -> EventBatch | None:
        """The events of the next block, which count as read; None at the end.

        Continues after the last event that was yielded. If the next events were truncated, it
        raises EventsTruncated once, and the next call continues after them. Every other failure is
        final: all later calls raise it again. StreamNotFound means that the stream was deleted. A
        closed reader raises Closed; a call that waits while the reader closes returns None, and
        iterations end.

        ::

            batch = await reader.next_batch()
            if batch is not None:
                print(batch.payloads, batch.keys)
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
        """Count the item as read. None for the end of a segment. Raises the item's failure."""
        match item:
            case EventBatch() as block:
                self._intake.consumed(block)
                batch = self._before_end(block)
                if batch is not None:
                    self._frontier.positions[batch.segment] = batch.next
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

    def _before_end(self, batch: EventBatch) -> EventBatch | None:
        """The events of the block before the end of the reading; None if there are none."""
        end = self._ends.get(batch.segment)
        if end is None or end.offset != batch.start.offset:
            return batch
        batch = batch.before(end.event_index)
        return batch if len(batch) else None

    async def next_arrow(self, rows: int = ARROW_ROWS) -> "pa.RecordBatch | None":
        """The blocks that have arrived as one Arrow batch (see `arrow`) of about `rows` events, at
        least one; None at the end.

        Waits only for the first block. With `ReaderSettings.time_windows` the batch carries its
        window of event time (see `arrow.time_window_of`). Needs pyarrow. Raises as `next_batch`,
        CodecMissing, and CorruptBlock, which every later call raises again.

        ::

            table = await reader.next_arrow(rows=10_000)
        """
        require_pyarrow()
        before: TimeWindow | None = None
        if self._settings.time_windows and not self._closed:
            before = await self._window_before()
            if before is None:
                return None
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
            return arrow_batch(taken, self._window_behind(before))
        except AnabranchError as error:
            self._frontier.positions = positions
            self._failure = error
            raise error.copy() from error

    async def arrow_batches(self, rows: int = ARROW_ROWS) -> AsyncIterator["pa.RecordBatch"]:
        """Arrow batches until the end (see `next_arrow`). A yielded batch counts as read.

        ::

            async for table in reader.arrow_batches():
                print(table.num_rows)
        """
        while not self._closed and (batch := await self.next_arrow(rows)) is not None:
            yield batch

    def _finish_open_batch(self) -> None:
        begun = self._open_events or self._no_value is not None
        assert not begun, "finish the iteration of the current block before you ask for batches"
        self._open_batch = None

    async def batches(self) -> AsyncIterator[EventBatch]:
        """Blocks until the end (see `next_batch`). A yielded block counts as read.

        ::

            async for batch in reader.batches():
                print(len(batch), batch.segment)
        """
        while not self._closed and (batch := await self.next_batch()) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    def next_event_nowait(self) -> Event[T] | None:
        """The next event of the current block; None if no block is open.

        Touches no background work, so the consumer may call it from another thread.

        ::

            event = reader.next_event_nowait() or await anext(reader)
        """
        return self._open_events.popleft() if self._open_events else None

    async def __anext__(self) -> Event[T]:
        """The next event. Raises as `next_batch`. An event that the serializer refuses raises
        SerializationFailed once; the next call continues with the event after it."""
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
        """Yield the open batch's events from `row` on, up to one that cannot be deserialized."""
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

    # --- event time -----------------------------------------------------------------------

    async def time_window(self) -> TimeWindow:
        """The bounds of event time at the reader's position, by the watermarks of the stream.

        The lower bound never falls. If the watermarks cannot be read at the moment, the bounds are
        those of the known ones. Raises CorruptBlock if the stored watermarks are damaged, and the
        errors of starting.

        ::

            async for event in reader:
                window = await reader.time_window()
                print(window.lower_ms, event.payload)
        """
        if self._closed:
            raise Closed("the reader is closed", stream=str(self.stream))
        if not self._started:
            await self._begin()
        follower = self._times()
        await follower.catch_up(self._frontier.places(self.positions()))
        return follower.window(self._frontier.places(self.positions()))

    def _times(self) -> WatermarkFollower:
        if self._follower is None:
            runtime = self._runtime
            self._follower = new_follower(
                self.stream,
                self._incarnation,
                directory=self._directory,
                clock=runtime.clock,
                rng=runtime.rng,
            )
        return self._follower

    async def _window_before(self) -> TimeWindow | None:
        """The window before the next blocks, once they have arrived; nothing is taken yet.

        None if the reader closes meanwhile.
        """
        if self._started and self._untold is None and self._failure is None:
            await self._intake.arrived()
        return None if self._closed else await self.time_window()

    def _window_behind(self, before: TimeWindow | None) -> TimeWindow | None:
        """The window of blocks just taken: the lower bound of the place before them, the upper
        bound of the place behind them."""
        if before is None:
            return None
        places = self._frontier.places(self._frontier.positions)
        return before._replace(upper_ms=self._times().upper_ms(places))

    def positions(self) -> dict[str, Position]:
        """Segment → the place of the next event to yield. Pass it as the `start` of a later reader.

        The positions are a stream cut: each key belongs to exactly one of the segments. A segment
        that was read to its end keeps its position until the reader has started all of its
        successors.

        ::

            saved = reader.positions()
            async with client.reader("plant/sensors", saved) as later:
                event = await anext(later)
        """
        found = dict(self._frontier.positions)
        batch = self._open_batch
        if batch is not None and self._open_events:
            found[batch.segment] = self._open_events[0].position
        elif batch is not None and self._no_value is not None:
            offset, first = batch.start
            found[batch.segment] = Position(offset, first + self._no_value[0])
        return found
