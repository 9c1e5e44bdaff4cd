"""The common part of plain writers and transactions: it takes events into lanes, one per segment.

An event goes to the segment that its key selects. Without a key, each batch draws a new segment.
Writes made before the event loop turns again travel together, and so do writes made while a block
is in flight. An `append` by itself is sent at once. One writer id and numbered events make every
event arrive exactly once, even over lost connections.

Order: events of one key are stored in the order of their `write` calls. When a segment takes no
more events, the subclass decides how to continue: see `_appender_ended` in `writer` and in
`transactions.writer`. Not thread-safe. The first error that a retry cannot cure ends the writer:
every later call raises it, with the number of unacknowledged events.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any, Generic

from typing_extensions import TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import BackoffSettings, WriterSettings
from anabranch.client.tracing import joining
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.client.writing.appender import AppenderEvents, SegmentAppender, acknowledgement_of
from anabranch.client.writing.arrow_columns import ARROW_SIZE_BYTES_MIN, arrow_events
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, LargeEvent
from anabranch.client.writing.columns import (
    Columns,
    as_timestamps,
    bytes_of,
    check_lengths,
    columns_of,
    divide,
    payloads_of,
    route_all,
)
from anabranch.client.writing.lanes import KeyRoutes, Lanes
from anabranch.client.writing.outbox import Outbox
from anabranch.client.writing.pacing import InFlight
from anabranch.client.writing.placing import Placing
from anabranch.client.writing.room import LARGER_BUFFER, Room
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Closed,
    EventTooLarge,
    InvalidRequest,
    Remedy,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX

T = TypeVar("T", contravariant=True, default=bytes | str)

_TIMESTAMP_MS_LIMIT = 1 << 63
_RAISE_LIMIT = Remedy(api="split the event, or raise `WriterSettings(event_size_bytes_max=...)`")


class LaneWriter(Generic[T]):
    """Writes the values that its `serializer` accepts (T). See the module."""

    def __init__(
        self,
        stream: StreamRef,
        *,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: WriterSettings,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self.stream = stream
        self.writer_id = runtime.ids.new_bytes()
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._serializer = serializer
        self._lanes = Lanes(self._start_appender)
        self._room = Room(settings.buffer_size_bytes)
        self._unchecked_bytes_max = min(EVENT_SIZE_BYTES_MAX, settings.event_limit_bytes)
        """An event of a higher cost may be over the limit, or large."""
        self._events = AppenderEvents(released=self._room.release, ended=self._appender_ended)
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes = KeyRoutes(self._lanes.route)
        self._placing = Placing(self._lanes, runtime.rng, runtime.tracer)
        self._last_written: Outbox | tuple[Outbox, ...] = ()
        self._pump_scheduled = False
        self._awaited = 0
        self._in_flight = InFlight(settings.in_flight_bytes_max)
        self._failure: AnabranchError | None = None
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._joined = joining(runtime.tracer)

    # --- life -----------------------------------------------------------------------------

    @abstractmethod
    def _appender_ended(self, appender: SegmentAppender, error: AnabranchError) -> None:
        """The appender's segment takes no more events, or cannot be reached."""

    def _start_appender(self, segment: str) -> SegmentAppender:
        appender = SegmentAppender(
            segment,
            self.writer_id,
            settings=self._settings,
            directory=self._directory,
            clock=self._runtime.clock,
            backoff=self._new_backoff(),
            events=self._events,
            in_flight=self._in_flight,
        )
        self._run(appender.run())
        return appender

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._runtime.rng, self._settings.retry_timeout_s)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        """Run `work` in the background, until it ends or the writer is closed."""
        task = self._runtime.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop without waiting for acknowledgements; repeatable. Call `flush` first to keep every
        event."""
        if not self._ended:
            self._fail(self._failure or Closed("the writer is closed"))
        self._runtime.open_parts.discard(self)
        await self._stop()

    async def _stop(self) -> None:
        """Cancel the background tasks. Repeatable."""
        if tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # --- writing --------------------------------------------------------------------------

    def write(self, event: T, key: str | None = None, timestamp_ms: int | None = None) -> None:
        """Take one event; never waits.

        Raises BufferFull (the writer took nothing: `await drain()`, then write the event again),
        EventTooLarge, InvalidRequest, SerializationFailed, and the writer's failure.

        ::

            writer.write(b"21.5", key="boiler", timestamp_ms=1_700_000_000_000)
        """
        data: bytes = event  # type: ignore[assignment]  # a cast would cost a call per event
        if self._serializer is not None or type(event) is not bytes:
            data = bytes_of(event, self._serializer)
        if timestamp_ms is not None and (
            type(timestamp_ms) is not int
            or not -_TIMESTAMP_MS_LIMIT <= timestamp_ms < _TIMESTAMP_MS_LIMIT
        ):
            timestamp_ms = as_timestamps([timestamp_ms])[0]
        cost = len(data) + EVENT_OVERHEAD_BYTES
        if key is not None:
            outbox, key_stored = self._routes[key]
            cost += len(key_stored)
        else:
            outbox = self._placing.keyless or self._placing.draw()
        room = self._room
        used = room.used + cost
        if (
            used > room.limit or cost > self._unchecked_bytes_max or self._failure is not None
        ) and self._took_large(data, key, timestamp_ms, outbox):
            return
        room.used = used
        self._last_written = outbox
        batch = outbox.gathering
        if key is not None:
            if len(batch.keys) != len(batch.events):
                batch.pad_keys()
            batch.keys.append(key_stored)
        if timestamp_ms is not None:
            if len(batch.timestamps_ms) != len(batch.events):
                batch.pad_timestamps()
            batch.timestamps_ms.append(timestamp_ms)
        if self._joined is not None:
            batch.spans = self._joined(batch.spans)
        batch.events.append(data)
        batch.cost += cost
        if batch.cost >= outbox.block_size:
            outbox.close_batch()
            self._placing.keyless = None
        if not self._pump_scheduled:
            self._schedule_pump()
        outbox.awake = True

    def _took_large(
        self, data: bytes, key: str | None, timestamp_ms: int | None, outbox: Outbox
    ) -> bool:
        """Raise the reason to refuse the event; else return whether it is large and was taken."""
        stored = None if key is None else self._routes[key][1]
        cost = len(data) + EVENT_OVERHEAD_BYTES + len(stored or b"")
        self._refuse_if_impossible(len(data), cost)
        if len(data) <= EVENT_SIZE_BYTES_MAX:
            return False
        self._room.used += cost
        self._placing.add_large(LargeEvent(data, stored, timestamp_ms, cost), outbox)
        self._last_written = outbox
        self._schedule_pump()
        return True

    def write_batch(
        self,
        events: Sequence[T],
        keys: Sequence[str | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        """Take all the events or none; never waits. Raises as `write`.

        Without keys, the batch goes to one segment, cut into blocks, with no work per event.

        ::

            writer.write_batch([b"21.5", b"4"], keys=["boiler", "door"])
        """
        check_lengths(len(events), keys, timestamps_ms)
        if len(events) == 0:
            return
        self._take(payloads_of(events, self._serializer), keys, timestamps_ms)

    def _take(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str | None] | None,
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        stamps = as_timestamps(timestamps_ms) if timestamps_ms is not None else None
        placing = self._placing
        shares: Sequence[tuple[Outbox | None, Columns]]
        if keys is None:
            shares = [(None, columns_of(payloads, None, stamps))]
        else:
            routed = route_all(keys, self._routes, placing.choose_keyless)
            shares = divide(payloads, routed, stamps, self._lanes.outboxes)
        cost = sum(share.cost for _, share in shares)
        is_small = cost <= self._settings.event_limit_bytes
        self._refuse_unless_room_for(cost, cost if is_small else max(map(len, payloads)))
        reached = [placing.add(share, chosen) for chosen, share in shares]
        self._last_written = tuple(chain.from_iterable(reached))
        self._room.used += cost
        self._schedule_pump()

    def write_arrow(
        self,
        batch: Any,
        *,
        event: str = "event",
        key: str | None = None,
        timestamp_ms: str | int | None = None,
    ) -> None:
        """Take all rows of a pyarrow Table or RecordBatch, or none; never waits. Raises as
        `write_batch`, and CodecMissing without pyarrow.

        `event`, `key` and `timestamp_ms` name columns. Events are binary or text and bypass any
        serializer. Keys are text; null means no key. Times are integers (ms) or timestamps, or one
        number for all rows. The buffers must not change before the events are acknowledged.

        ::

            writer.write_arrow(table, event="reading", key="sensor")
        """
        content = arrow_events(batch, event, key, timestamp_ms)
        if not len(content.events):
            return
        cost, largest = content.cost, content.largest
        if cost < ARROW_SIZE_BYTES_MIN or largest > EVENT_SIZE_BYTES_MAX:
            self._take(*content.as_lists())
            return
        self._refuse_unless_room_for(cost, largest)
        block_size = self._settings.block_size_bytes
        self._last_written = self._placing.add_arrow(content, self._routes.__getitem__, block_size)
        self._room.used += cost
        self._schedule_pump()

    def _refuse_unless_room_for(self, cost: int, largest: int) -> None:
        limit = self._room.limit
        if cost > limit:
            raise InvalidRequest(
                "the batch is larger than the writer's buffer", remedy="write smaller batches",
                size=cost, limit=limit,
            )  # fmt: skip
        self._refuse_if_impossible(largest, cost)

    def _refuse_if_impossible(self, size: int, cost: int) -> None:
        """Raise unless an event of `size` bytes, and `cost` bytes of buffer, can be taken."""
        limit = self._settings.event_limit_bytes
        if size > limit:
            remedy = _RAISE_LIMIT if self._settings.large_events else None
            raise EventTooLarge("an event is over the limit", remedy=remedy, size=size, limit=limit)
        self._raise_failure()
        limit = self._room.limit
        if cost > limit:
            raise EventTooLarge(
                "an event is larger than the writer's buffer",
                remedy=LARGER_BUFFER, size=size, limit=limit,
            )  # fmt: skip
        self._room.require(cost)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.copy()

    # --- waiting --------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until less than half of the buffer is in use and the refused write has room.

        Raises the writer's failure.

        ::

            await writer.drain()
        """
        await asyncio.sleep(0)  # a loop that writes lets the sending happen here
        await self._room.wait(self._raise_failure)

    async def flush(self) -> None:
        """Wait until everything written so far is durable. Raises the writer's failure if it is
        not.

        ::

            await writer.flush()
        """
        await self._acknowledged(self._lanes.appenders)

    def acknowledgement(self) -> Awaitable[None]:
        """An awaitable that is done when the last write, and all earlier writes to the same
        segments, are durable; it raises the writer's failure if they are not.

        Ask for it before the next `await`; await it at any later time.

        ::

            durable = writer.acknowledgement()
            await durable
        """
        if self._failure is None:
            return self._lanes.acknowledgement(self._last_written, self._loop.create_future())
        return self._acknowledged(self._lanes.appenders_with(self._last_written))

    def _acknowledged(self, appenders: Iterable[SegmentAppender]) -> asyncio.Future[None]:
        """Done when everything these appenders have is durable. Raises the writer's failure."""
        waiting = [appender for appender in appenders if appender.outbox.unacknowledged]
        if waiting:
            self._raise_failure()
        return acknowledgement_of(waiting, self._loop.create_future())

    async def append(
        self, event: T, key: str | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Write one event and wait until it is durable; waits for room in the buffer if necessary.

        ::

            await writer.append(b"21.5", key="boiler")
        """
        while True:
            busy = self._awaited or self._pump_scheduled or self._in_flight.used
            try:
                (self.write if busy else self._write_at_once)(event, key, timestamp_ms)
                break
            except BufferFull:
                await self.drain()
        self._awaited += 1
        try:
            await self.acknowledgement()
        finally:
            self._awaited -= 1

    async def _length_of(self, segment: str) -> int:
        clock, backoff = self._runtime.clock, self._new_backoff()
        calls = SegmentCalls(segment, directory=self._directory, clock=clock, backoff=backoff)
        return (await calls.info()).length

    @property
    def used_bytes(self) -> int:
        """The number of bytes of the buffer in use."""
        return self._room.used

    @property
    def failed(self) -> bool:
        """Whether the writer ended, by an error or by `close`; it then takes no more events."""
        return self._failure is not None

    def unacknowledged(self) -> dict[str, list[bytes]]:
        """Segment → its unacknowledged payloads, in write order; after a failure, any may be
        stored.

        ::

            lost = writer.unacknowledged()
        """
        return self._lanes.unacknowledged()

    # --- behind the scenes ----------------------------------------------------------------

    def _write_at_once(self, event: T, key: str | None, timestamp_ms: int | None) -> None:
        """As `write`, but send the event in this turn: no other one would travel with it."""
        self._pump_scheduled = True
        try:
            self.write(event, key, timestamp_ms)
        finally:
            self._pump()

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        self._placing.keyless = None
        for appender in self._lanes.appenders:
            if appender.outbox.awake:
                appender.outbox.awake = False
                appender.pump()

    def _fail(self, error: AnabranchError) -> None:
        """End the writer: it takes and sends nothing more, and every waiting call raises the error.
        Only the first error counts."""
        if self._ended:
            return
        self._ended = True
        count = sum(appender.outbox.unacknowledged for appender in self._lanes.appenders)
        if count:
            error.fields = {**error.fields, "unacknowledged": count}
        self._failure = error
        for appender in self._lanes.appenders:
            appender.fail_waiters(error)
        self._room.wake()
