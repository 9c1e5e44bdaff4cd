"""One read: events from a position up to a count, a size or the tail, perhaps after a wait.

The read first takes all events up to the present tail, in its own task and without a query to the
controller if the stream was read before. If there are none, and the caller wants to wait, a second
reader waits at the tail for the first event.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar, cast

from anabranch.client import Client, Event, EventBatch, EventReader, ReaderSettings, TimeWindow
from anabranch.client.reading.bounds import Start
from anabranch.client.reading.openings import Openings, PageStart
from anabranch.client.reading.position_tokens import (
    PositionToken,
    position_token,
    positions_in,
    token_of,
)
from anabranch.client.reading.pull_reader import PullReader
from anabranch.client.reading.times.follower import WatermarkFollower
from anabranch.client.reading.times.instants import looks_like_time, parse_time
from anabranch.client.reading.times.window import UNKNOWN, Place
from anabranch.common.errors import EventsTruncated, Remedy, Unavailable
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.bounds.shared_reads import SharedReads
from anabranch.gateway.events.following import PATIENCE_S, Following

KIB = 1024
MIB = 1024 * KIB
AHEAD_BYTES_MIN = 64 * KIB
CONTINUE_AT_NEXT = Remedy(http="continue behind the gap: send the field `next` as `from`")
EVENTS_AHEAD = 1000
"""Events ahead of a reader that follows the stream."""

Positions = dict[str, tuple[int, int]]
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`start`: head, tail, a time or a position token.

    `window`: find the window of event time, too.
    """

    stream: str
    start: str
    events_max: int
    window: bool = False


@dataclass(slots=True)
class ReadEvents:
    """The result of a read, which several requests may share: they leave it unchanged.

    `positions` are those of the events after the last one.
    """

    incarnation: int
    positions: Positions = field(default_factory=dict)
    payloads: list[bytes] = field(default_factory=list)
    taken: list[tuple[EventBatch, int]] = field(default_factory=list)
    """The batches of the payloads, each with the number of its events among them."""
    size_bytes: int = 0
    ended: bool = False
    """The stream is sealed and read to its end."""
    window: TimeWindow = UNKNOWN
    """The lower bound at the first event, and the upper bound behind the last one, if requested."""

    def first(self) -> Event | None:
        """The first event, if there is one. Raises CorruptBlock."""
        for batch, count in self.taken:
            if count:
                return batch.events_with(batch.payloads[:1])[0]
        return None

    _made: dict[Hashable, object] = field(default_factory=dict)

    def once(self, form: Hashable, make: Callable[["ReadEvents"], A]) -> A:
        """What `make` makes of the result in this form, once for all requests that share it."""
        if form not in self._made:
            self._made[form] = make(self)
        return cast("A", self._made[form])

    def next_position(self, stream: str) -> str:
        return position_token(stream, self.incarnation, self.positions)


