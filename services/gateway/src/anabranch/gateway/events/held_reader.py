"""A reader of a group that the gateway holds for an HTTP client, across its connections.

    ┌───────────┐  feed   ┌───────────┐  feed closed  ┌────────┐  grace over, no room   ┌───────┐
    │ joined    │ ──────► │ connected │ ────────────► │ parked │ ─────────────────────► │ ended │
    └───────────┘         └───────────┘ ◄──────────── └────────┘                        └───────┘
                            │ a later feed takes over   │ group says so, failure           ▲
                            └───────────────────────────┴──────────────────────────────────┘

The reader acknowledges explicitly: an event is processed when the client acknowledges it. Until
then the gateway keeps the event, and sends it again to the client's next connection. If the reader
ends, the group's other readers read the unacknowledged events again. One feed at a time requests
more events from the reader.
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
"""How often a waiting feed checks whether it should end."""

EndReason = Literal["end", "acknowledge", "replaced", "stopping"]


class ReaderOfGroup(Protocol):
    """The used part of a `GroupReader` with explicit acknowledgements."""

    reader_id: str

    async def __aenter__(self) -> Self: ...

    async def next_batch(self) -> Batch | None: ...

    def ack(self, up_to: Mapping[str, Position] | None = None) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """`heartbeat_s`: if nothing was sent for so long, a sign of life is due. `ack_wait_s`: if
    nothing was sent or acknowledged for so long while events are unacknowledged, the feed ends.
    """

    heartbeat_s: float
    ack_wait_s: float


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """The reason why a connection's feed ends.

    `end`: the group has read its streams to their final ends. `acknowledge`: the client must
    acknowledge, at the latest when it connects again. `replaced`: a later connection took over.
    `stopping`: the gateway stops.
    """

    reason: EndReason


class HeldReader:
    """The reader and its unacknowledged events. `delivery` belongs to the random `session`."""

    def __init__(self, group: str, reader: ReaderOfGroup, delivery: Delivery, clock: Clock) -> None:
        self.group = group
        self.reader = reader
        self.delivery = delivery
        self.failure: AnabranchError | None = None
        self.parked_s = clock.monotonic()
        """The monotonic time at which it last lost its connection."""
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
        """Note that every event up to this one is processed. Raises InvalidRequest."""
        if behind := self.delivery.acknowledge(number):
            self.reader.ack(behind)
            self.acknowledged.set()

    def connect(self, times: FeedTimes, stopping: Callable[[], bool]) -> "Feed":
        """A feed for a new connection, from the first unacknowledged event on; replaces the old
        feed.
        """
        self.parked.clear()
        self.feed = Feed(self, times, self._clock, stopping)
        return self.feed

    async def ask(self, patience_s: float) -> bool:
        """Take the events that arrive in time; returns False once no more can come.

        Raises the reader's errors; the reader is usable afterwards only if the error is
        EventsTruncated or InvalidPosition.
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
    """The messages of one connection."""

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
        """Note that the connection is gone; the reader stays for the grace time. Idempotent."""
        if self.held.feed is self:
            self.held.feed = None
            self.held.parked_s = self._clock.monotonic()
            self.held.parked.set()

    async def next(self) -> list[Delivered] | FeedEnd:
        """The next events, an empty list if a sign of life is due, or the end.

        Raises the reader's errors. After EventsTruncated and InvalidPosition the feed continues;
        after others, such as ReaderRemoved and ReaderGroupReset, it does not.
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
        """Whether sent events are unacknowledged, and nothing was sent or acknowledged for too
        long.
        """
        if self._acknowledged != self.held.delivery.acknowledged:
            self._acknowledged, self._moved_s = self.held.delivery.acknowledged, now_s
        is_open = self._sent > self._acknowledged
        return is_open and now_s - self._moved_s >= self._times.ack_wait_s

    async def _wait(self) -> bool:
        """Wait briefly for an event or an acknowledgement; returns False once no event can come."""
        held = self.held
        if self._sent >= held.delivery.newest and not held.is_asking:
            return await held.ask(PATIENCE_S)
        held.acknowledged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await held.acknowledged.wait()
        return True
