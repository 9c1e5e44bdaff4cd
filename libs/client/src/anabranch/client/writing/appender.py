"""Keeps one segment's append session alive: sends an outbox's blocks and receives the
acknowledgements.

    idle ──something to send──► look up, connect, SetupAppend ──AppendSetup(last)──► open
     ▲                                   │       └──AppendSetup(last, sealed)──► ended │
     └──nothing left, or after a pause───┴────────── lost, refused, silent ───────────┘

After any break, the appender drops acknowledged events up to `last`, resends the rest in order, and
continues. The store recognises stored events by their numbers, so nothing is stored twice. The
writer acknowledges nothing before the store reports it as durable.

A setup of a sealed segment reports for certain which events the segment holds. So does an append
that is answered by SegmentNotFound, because a session's answers come in order; a setup of a deleted
segment does not. The appender then ends, and the writer gives the rest of the outbox, with
`take_waiters`, to the segment's successors.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec import Struct, structs

from anabranch.client.backoff import Backoff
from anabranch.client.settings import WRITER_BLOCK_SIZE_BYTES_MAX, WriterSettings
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.writing.batches import LargeEvent
from anabranch.client.writing.outbox import Outbox, SentBlock
from anabranch.client.writing.pacing import BlockSizing, InFlight
from anabranch.client.writing.uploads import Uploads
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    ConnectionLost,
    EventGap,
    Fenced,
    OutcomeUnknown,
    PartialDuplicate,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    SessionEnded,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendLarge,
    AppendSetup,
    Failed,
    GetSegmentInfo,
    Message,
    SegmentInfo,
    SetupAppend,
    error_of,
)

CURED_BY_SETUP = (
    Retry, Fenced, OutcomeUnknown, SessionEnded, EventGap, PartialDuplicate, SegmentSealed,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AppenderEvents:
    """The writer's callbacks: for returned room in bytes, and for the error that ends it."""

    released: Callable[[int], None]
    ended: Callable[["SegmentAppender", AnabranchError], None]


class Waiter(Struct):
    """A call that waits until its events are acknowledged in `places` segments."""

    acknowledged: asyncio.Future[None]
    places: int = 1

    def arrived(self) -> None:
        """Note that one more segment has acknowledged its events."""
        self.places -= 1
        if not self.places and not self.acknowledged.done():
            self.acknowledged.set_result(None)


def acknowledgement_of(
    waiting: "Sequence[SegmentAppender]", done: asyncio.Future[None]
) -> asyncio.Future[None]:
    """`done`, which completes when all events that these appenders have now are acknowledged."""
    if not waiting:
        done.set_result(None)
    waiter = Waiter(done, len(waiting))
    for appender in waiting:
        appender.add_waiter(appender.outbox.last_added, waiter)
    return done


@dataclass(slots=True)
class _Session:
    connection: SegmentStoreConnection
    number: int
    container_epoch: int
    news: asyncio.Event
    """Set when the session has ended, and when an event must be uploaded."""
    ended: AnabranchError | None = None