class Reads:
    """Concurrent reads for many callers, as many as there are `places`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        places: ReadPlaces,
        *,
        rng: Rng,
        tasks: asyncio.TaskGroup,
        size_bytes_max: int,
        timeout_s: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._client = client
        self._clock = clock
        self._places = places
        self._rng = rng
        self._ranges = client.ranges()
        self._openings = Openings(self._ranges, clock)
        self._shared = SharedReads(self._read, tasks)
        self._size_bytes_max = size_bytes_max
        self._timeout_s = timeout_s
        self.stopping = stopping

    async def read(self, request: ReadRequest, wait_s: float = 0.0) -> ReadEvents:
        """Read once; if there are no events yet, wait so long for the first one.

        Raises the reader's errors, InvalidRequest (token of another stream), Unavailable,
        Overloaded.
        """
        self._places.take()
        try:
            found = await self._shared.read(request)
            if found.payloads or wait_s <= 0:
                return found
            return await self._wait_at_tail(request, found, wait_s)
        finally:
            self._places.release()

    async def follow(self, stream: str, start: str) -> Following:
        """A reader that follows the stream; the caller closes it. Raises as `read`."""
        self._places.take()
        try:
            async with asyncio.timeout(self._timeout_s):
                incarnation = (await self._client.streams.describe(stream)).incarnation
                request = ReadRequest(stream, start, EVENTS_AHEAD)
                at = _start_of_reader(_start(request), incarnation)
                reader = await self._reader(request, at, until_tail=False).__aenter__()
        except TimeoutError as error:
            self._places.release()
            raise Unavailable("the stream was not opened in time", stream=stream) from error
        except BaseException:
            self._places.release()
            raise
        return Following(reader, incarnation, self._clock, self._places.release)

    async def _read(self, request: ReadRequest) -> ReadEvents:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._up_to_tail(request)
        except TimeoutError as error:
            raise Unavailable("the events were not read in time", stream=request.stream) from error

    async def _up_to_tail(self, request: ReadRequest) -> ReadEvents:
        reader = PullReader(
            stream_ref(request.stream),
            _start(request),
            self._ranges,
            self._openings,
            self._rng,
            read_size_bytes=min(MIB, self._ahead_bytes(request)),
        )
        await reader.open()
        found = ReadEvents(reader.incarnation, dict(reader.positions()))
        if not request.window:
            await self._take_all(reader, request, found)
            return found
        times = self._ranges.watermarks(reader.stream, reader.incarnation)
        found.window = await _window(times, reader.places(found.positions))
        await self._take_all(reader, request, found)
        behind = await _window(times, reader.places(found.positions))
        found.window = found.window._replace(upper_ms=behind.upper_ms)
        return found

    async def _take_all(self, reader: PullReader, request: ReadRequest, found: ReadEvents) -> None:
        while request.start != "tail" and not self._is_enough(request, found):
            try:
                batch = await reader.next_batch()
            except EventsTruncated as error:
                if found.payloads:
                    return  # the next read raises it, after these events
                found.positions = dict(reader.positions())
                error.fields = {**error.fields, "next": found.next_position(request.stream)}
                error.own_remedy = CONTINUE_AT_NEXT
                raise
            found.incarnation, found.positions = reader.incarnation, dict(reader.positions())
            if batch is None:
                return
            self._take(batch, request, found)

    async def _wait_at_tail(
        self, request: ReadRequest, seen: ReadEvents, wait_s: float
    ) -> ReadEvents:
        found = ReadEvents(seen.incarnation, dict(seen.positions), window=seen.window)
        deadline_s = self._clock.monotonic() + wait_s
        async with self._reader(request, found.positions, until_tail=False) as reader:
            while not found.payloads and not found.ended and not self.stopping():
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0:
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, PATIENCE_S)):
                        batch = await reader.next_batch()
                        found.positions = dict(reader.positions())
                        if batch is None:
                            found.ended = True
                        else:
                            self._take(batch, request, found)
            if request.window:
                upper_ms = (await reader.time_window()).upper_ms
                found.window = found.window._replace(upper_ms=upper_ms)
        return found

    def _ahead_bytes(self, request: ReadRequest) -> int:
        """About as much as the request can take, at 1 KiB per event."""
        return min(self._size_bytes_max, max(AHEAD_BYTES_MIN, request.events_max * KIB))

    def _reader(self, request: ReadRequest, start: Start, *, until_tail: bool) -> EventReader:
        """A reader that reads ahead about as much as the request can take."""
        ahead_bytes = self._ahead_bytes(request)
        settings = ReaderSettings(
            read_ahead_bytes=ahead_bytes,
            read_size_bytes=min(MIB, ahead_bytes),
            retry_timeout_s=20.0,
        )
        return self._client.reader(request.stream, start, until_tail=until_tail, settings=settings)

    def _is_enough(self, request: ReadRequest, found: ReadEvents) -> bool:
        return len(found.payloads) >= request.events_max or found.size_bytes >= self._size_bytes_max

    def _take(self, batch: EventBatch, request: ReadRequest, found: ReadEvents) -> None:
        """Take the batch's events that still fit, and at least one if there are none yet."""
        for count, payload in enumerate(batch.payloads):
            if self._is_enough(request, found):
                offset, first = batch.start
                found.positions[batch.segment] = (offset, first + count)
                found.taken.append((batch, count))
                return
            found.payloads.append(payload)
            found.size_bytes += len(payload)
        found.taken.append((batch, len(batch)))
        found.positions[batch.segment] = batch.next


async def _window(times: WatermarkFollower, places: Sequence[Place]) -> TimeWindow:
    await times.catch_up(places)
    return times.window(places)


def _start_of_reader(start: PageStart, incarnation: int) -> Start:
    """Raises InvalidRequest for a position in another life of the stream."""
    return positions_in(start, incarnation) if isinstance(start, PositionToken) else start


def _start(request: ReadRequest) -> PageStart:
    match request.start:
        case "head" | "tail":
            return request.start
        case time if looks_like_time(time):
            return parse_time(time)
        case token:
            return token_of(request.stream, token)
