"""Sends the updates of one partition, each of them performed exactly once.

    call ──► waiting ──all that fit, at the next turn of the loop──► in flight ──answer──► told
                                                                        │  ▲
           lost, wrong host, unavailable: look up, connect, resend all, oldest first

A unit that waits costs its caller one future and no task. All units that wait when a request may
leave travel in it, so a slow store gets few large requests. Requests have numbers under a client id
of their own, by which the store recognises a repeat; it is sent unchanged.

A request that gets no answer in time has an unknown outcome, and may even be performed later. The
next number then leaves a gap as wide as the store's memory: the store refuses a late request from
before the gap as soon as it has performed one from behind it.

A task connects, and pauses after failures. While it is connected, callbacks send and receive. One
timer looks after the deadlines while anything is waiting or in flight.
"""

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial

import msgspec

from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.units import Filling, Unit, UpdateRequest, outcomes, request_of
from anabranch.client.writing.room import Room
from anabranch.common.adapters.store_connection import Reply, SegmentStoreConnection
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    Closed,
    ConnectionLost,
    Fenced,
    OutcomeUnknown,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    TableNotFound,
    TableSealed,
    Unavailable,
    WrongHost,
)
from anabranch.common.wire.messages import (
    REQUESTS_REMEMBERED,
    Failed,
    TableUpdated,
    error_of,
)

_CERTAIN = (TableSealed, TableNotFound)
"""After these, nothing that was sent matters any more."""


@dataclass(slots=True)
class _Session:
    """The time from a connection to the first reason to connect again."""

    connection: SegmentStoreConnection
    location: SegmentLocation
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: AnabranchError | None = None

    def end(self, error: AnabranchError) -> None:
        if self.ended is None:
            self.ended = error
            self.over.set()


