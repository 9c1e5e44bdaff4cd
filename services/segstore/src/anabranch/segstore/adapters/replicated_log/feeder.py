"""Keeps the copy of one other store up to date: one task per follower.

    connect ──► promise ──► the last common message ──┬─ the copy goes on there, or rewinds to it
       ▲                                              └─ nothing in common: reset, outside the ISR
       │ back-off                                                 │
       └── lost, late, refused ◄── live ◄── all was sent ◄── catch up from the own copy
                                     └── too far behind ──────────▲

A *live* follower gets each message at the moment at which the leader sends it to its own journal.
A copy that is required keeps up, because the leader's window is bounded by the slowest of them. If
another copy falls behind by more than the window, it catches up from the leader's journal again.

A required copy fails if it holds up a message for `lag_s`; another one if it acknowledges nothing
for so long. A look that comes late itself, because this process was paused, judges nothing.

State owned: the link of the present attempt, and the messages in flight on it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anabranch.common.errors import AnabranchError, CorruptJournal, Deposed, Unavailable
from anabranch.common.model.cluster import LogCopy
from anabranch.common.runtime.logger import get_logger
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.adapters.replicated_log.isr import Isr
from anabranch.segstore.adapters.replicated_log.led import Led
from anabranch.segstore.adapters.replicated_log.releases import Releases
from anabranch.segstore.adapters.replicated_log.window import MESSAGES_MAX, SIZE_BYTES_MAX, Window
from anabranch.segstore.domain.log.replica.history import Counted, Position, position_of
from anabranch.segstore.domain.log.replica.progress import BEFORE_ALL
from anabranch.segstore.domain.log.stream.messages import HEADER_SIZE_BYTES, Link
from anabranch.segstore.ports_replica import CopyLink, CopyState, FollowerFacts

T = TypeVar("T")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Feeding:
    """The parts of one log that its feeders share."""

    led: Led
    isr: Isr
    window: Window
    releases: Releases


class _Listener:
    """`CopyListener` of one attempt of a feeder."""

    def __init__(self, feeder: "Feeder") -> None:
        self._feeder = feeder

    def copy_synced(self, through: Position) -> None:
        self._feeder.copy_synced(self, through)

    def flush_wanted(self) -> None:
        self._feeder.flush_wanted()

    def copy_failed(self, error: AnabranchError) -> None:
        self._feeder.copy_failed(self, error)


@dataclass(frozen=True, slots=True)
class _InFlight:
    position: Position
    size: int
    sent_s: float


class Feeder:
    """The feeder of one store."""

    def __init__(self, node_id: str, feeding: Feeding) -> None:
        self.node_id = node_id
        self._feeding = feeding
        self._led, self._isr = feeding.led, feeding.isr
        self._clock, self._pace = self._led.around.clock, self._led.around.pace
        self._listener: _Listener | None = None
        self._link: CopyLink | None = None
        self._copy: LogCopy | None = None
        """The follower's copy, once it shares the leader's history up to `_sent`."""
        self._sent: Link | None = None
        self._reached: Position = BEFORE_ALL
        """The last message that the store is known to have synced, also while it is lost."""
        self._live = False
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_size = 0
        self._heard_s = 0.0
        """When the copy last acknowledged anything."""
        self._since_s = self._clock.monotonic()
        """When the follower last had everything, while it is not live."""
        self._lost: AnabranchError | None = None
        self._wake = asyncio.Event()
        self._cancel_look: Callable[[], None] | None = None
        self._look_at_s = 0.0

    # --- calls of the view --------------------------------------------------------------------

    def offer(self, counted: Counted, message: Sequence[Buffer]) -> None:
        """Send the newest message, unless the follower has to catch up first."""
        if not self._live:
            return
        if self._has_room:
            self._push(counted, message)
        else:
            self._stop_live()
            self._wake.set()

    def release(self, sequence: int) -> None:
        """Tell the follower that tier 2 has everything up to this operation."""
        if self._copy is not None and self._link is not None:
            self._link.release(sequence)

    @property
    def holds(self) -> Link | None:
        """The message behind which a follower that catches up still needs everything."""
        return None if self._live else self._sent

    def close(self) -> None:
        """Use the link no more; the task is cancelled by its owner."""
        self._end_attempt()

    def facts(self) -> FollowerFacts:
        """The follower as operators see it."""
        now_s = self._clock.monotonic()
        lag_s = 0.0
        if not self._live:
            lag_s = now_s - self._since_s
        elif self._in_flight:
            lag_s = now_s - self._in_flight[0].sent_s
        copy = self._copy
        return FollowerFacts(
            node_id=self.node_id,
            copy_id="" if copy is None else copy.copy_id,
            in_sync=copy is not None and copy in self._isr.confirmed,
            connected=copy is not None,
            lag_bytes=self._led.copy.history.size_after(self._reached),
            lag_ms=int(lag_s * 1000),
        )

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Feed the store until cancelled. Raises Deposed if it knows a newer owner."""
        failures = 0
        while True:
            began_s = self._clock.monotonic()
            try:
                await self._attempt()
            except Deposed as error:
                raise self._led.deposed(error) from error
            except (AnabranchError, OSError) as error:
                well = self._clock.monotonic() - began_s > self._pace.lag_s
                failures = 1 if well else failures + 1
                tell = _log.warning if failures == 1 else _log.debug
                tell(
                    "a replica of a log cannot be kept up to date, trying again",
                    container=self._led.container, node=self.node_id, failures=failures,
                    error=str(error),
                )  # fmt: skip
            finally:
                self._end_attempt()
            await self._clock.sleep(self._led.around.back_off_s(failures))

    async def _attempt(self) -> None:
        """One connection; ends with an error always."""
        led = self._led
        if led.around.peers.is_gone(self.node_id):
            raise Unavailable("the store's session is over", node=self.node_id)
        listener = self._listener = _Listener(self)
        self._lost = None
        link = self._link = led.around.peers.link(
            self.node_id, led.container, led.log_id, led.container_epoch, listener
        )
        state = await self._within(link.promise())
        copy, at = await self._aligned(link, state)
        self._check()
        self._copy, self._sent = copy, at
        self._reached = position_of(at)
        self._heard_s = self._clock.monotonic()
        if released := self._feeding.releases.released:
            link.release(released)
        self._isr.synced(copy, self._reached)
        await self._catch_up()
        _log.info("a replica of a log is up to date", container=led.container, node=self.node_id)
        while True:
            self._live = True
            self._feeding.releases.release_held()
            while self._live:
                await self._woken()
            await self._catch_up()

    async def _aligned(self, link: CopyLink, state: CopyState) -> tuple[LogCopy, Link]:
        """Make the copy a part of the leader's history; returns it, and its last message."""
        history = self._led.copy.history
        copy = LogCopy(self.node_id, state.copy_id)
        for other in self._isr.required_of(self.node_id):
            if other != copy:
                await self._removed(other)
        common = history.common(state.marks) if state.copy_id else None
        if common is not None:
            if common == state.end:
                return copy, common
            try:
                await self._within(link.rewind(common))
            except CorruptJournal as error:
                _log.warning(
                    "a replica has another history than its leader",
                    container=self._led.container, node=self.node_id, error=str(error),
                )  # fmt: skip
            else:
                return copy, common
        await self._removed(copy)
        state = await self._within(link.reset(history.base))
        return LogCopy(self.node_id, state.copy_id), state.end

    async def _removed(self, copy: LogCopy) -> None:
        """Have a copy leave the ISR, before anything happens to it."""
        self._isr.failed(copy)
        await self._within(self._isr.removed(copy), self._pace.open_s)

    async def _within(self, work: Awaitable[T], seconds: float | None = None) -> T:
        try:
            async with asyncio.timeout(seconds or self._pace.answer_s):
                return await work
        except TimeoutError as error:
            raise Unavailable("the replica did not answer in time", node=self.node_id) from error

    async def _catch_up(self) -> None:
        """Send everything that the follower lacks, one message in memory at a time."""
        copy = self._led.copy
        while (sent := self._sent) != copy.history.end:
            self._check()
            assert sent is not None
            if not copy.history.has(sent):
                raise Unavailable(
                    "the leader released messages that the replica lacks", node=self.node_id
                )
            for counted in copy.history.after(sent):
                while not self._has_room:
                    await self._woken()
                message = self._feeding.window.message_at(counted.position)
                if message is None:
                    message = (await self._within(copy.read(counted), self._pace.lag_s),)
                    self._check()
                self._push(counted, message)

    # --- messages in flight -------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        """Whether the follower takes another message; it refuses more than this."""
        return len(self._in_flight) < MESSAGES_MAX and self._in_flight_size < SIZE_BYTES_MAX

    def _push(self, counted: Counted, message: Sequence[Buffer]) -> None:
        assert self._link is not None
        self._link.append(message)
        size = HEADER_SIZE_BYTES + counted.size
        self._sent = counted.link
        self._in_flight.append(_InFlight(counted.position, size, self._clock.monotonic()))
        self._in_flight_size += size
        if self._cancel_look is None:
            self._look_in(self._pace.look_s)

    def copy_synced(self, listener: object, through: Position) -> None:
        """See `CopyListener`."""
        if listener is not self._listener or self._lost is not None:
            return
        if self._copy is None or self._sent is None:
            return
        self._heard_s = self._clock.monotonic()
        while self._in_flight and self._in_flight[0].position <= through:
            self._in_flight_size -= self._in_flight.popleft().size
        if not self._live:
            self._wake.set()
        self._reached = min(through, position_of(self._sent))
        self._isr.synced(self._copy, self._reached)

    def flush_wanted(self) -> None:
        """See `CopyListener`."""
        self._led.around.flush_wanted(self._led.container)

    def copy_failed(self, listener: object, error: AnabranchError) -> None:
        """See `CopyListener`."""
        if listener is self._listener:
            self._fail(error)

    def _fail(self, error: AnabranchError) -> None:
        self._lost = self._lost or error
        self._stop_live()
        self._isr.failed_store(self.node_id)
        self._wake.set()

    async def _woken(self) -> None:
        """Wait until something happened to the link. Raises the error that ended it."""
        self._check()
        self._wake.clear()
        await self._wake.wait()
        self._check()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._link is None:
            raise Unavailable("the feeder was closed", node=self.node_id)

    def _stop_live(self) -> None:
        if self._live:
            self._live = False
            self._since_s = self._clock.monotonic()

    def _end_attempt(self) -> None:
        """Forget the link. A copy that is not fed is no candidate for the ISR, and leaves it."""
        self._stop_live()
        self._isr.failed_store(self.node_id)
        self._listener = None
        if self._link is not None:
            self._link.close()
        self._link = self._copy = self._sent = None
        self._in_flight.clear()
        self._in_flight_size = 0
        if self._cancel_look is not None:
            self._cancel_look()
            self._cancel_look = None

    # --- lag ----------------------------------------------------------------------------------

    def _look_in(self, seconds: float) -> None:
        self._look_at_s = self._clock.monotonic() + seconds
        self._cancel_look = self._led.around.call_later(seconds, self._look)

    def _look(self) -> None:
        """Check whether the follower holds up a message, or is gone."""
        self._cancel_look = None
        if not self._in_flight or self._copy is None:
            return
        now_s = self._clock.monotonic()
        since_s = self._in_flight[0].sent_s
        if not self._isr.is_required(self._copy):
            since_s = max(since_s, self._heard_s)
        paused = now_s - self._look_at_s > self._pace.lag_s / 2
        if self._led.around.peers.is_gone(self.node_id):
            self._fail(Unavailable("the store's session is over", node=self.node_id))
        elif now_s - since_s >= self._pace.lag_s and not paused:
            self._fail(Unavailable("a replica did not acknowledge in time", node=self.node_id))
        else:
            self._look_in(self._pace.look_s)
