"""The event writer: takes events without waiting, gets them acknowledged in the background.

An event goes to the segment that its key selects (without a key: to a segment drawn anew for
each batch). Writes made before the event loop turns again travel together; so do those made
while a block is under way. One writer id and numbered events make every event arrive exactly
once, whatever connections do meanwhile.

Order: events of one key are stored in the order of their `write` calls, also while the stream is
scaled: a sealed segment tells what it holds, the rest goes to its successors (`lanes`). Not
thread-safe: use a writer from its event loop only. The first error that retrying cannot cure ends
the writer: it is raised by every later call, and says what is unacknowledged.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import index
from types import TracebackType
from typing import Generic, Self, cast

from typing_extensions import TypeVar

from anabranch.client.appender import AppenderEvents, SegmentAppender
from anabranch.client.backoff import Backoff
from anabranch.client.columns import Columns, Routed, costs_of, divide, keyed_costs
from anabranch.client.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.followers import Followers
from anabranch.client.lanes import KEYS_CACHED_MAX, Lanes
from anabranch.client.outbox import EVENT_OVERHEAD_BYTES, Outbox
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer, serialized
from anabranch.client.settings import BackoffSettings, WriterSettings
from anabranch.client.tracing import joined
from anabranch.common.contracts.queries import SegmentList
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Closed,
    EventTooLarge,
    InvalidRequest,
    OutcomeUnknown,
    SegmentNotFound,
    SegmentSealed,
    StreamNotFound,
    StreamSealed,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.tracing import outside_of_spans
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX
from anabranch.common.wire.codec import require_zstd

T = TypeVar("T", contravariant=True, default=bytes | str)

_TIMESTAMP_MS_LIMIT = 1 << 63
_SEALED = (StreamState.SEALING, StreamState.SEALED)
_GONE = (StreamState.DELETING, StreamState.DELETED)


class EventWriter(Generic[T]):
    """See the module. An async context manager; leaving it normally flushes, leaving it by an
    exception drops what is not acknowledged. Takes what its `serializer` takes: T."""

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: WriterSettings,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self.stream = stream
        self.writer_id = runtime.ids.new_bytes()
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._serializer = serializer
        self._lanes = Lanes(self._start_appender)
        self._followers = Followers(control, stream, runtime.clock, self._new_backoff)
        self._events = AppenderEvents(released=self._released, ended=self._appender_ended)
        self._tasks: set[asyncio.Task[None]] = set()
        self._route = lru_cache(maxsize=KEYS_CACHED_MAX)(self._lanes.route)
        self._keyless: Outbox | None = None
        self._pump_scheduled = False
        self._used = 0
        self._room_refused = 0
        self._room_waiters: list[asyncio.Future[None]] = []
        self._failure: AnabranchError | None = None
        self._loop = asyncio.get_running_loop()
        self._tracer = runtime.tracer

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._settings.compression is not None:
            require_zstd()
        segments = await current_segments(self._control, self.stream)
        self._refuse_unless_writable(segments)
        await self._directory.learn([segment.name for segment in segments.segments])
        self._runtime.open_parts.add(self)
        self._lanes.open(segments.segments)
        return self

    def _start_appender(self, segment: str) -> SegmentAppender:
        appender = SegmentAppender(
            segment,
            self.writer_id,
            settings=self._settings,
            directory=self._directory,
            clock=self._runtime.clock,
            backoff=self._new_backoff(),
            events=self._events,
        )
        self._run(appender.run())
        return appender

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._runtime.rng, self._settings.retry_timeout_s)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        """In the background, until it ends or the writer is closed."""
        # It outlives whatever its opener is doing, and so must not look like a part of it.
        task = self._runtime.tasks.create_task(work, context=outside_of_spans())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse_unless_writable(self, segments: SegmentList) -> None:
        if segments.state in _SEALED:
            raise StreamSealed("the stream is sealed", stream=str(self.stream))
        if segments.state in _GONE:
            raise StreamNotFound("the stream is being deleted", stream=str(self.stream))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop without waiting for acknowledgements; repeatable. `flush` first to keep all."""
        if self._failure is None:
            self._fail(Closed("the writer is closed"))
        self._runtime.open_parts.discard(self)
        if tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # --- writing --------------------------------------------------------------------------

    def write(self, event: T, key: str | None = None, timestamp_ms: int | None = None) -> None:
        """Take one event; never waits.

        Raises BufferFull (nothing taken: `await drain()`, then write it again),
        EventTooLarge, InvalidRequest, SerializationFailed, and the writer's failure.
        """
        data: bytes = event  # type: ignore[assignment]  # a cast would cost a call per event
        if self._serializer is not None or type(event) is not bytes:
            data = self._bytes_of(event)
        if timestamp_ms is not None and (
            type(timestamp_ms) is not int
            or not -_TIMESTAMP_MS_LIMIT <= timestamp_ms < _TIMESTAMP_MS_LIMIT
        ):
            timestamp_ms = _as_timestamps([timestamp_ms])[0]
        cost = len(data) + EVENT_OVERHEAD_BYTES
        if key is not None:
            outbox, key_stored = self._route(key)
            cost += len(key_stored)
        else:
            outbox = self._keyless or self._draw_outbox()
        used = self._used + cost
        if (
            used > self._settings.buffer_size_bytes
            or cost > EVENT_SIZE_BYTES_MAX
            or self._failure is not None
        ):
            self._refuse_if_impossible(len(data), cost)
        self._used = used
        batch = outbox.gathering
        if key is not None:
            if len(batch.keys) != len(batch.events):
                batch.pad_keys()
            batch.keys.append(key_stored)
        if timestamp_ms is not None:
            if len(batch.timestamps_ms) != len(batch.events):
                batch.pad_timestamps()
            batch.timestamps_ms.append(timestamp_ms)
        if self._tracer is not None:
            batch.spans = joined(batch.spans, self._tracer)
        batch.events.append(data)
        batch.cost += cost
        if batch.cost >= self._settings.block_size_bytes:
            outbox.close_batch()
            self._keyless = None
        if not self._pump_scheduled:
            self._schedule_pump()
        outbox.awake = True

    def write_batch(
        self,
        events: Sequence[T],
        keys: Sequence[str | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        """Take all the events or none; never waits. Errors as `write`.

        Without keys the batch goes to one segment, cut into blocks, with no work per event.
        """
        for column in (keys, timestamps_ms):
            if column is not None and len(column) != len(events):
                raise InvalidRequest(
                    "a batch's columns differ in length", events=len(events), column=len(column)
                )
        if len(events) == 0:
            return
        payloads = self._payloads_of(events)
        stamps = _as_timestamps(timestamps_ms) if timestamps_ms is not None else None
        costs = costs_of(payloads)
        routed = None if keys is None else self._route_all(keys)
        if routed is not None:
            costs = keyed_costs(costs, routed)
        self._refuse_unless_room_for(costs)
        self._used += sum(costs)
        if routed is None:
            self._add(Columns(payloads, costs, None, stamps), None)
        else:
            for outbox, columns in divide(payloads, routed, costs, stamps).items():
                self._add(columns, outbox)
        self._schedule_pump()

    def _bytes_of(self, event: T) -> bytes:
        if (serializer := self._serializer) is not None:
            return serialized(serializer, event)
        return _as_bytes(event)

    def _payloads_of(self, events: Sequence[T]) -> Sequence[bytes]:
        if (serializer := self._serializer) is not None:
            return [serialized(serializer, event) for event in events]
        if set(map(type, events)) != {bytes}:
            raise InvalidRequest("a batch's events must be bytes")
        return cast(Sequence[bytes], events)

    def _route_all(self, keys: Sequence[str | None]) -> Routed:
        """Where each event goes; those without a key all to one segment, and stored without."""
        if None not in keys:
            return list(map(self._route, cast(Sequence[str], keys)))
        keyless = self._keyless or self._draw_outbox()
        return [(keyless, None) if key is None else self._route(key) for key in keys]

    def _refuse_unless_room_for(self, costs: list[int]) -> None:
        cost, limit = sum(costs), self._settings.buffer_size_bytes
        if cost > limit:
            raise InvalidRequest(
                "the batch is larger than the writer's buffer", remedy="write smaller batches",
                size=cost, limit=limit,
            )  # fmt: skip
        self._refuse_if_impossible(max(costs) - EVENT_OVERHEAD_BYTES, cost)

    def _add(self, columns: Columns, chosen: Outbox | None) -> None:
        """Cut into blocks; without a chosen segment each further block goes to one drawn anew."""
        events, costs, keys, stamps = (
            columns.events, columns.costs, columns.keys, columns.timestamps_ms,
        )  # fmt: skip
        ends = list(accumulate(costs))
        block_size = self._settings.block_size_bytes
        start = 0
        while start < len(events):
            taken = ends[start] - costs[start]
            end = min(len(events), bisect_left(ends, taken + block_size) + 1)
            outbox = chosen or self._keyless or self._draw_outbox()
            batch = outbox.gathering
            if stamps is not None:
                batch.pad_timestamps()
                batch.timestamps_ms.extend(stamps[start:end])
            if keys is not None:
                batch.pad_keys()
                batch.keys.extend(keys[start:end])
            if self._tracer is not None:
                batch.spans = joined(batch.spans, self._tracer)
            batch.events.extend(events[start:end])
            batch.cost += ends[end - 1] - taken
            if batch.cost >= block_size:
                outbox.close_batch()
                self._keyless = None
            outbox.awake = True
            start = end

    def _draw_outbox(self) -> Outbox:
        outboxes = self._lanes.outboxes
        if not outboxes:
            raise InvalidRequest(
                "the writer is not open", remedy="use it as `async with client.writer(…)`"
            )
        self._keyless = outboxes[int(self._runtime.rng.random() * len(outboxes))]
        return self._keyless

    def _refuse_if_impossible(self, size: int, cost: int) -> None:
        """Raise unless an event of `size` bytes, and `cost` bytes of buffer, can be taken."""
        limit = self._settings.buffer_size_bytes
        if size > EVENT_SIZE_BYTES_MAX:
            raise EventTooLarge("an event is over the limit", size=size, limit=EVENT_SIZE_BYTES_MAX)
        if self._failure is not None:
            raise _again(self._failure)
        if cost > limit:
            raise EventTooLarge(
                "an event is larger than the writer's buffer",
                remedy="give the writer a larger buffer", size=size, limit=limit,
            )  # fmt: skip
        if self._used + cost > limit:
            self._room_refused = max(self._room_refused, cost)
            raise BufferFull("the writer's buffer is full", used=self._used, limit=limit)

    # --- waiting --------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until less than half of the buffer is in use and what was refused has room.

        Raises the writer's failure.
        """
        await asyncio.sleep(0)  # whoever writes in a loop lets the sending happen here
        while not self._has_room():
            if self._failure is not None:
                raise _again(self._failure)
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter
        self._room_refused = 0

    def _has_room(self) -> bool:
        limit = self._settings.buffer_size_bytes
        return self._used * 2 < limit and self._used + self._room_refused <= limit

    async def flush(self) -> None:
        """Wait until everything written so far is durable.

        Raises the writer's failure if anything written is not.
        """
        waiters = [
            appender.until_acknowledged(appender.outbox.last_added)
            for appender in self._lanes.appenders
            if appender.outbox.unacknowledged
        ]
        if waiters and self._failure is not None:
            raise _again(self._failure)
        for waiter in waiters:
            await self._outcome_of(waiter)

    async def append(
        self, event: T, key: str | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Write one event and wait until it is durable; waits for room if need be."""
        while True:
            try:
                outbox = self._route(key)[0] if key is not None else self._draw_outbox()
                self.write(event, key, timestamp_ms)
                break
            except BufferFull:
                await self.drain()
        appender = self._lanes.appender_with(outbox)
        await self._outcome_of(appender.until_acknowledged(outbox.last_added))

    async def _outcome_of(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except AnabranchError as error:
            raise _again(error) from error

    @property
    def used_bytes(self) -> int:
        """How much of the buffer is in use."""
        return self._used

    @property
    def failed(self) -> bool:
        """Whether the writer has ended, by an error or by `close`: it takes no more events."""
        return self._failure is not None

    def unacknowledged(self) -> dict[str, list[bytes]]:
        """Segment → its payloads that are not acknowledged, in the order of writing.

        After a failure these may or may not be stored.
        """
        return {
            appender.segment: list(appender.outbox.unacknowledged_events())
            for appender in self._lanes.appenders
            if appender.outbox.unacknowledged
        }

    # --- behind the scenes ----------------------------------------------------------------

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        self._keyless = None
        for appender in self._lanes.appenders:
            if appender.outbox.awake:
                appender.outbox.awake = False
                appender.pump()

    def _released(self, size: int) -> None:
        self._used -= size
        if self._has_room():
            self._wake_room_waiters()

    def _wake_room_waiters(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _appender_ended(self, appender: SegmentAppender, error: AnabranchError) -> None:
        if self._failure is None:
            self._run(self._go_on_without(appender, error))

    async def _go_on_without(self, appender: SegmentAppender, error: AnabranchError) -> None:
        """Its successors take over, if the segment was sealed; else the writer ends."""
        try:
            if not isinstance(error, SegmentSealed | SegmentNotFound):
                raise error
            missing = error if isinstance(error, SegmentNotFound) else None
            successors = await self._followers.after(appender.segment, if_open=missing)
            if not appender.is_certain:
                raise OutcomeUnknown(
                    "a segment was sealed, and deleted by truncation, before it acknowledged all"
                )
            if not successors:
                raise StreamSealed("the stream was sealed while it was being written to")
            await self._directory.prepare(each.name for each in successors)
        except AnabranchError as final:
            final.fields = {
                **final.fields, "stream": str(self.stream), "segment": appender.segment,
            }  # fmt: skip
            self._fail(final)
            return
        if self._failure is None:
            self._lanes.replace(appender, successors)
            self._route.cache_clear()
            self._keyless = None

    def _fail(self, error: AnabranchError) -> None:
        if self._failure is not None:
            return
        count = sum(appender.outbox.unacknowledged for appender in self._lanes.appenders)
        if count:
            error.fields = {**error.fields, "unacknowledged": count}
        self._failure = error
        for appender in self._lanes.appenders:
            appender.fail_waiters(error)
        self._wake_room_waiters()


def _as_bytes(event: object) -> bytes:
    match event:
        case str():
            try:
                return event.encode()
            except UnicodeEncodeError as error:
                raise InvalidRequest("an event is not valid Unicode text") from error
        case bytearray() | memoryview() | bytes():
            return bytes(event)
    raise InvalidRequest("an event must be bytes or text", type=type(event).__name__)


def _as_timestamps(timestamps_ms: Sequence[int]) -> "array[int]":
    """The timestamps as they will be stored. Raises InvalidRequest."""
    try:
        return array("q", map(index, timestamps_ms))
    except (TypeError, OverflowError) as error:
        raise InvalidRequest(
            "a timestamp must be a whole number of milliseconds in 64 bits"
        ) from error


def _again(error: AnabranchError) -> AnabranchError:
    """A fresh copy to raise, so that one failure can be raised by many calls."""
    return type(error)(error.message, remedy=error.remedy, **error.fields)