class SegmentAppender:
    """One segment of one writer. `run` must be running for anything to be sent."""

    def __init__(
        self,
        segment: str,
        writer_id: bytes,
        *,
        settings: WriterSettings,
        directory: SegmentDirectory,
        clock: Clock,
        backoff: Backoff,
        events: AppenderEvents,
        in_flight: InFlight,
    ) -> None:
        self.segment = segment
        self.outbox = Outbox(
            writer_id,
            settings.blocks_in_flight_max,
            settings.zstd_level,
            in_flight_bytes=in_flight,
            sizing=BlockSizing(settings.block_size_bytes, WRITER_BLOCK_SIZE_BYTES_MAX),
        )
        self._in_flight = in_flight
        self._uploads = Uploads(
            writer_id, in_flight, clock, settings.ack_timeout_s, settings.zstd_level
        )
        self.length: int | None = 0
        """The segment's length after the acknowledged events; None if unknown since a break."""
        self._writer_id = writer_id
        self._settings = settings
        self._directory = directory
        self._clock = clock
        self._backoff = backoff
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._session: _Session | None = None
        self._progress_at_s = 0.0
        self._waiters: deque[tuple[int, Waiter]] = deque()
        self._sealed = False
        self._refused = False

    # --- called by the writer -------------------------------------------------------------

    def pump(self) -> None:
        """Send the blocks that may be sent now; without a session, request one."""
        if self._session is None:
            self._wanted.set()
            return
        if self.outbox.is_gathering:
            return
        if not self.outbox.in_flight:
            self._progress_at_s = self._clock.monotonic()
        while (block := self.outbox.take_block(self._clock.now_ms())) is not None:
            if not self._send(self._session, block):
                return
        if self.outbox.next_upload is not None:
            self._session.news.set()
        elif self.outbox.waits_for_room:
            self._in_flight.when_room(self.pump)

    def add_waiter(self, event_number: int, waiter: Waiter) -> None:
        """Notify `waiter` when every event up to `event_number` is acknowledged; numbers never
        decrease.
        """
        if event_number <= self.outbox.acknowledged:
            waiter.arrived()
        else:
            self._waiters.append((event_number, waiter))

    @property
    def is_stalled(self) -> bool:
        """Whether it has events to send and no session with a store."""
        return self._session is None and self.outbox.unacknowledged > 0

    @property
    def is_certain(self) -> bool:
        """Once it has ended: whether nothing that the outbox still holds can be stored."""
        return self._sealed or self._refused or not self.outbox.in_flight

    def take_waiters(self) -> deque[tuple[int, Waiter]]:
        """Remove and return all waiters, by the event number that each waits for."""
        waiters, self._waiters = self._waiters, deque()
        return waiters

    def fail_waiters(self, error: AnabranchError) -> None:
        """Fail every call that waits for an acknowledgement."""
        self.outbox.fail_spans(error)
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.acknowledged.done():
                waiter.acknowledged.set_exception(error.copy())
                waiter.acknowledged.exception()  # a waiter may have given up waiting

    # --- the session's life ---------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled, or until an error that no new session cures."""
        try:
            while True:
                await self._wanted.wait()
                error = await self._serve_one_session()
                await self._recover_from(error)
        except AnabranchError as error:
            self._events.ended(self, error)

    async def _recover_from(self, error: AnabranchError) -> None:
        if self._sealed or not isinstance(error, CURED_BY_SETUP):
            raise error
        if self.outbox.unacknowledged == 0:
            self._backoff.progress()
            self._wanted.clear()
            return
        pause_s = self._backoff.failed(self._clock.monotonic())
        if pause_s is None:
            raise self._gave_up(error) from error
        await self._clock.sleep(pause_s)

    def _gave_up(self, error: AnabranchError) -> AnabranchError:
        kind = OutcomeUnknown if self.outbox.in_flight else type(error)
        return kind(
            f"gave up writing after {self._settings.retry_timeout_s:g} s without progress: "
            f"{error.message}",
            cause=error.code,
        )

    async def _serve_one_session(self) -> AnabranchError:
        location: SegmentLocation | None = None
        try:
            connection, location = await self._directory.connect(self.segment)
            return await self._hold_session(connection, location)
        except AnabranchError as error:
            if location is not None and isinstance(error, Retry | Fenced):
                self._directory.forget(location)
            return error

    async def _hold_session(
        self, connection: SegmentStoreConnection, location: SegmentLocation
    ) -> AnabranchError:
        number = connection.open_session(self)
        epoch = location.container_epoch
        session = _Session(connection, number, epoch, asyncio.Event())
        try:
            setup = SetupAppend(
                segment=self.segment, container_epoch=epoch,
                writer_id=self._writer_id, session=number,
            )  # fmt: skip
            self._resume(session, await self._set_up(connection, setup))
            error = await self._until_ended(session)
        finally:
            self._session = None
            connection.end_session(number)
            self._in_flight.wake()
        if isinstance(error, Retry | Fenced):
            self._directory.forget(location)
        return error

    async def _set_up(self, connection: SegmentStoreConnection, setup: SetupAppend) -> AppendSetup:
        """Raises SegmentNotFound for a deleted segment, of which the store cannot know the stored
        events."""
        timeout_s = self._settings.ack_timeout_s
        try:
            return (await connection.request(setup, AppendSetup, timeout_s=timeout_s))[0]
        except OutcomeUnknown:
            info = GetSegmentInfo(segment=self.segment, container_epoch=setup.container_epoch)
            await connection.request(info, SegmentInfo, timeout_s=timeout_s)
            raise

    def _resume(self, session: _Session, reply: AppendSetup) -> None:
        last, before = reply.last_event_number, self.outbox.acknowledged
        if not reply.sealed or self.outbox.in_flight:
            self._acknowledged(last, self.outbox.resume(last))
        if self.outbox.acknowledged > before:
            self.length = None
        if reply.sealed:
            self._sealed = True
            raise SegmentSealed("the segment was sealed during a write")
        if self.outbox.unacknowledged == 0:
            self._backoff.progress()
        self._session = session
        self._progress_at_s = self._clock.monotonic()
        for block in list(self.outbox.in_flight):
            if not self._send(session, block):
                return
        self.pump()

    async def _until_ended(self, session: _Session) -> AnabranchError:
        """Upload large events and wait for the session's end; end it if acknowledgements take too
        long."""
        limit_s = self._settings.ack_timeout_s
        while session.ended is None:
            if (large := self.outbox.next_upload) is not None:
                await self._upload(session, large)
                continue
            await self._news_of(session, limit_s / 4)
            silent_s = self._clock.monotonic() - self._progress_at_s
            if session.ended is None and self.outbox.in_flight and silent_s > limit_s:
                return session.connection.abort(
                    ConnectionLost("the segment store stopped acknowledging", silent_s=silent_s)
                )
        return session.ended

    async def _news_of(self, session: _Session, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await session.news.wait()
        session.news.clear()

    async def _upload(self, session: _Session, large: LargeEvent) -> None:
        """Bring the parts to the store; an error ends the session and is its reason."""
        try:
            large.uploaded = await self._uploads.upload(
                large.event, self.segment, session.container_epoch, session.connection
            )
        except AnabranchError as error:
            self._end(session, error)
            return
        self._progress_at_s = self._clock.monotonic()
        if self._session is session:
            self.pump()

    def _send(self, session: _Session, block: SentBlock) -> bool:
        trace_parent = ""
        if block.spans is not None:
            block.spans.sent(self.segment, block.count, len(block.data))
            trace_parent = block.spans.trace_parent
        append = Append(
            session=session.number, first_event_number=block.first, count=block.count,
            trace_parent=trace_parent,
        )  # fmt: skip
        if block.large is not None:
            append = AppendLarge(**structs.asdict(append), parts=block.parts)
        try:
            session.connection.send_append(append, block.data)
        except ConnectionLost as error:
            self._end(session, error)
            return False
        return True

    # --- called by the connection ---------------------------------------------------------

    def session_replied(self, reply: Message) -> None:
        session = self._session
        if session is None:
            return
        match reply:
            case Appended(last_event_number=last, length=length):
                try:
                    woken = self._acknowledged(last, self.outbox.acknowledge(last))
                except AnabranchError as error:
                    self._end(session, error)
                    return
                self.length = length
                if self.outbox.unacknowledged and woken:
                    self._loop.call_soon(self.pump)  # the woken callers' next events travel along
                elif self.outbox.unacknowledged:
                    self.pump()
                self._in_flight.wake()
            case Failed():
                refusal = error_of(reply)
                self._refused = isinstance(refusal, SegmentNotFound)
                self._end(session, refusal)
            case _:
                session.connection.abort(BadPacket("an append got an unexpected reply"))

    def session_lost(self, error: AnabranchError) -> None:
        if self._session is not None:
            self._end(self._session, error)

    def _end(self, session: _Session, error: AnabranchError) -> None:
        self._session = None
        if session.ended is None:
            session.ended = error
        session.news.set()

    def _acknowledged(self, last: int, released: int) -> bool:
        """Returns whether that woke a caller."""
        if released:
            self._progress_at_s = self._clock.monotonic()
            self._backoff.progress()
            self._events.released(released)
        waiting = len(self._waiters)
        while self._waiters and self._waiters[0][0] <= last:
            self._waiters.popleft()[1].arrived()
        return len(self._waiters) < waiting
