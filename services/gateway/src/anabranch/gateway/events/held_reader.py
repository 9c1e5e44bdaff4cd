"""A reader of a group that the gateway holds for an HTTP client, through its connections.

    ┌───────────┐  feed   ┌───────────┐  feed closed  ┌────────┐  grace over, no room   ┌───────┐
    │ joined    │ ──────► │ connected │ ────────────► │ parked │ ─────────────────────► │ ended │
    └───────────┘         └───────────┘ ◄──────────── └────────┘                        └───────┘
                            │ a later feed takes over   │ group says so, failure           ▲
                            └───────────────────────────┴──────────────────────────────────┘

The reader acknowledges explicitly: an event is processed when the client says so, and until then
it is kept here, to be sent again to the next connection. What was not acknowledged when the reader
ends is read by whoever gets the segment. One feed at a time asks the reader for more.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from anabranch.client import Position
from anabranch.common.errors import AnabranchError, EventsTruncated, InvalidPosition
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.events.delivery import Batch, Delivered, Delivery

PATIENCE_S = 0.5
"""How often a feed that waits looks whether it is still to go on."""

EndReason = Literal["end", "acknowledge", "replaced", "stopping"]


class ReaderOfGroup(Protocol):
    """What is asked of a `GroupReader` with explicit acknowledgements."""

    reader_id: str

    async def __aenter__(self) -> Self: ...

    async def next_batch(self) -> Batch | None: ...

    def ack(self, up_to: Mapping[str, Position] | None = None) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """`heartbeat_s`: nothing was sent for so long, so that is told. `ack_wait_s`: nothing was sent
    and nothing acknowledged for so long, although something is unacknowledged: the feed ends."""

    heartbeat_s: float
    ack_wait_s: float


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """Why nothing more comes on this connection.

    `end`: the group has read everything, for ever. `acknowledge`: the client is to acknowledge, by
    coming back if not otherwise. `replaced`: a later connection took over. `stopping`: the gateway.
    """

    reason: EndReason


class HeldReader:
    """See the module. `session` is drawn; `delivery` belongs to it."""

    def __init__(self, group: str, reader: ReaderOfGroup, delivery: Delivery, clock: Clock) -> None:
        self.group = group
        self.reader = reader
        self.delivery = delivery
        self.failure: AnabranchError | None = None
        self.parked_s = clock.monotonic()
        """Since when it has no connection; of one that has, since when it had none."""
        self.feed: Feed | None = None
        self.is_asking = False
        self.acknowledged = asyncio.Event()
        self.parked = asyncio.Event()
        self._clock = clock

    @property
    def reader_id(self) -> str:
        return self.reader.reader_id

    @property
    def session(self) -> str:
        return self.delivery.session

    def acknowledge(self, number: int) -> None:
        """Everything up to the event is processed. Raises InvalidRequest."""
        if behind := self.delivery.acknowledge(number):
            self.reader.ack(behind)
            self.acknowledged.set()

    def connect(self, times: FeedTimes, stopping: Callable[[], bool]) -> "Feed":
        """A connection's feed, from the first unacknowledged event on; it replaces another."""
        self.parked.clear()
        self.feed = Feed(self, times, self._clock, stopping)
        return self.feed

    async def ask(self, patience_s: float) -> bool:
        """Take what comes within the time, if something does → whether there may be more, ever.

        Raises what the reader does; but for EventsTruncated and InvalidPosition it is of no more
        use then.
        """
        self.is_asking = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    batch = await self.reader.next_batch()
                    if batch is not None:
                        self.delivery.take(batch)
                    return batch is not None
        except (EventsTruncated, InvalidPosition):
            raise
        except AnabranchError as error:
            self.failure = error
            raise
        finally:
            self.is_asking = False
        return True


class Feed:
    """What one connection is sent."""

    def __init__(
        self, held: HeldReader, times: FeedTimes, clock: Clock, stopping: Callable[[], bool]
    ) -> None:
        self.held = held
        self._times = times
        self._clock = clock
        self._stopping = stopping
        self._sent = self._acknowledged = held.delivery.acknowledged
        self._moved_s = clock.monotonic()

    def close(self) -> None:
        """The connection is gone; the reader stays for a while. Repeatable."""
        if self.held.feed is self:
            self.held.feed = None
            self.held.parked_s = self._clock.monotonic()
            self.held.parked.set()

    async def next(self) -> list[Delivered] | FeedEnd:
        """What is to be sent next, nothing where only a sign of life is due; or the end.

        Raises what the reader does: EventsTruncated and InvalidPosition, after which it goes on;
        ReaderRemoved, ReaderGroupReset and others, after which it does not.
        """
        began_s = self._clock.monotonic()
        while True:
            if self.held.feed is not self:
                return FeedEnd("replaced")
            if self._stopping():
                return FeedEnd("stopping")
            now_s = self._clock.monotonic()
            if events := self.held.delivery.sendable(self._sent):
                self._sent, self._moved_s = events[-1].number, now_s
                return events
            if self._waits_in_vain(now_s):
                return FeedEnd("acknowledge")
            if now_s - began_s >= self._times.heartbeat_s:
                return []
            if not await self._wait():
                return FeedEnd("end")

    def _waits_in_vain(self, now_s: float) -> bool:
        """Something was sent and is not acknowledged, and nothing moved for long enough."""
        if self._acknowledged != self.held.delivery.acknowledged:
            self._acknowledged, self._moved_s = self.held.delivery.acknowledged, now_s
        is_open = self._sent > self._acknowledged
        return is_open and now_s - self._moved_s >= self._times.ack_wait_s

    async def _wait(self) -> bool:
        """A moment, for an event or an acknowledgement → whether anything may come, ever."""
        held = self.held
        if self._sent >= held.delivery.newest and not held.is_asking:
            return await held.ask(PATIENCE_S)
        held.acknowledged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await held.acknowledged.wait()
        return True