class PartitionWriter:
    """The updates of one partition. `room` is the buffer of the whole table; units that are sent
    have taken their size from it."""

    def __init__(self, segment: str, parts: TableParts, room: Room) -> None:
        self.segment = segment
        self._parts = parts
        self._settings = parts.settings
        self._clock = parts.runtime.clock
        self._room = room
        self._client_id = parts.runtime.ids.new_bytes()
        self._next_number = 1
        self._waiting: deque[Unit] = deque()
        self._in_flight: dict[int, UpdateRequest] = {}
        """By number, ascending."""
        self._session: _Session | None = None
        self._backoff = parts.new_backoff(math.inf)
        self._trouble = ""
        """The code of the last error that ended a session."""
        self._progress_at_s = 0.0
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pump_is_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # --- called by the table --------------------------------------------------------------

    def send(self, unit: Unit) -> None:
        """Take the unit; never waits. Raises Closed if the client is closing."""
        if self._task is None:
            self._task = self._parts.runtime.start(self._run())
        self._waiting.append(unit)
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)
        if self._alarm is None:
            self._set_alarm()

    async def close(self) -> None:
        """Stop. Units without an answer raise OutcomeUnknown, those that wait raise Closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._alarm is not None:
            self._alarm.cancel()
        for request in tuple(self._in_flight.values()):
            self._fail(request, self._unknown("the table was closed before an update was answered"))
        self._fail_waiting(Closed("the table was closed before the update was sent"))

    # --- sending --------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what waits, as far as requests may be in flight; connect first if necessary."""
        self._pump_is_due = False
        if self._session is None:
            self._wanted.set()
            return
        while self._waiting and self._may_send():
            units = self._next_units()
            if not units:
                continue
            if not self._in_flight:
                self._progress_at_s = self._clock.monotonic()
            request = request_of(units, self.segment, self._client_id, self._next_number)
            self._next_number += 1
            self._in_flight[request.number] = request
            self._send(self._session, request)

    def _may_send(self) -> bool:
        if self._session is None or self._session.ended is not None:
            return False
        oldest = next(iter(self._in_flight), self._next_number)
        return self._next_number - oldest < self._settings.requests_in_flight_max

    def _next_units(self) -> list[Unit]:
        """The units of the next request. Those whose callers have gone are dropped."""
        units: list[Unit] = []
        filling, waiting = Filling(), self._waiting
        while waiting:
            unit = waiting[0]
            if unit.told.done():
                self._room.release(waiting.popleft().size)
            elif filling.takes(unit):
                units.append(waiting.popleft())
            else:
                break
        return units

    def _send(self, session: _Session, request: UpdateRequest) -> None:
        epoch = session.location.container_epoch
        message = msgspec.structs.replace(request.message, container_epoch=epoch)
        try:
            replied = session.connection.begin_request(message, request.payload)
        except Retry as error:  # nothing was sent
            session.end(error)
            return
        request.replied = replied
        replied.add_done_callback(partial(self._replied, session, request))

    def _replied(
        self, session: _Session, request: UpdateRequest, replied: asyncio.Future[Reply]
    ) -> None:
        if request.replied is not replied:
            return  # of an attempt that was given up
        request.replied = None
        self._progress_at_s = self._clock.monotonic()
        if (error := replied.exception()) is not None:
            assert isinstance(error, AnabranchError)
            request.unclear = True
            session.end(error)
            return
        match replied.result()[0]:
            case TableUpdated() as reply:
                self._performed(session, request, reply)
            case Failed() as reply:
                self._refused(session, request, error_of(reply))
            case _:
                wrong = BadPacket("a reply's kind does not match its request")
                self._distrust(session, request, wrong)
        if self._waiting:
            self._pump()

    def _performed(self, session: _Session, request: UpdateRequest, reply: TableUpdated) -> None:
        try:
            told = outcomes([len(unit.keys) for unit in request.units], reply)
        except BadPacket as error:
            self._distrust(session, request, error)
            return
        self._backoff.progress()
        for unit, outcome in zip(request.units, told, strict=True):
            if not unit.told.done():
                unit.told.set_result(outcome)
        self._forget(request)

    def _distrust(self, session: _Session, request: UpdateRequest, error: BadPacket) -> None:
        request.unclear = True
        session.end(session.connection.abort(error))

    def _refused(self, session: _Session, request: UpdateRequest, error: AnabranchError) -> None:
        match error:
            case SegmentNotFound() | Retry() | Fenced():
                request.unclear |= not isinstance(error, WrongHost)
                session.end(error)
            case SegmentSealed():
                sealed = TableSealed("the table is sealed", table=str(self._parts.fate.table))
                self._fail(request, sealed)
            case _:
                self._fail(request, error)

    # --- connecting -----------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            error = await self._serve_one_session()
            await self._recover_from(error)

    async def _serve_one_session(self) -> AnabranchError:
        """Connect, resend, and stay until there is a reason to connect again."""
        try:
            session = _Session(*await self._parts.directory.connect(self.segment))
        except AnabranchError as error:
            return error
        self._session = session
        self._progress_at_s = self._clock.monotonic()
        try:
            for request in self._in_flight.values():
                self._send(session, request)
            self._pump()
            await session.over.wait()
        finally:
            self._session = None
            for request in self._in_flight.values():
                self._give_up_attempt(request)
        assert session.ended is not None
        self._parts.directory.forget(session.location)
        return session.ended

    def _give_up_attempt(self, request: UpdateRequest) -> None:
        if request.replied is not None:
            request.unclear = True
            request.replied.cancel()
            request.replied = None

    async def _recover_from(self, error: AnabranchError) -> None:
        """Pause, and connect again if there is anything to send; or fail everything."""
        if isinstance(error, SegmentNotFound):
            error = await self._parts.named(error)
        if not isinstance(error, Retry | Fenced):
            self._fail_all(error)
        if not self._in_flight and not self._waiting:
            self._backoff.progress()
            return
        self._trouble = error.code
        pause_s = self._backoff.failed(self._clock.monotonic())
        assert pause_s is not None, "the backoff of a partition never ends"
        await self._clock.sleep(pause_s)
        self._wanted.set()

    # --- deadlines ------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """Look again when the first deadline has passed, or a connection may have been silent."""
        deadlines = [request.deadline_s for request in self._in_flight.values()]
        if self._waiting:
            deadlines.append(self._waiting[0].deadline_s)
        self._alarm = None
        if deadlines:
            left_s = min(deadlines) - self._clock.monotonic()
            wait_s = min(max(left_s, 0.001), self._settings.ack_timeout_s / 4)
            self._alarm = self._loop.call_later(wait_s, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        now_s, session = self._clock.monotonic(), self._session
        silent_s = now_s - self._progress_at_s
        if session is not None and self._in_flight and silent_s > self._settings.ack_timeout_s:
            lost = ConnectionLost("the segment store stopped answering updates", silent_s=silent_s)
            session.connection.abort(lost)
        for request in tuple(self._in_flight.values()):
            if request.deadline_s <= now_s:
                self._expire(request)
        while self._waiting and self._waiting[0].deadline_s <= now_s:
            unit = self._waiting.popleft()
            self._tell(unit, self._not_performed("no store took an update in time"))
            self._room.release(unit.size)
        if self._waiting and self._session is not None:
            self._pump()
        self._set_alarm()

    def _expire(self, request: UpdateRequest) -> None:
        is_unclear = request.unclear or request.replied is not None
        self._give_up_attempt(request)
        if is_unclear:
            self._fail(request, self._unknown("no reply to an update in time"))
        else:
            self._fail(request, self._not_performed("every store refused an update"))

    # --- telling --------------------------------------------------------------------------

    def _fail_all(self, error: AnabranchError) -> None:
        for request in tuple(self._in_flight.values()):
            if request.unclear and not isinstance(error, _CERTAIN):
                self._fail(request, self._unknown(f"no reply to an update: {error.message}"))
            else:
                self._fail(request, error)
        self._fail_waiting(error)

    def _fail_waiting(self, error: AnabranchError) -> None:
        while self._waiting:
            unit = self._waiting.popleft()
            self._tell(unit, error)
            self._room.release(unit.size)

    def _fail(self, request: UpdateRequest, error: AnabranchError) -> None:
        if isinstance(error, OutcomeUnknown):
            self._next_number = max(self._next_number, request.number + REQUESTS_REMEMBERED)
        for unit in request.units:
            self._tell(unit, error)
        self._forget(request)

    def _tell(self, unit: Unit, error: AnabranchError) -> None:
        if not unit.told.done():
            unit.told.set_exception(error.copy())
            unit.told.exception()  # the caller may have gone

    def _forget(self, request: UpdateRequest) -> None:
        del self._in_flight[request.number]
        self._room.release(request.size)

    def _unknown(self, message: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            message,
            remedy="read the entries; their versions say whether the update was performed",
            table=str(self._parts.fate.table),
        )

    def _not_performed(self, message: str) -> Unavailable:
        table = str(self._parts.fate.table)
        return Unavailable(message, table=table, segment=self.segment, cause=self._trouble)
