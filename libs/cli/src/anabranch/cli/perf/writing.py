"""A load of writers: batches at a rate or as fast as they go, and the time of each acknowledgement.

Events of a rate are an open loop (`load.pacing`): a latency counts from the moment when the event
was due. Without a rate it counts from the call that took the event, so it shows the queue in the
writer's buffer. When the measurement is over, the writers wait for the events that are under way.

The work is one call per batch, and the iterators of events and keys run in C. The buffers of the
writers bound the events that wait for acknowledgements; at a rate, at most `BATCHES_IN_FLIGHT_MAX`
batches wait.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Literal

from anabranch.cli.perf.ending import Ending
from anabranch.cli.perf.load.appends import take
from anabranch.cli.perf.load.histogram import Histogram
from anabranch.cli.perf.load.pacing import TICK_S, Pace
from anabranch.cli.perf.load.scales import Moments
from anabranch.cli.perf.order import key_name
from anabranch.client import Client, EventWriter, WriterSettings
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each

BATCHES_IN_FLIGHT_MAX = 1024
BUFFER_SIZE_BYTES = 64 * 1024 * 1024
BATCHES_IN_BUFFER_MIN = 4
EVENT_COST_BYTES_MAX = 64
"""A writer counts so much for an event beside its payload: for its key and its overhead."""
LOOK_S = 0.1
"""The longest pause between two looks for the end."""
EVENTS_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Plan:
    """A load. `events(writer)`: the payloads of a writer, without end.

    `batch_count`: the most events of one call. `keys`: the number of routing keys that events take
    in turn; 0: no keys. `events_max` counts the events of all writers.
    """

    events: Callable[[int], Iterator[bytes]]
    event_size_bytes: int
    batch_count: int
    keys: int = 0
    rate_per_s: float | None = None
    events_max: int = EVENTS_MAX
    writers: int = 1
    compression: Literal["zstd"] | None = None

    @property
    def settings(self) -> WriterSettings:
        """The writers share one buffer's size, as far as each keeps room for some batches."""
        batch = self.batch_count * (self.event_size_bytes + EVENT_COST_BYTES_MAX)
        size = max(BUFFER_SIZE_BYTES // self.writers, BATCHES_IN_BUFFER_MIN * batch)
        return WriterSettings(buffer_size_bytes=size, compression=self.compression)


@dataclass(slots=True)
class Progress:
    """The counts of a load so far. `ended` is the time of the last acknowledgement."""

    event_size_bytes: int
    began: float = 0.0
    ended: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    batches_in_flight: int = 0
    latency: Histogram = field(default_factory=Histogram)
    moments: Moments = field(default_factory=Moments)

    @property
    def seconds(self) -> float:
        """From the begin to the last acknowledgement."""
        return max(0.0, self.ended - self.began)

    @property
    def in_flight(self) -> int:
        """The number of events that are written and not acknowledged."""
        return self.sent - self.acknowledged


class WriteLoad:
    """Performs a plan on a stream, until its events are used up or the measurement is over."""

    def __init__(
        self, client: Client, stream: str, plan: Plan, *, clock: Clock, ending: Ending
    ) -> None:
        self._client = client
        self._stream = stream
        self._plan = plan
        self._clock = clock
        self._ending = ending
        self.progress = Progress(plan.event_size_bytes)

    async def run(self) -> None:
        """Return when every event that was sent is durable. Raises the writers' errors."""
        writers = self._plan.writers
        self._ending.begin()
        self.progress.began = self.progress.ended = self._clock.monotonic()
        await for_each(range(writers), writers, self._run_one)

    async def _run_one(self, number: int) -> None:
        plan = self._plan
        share, rest = divmod(plan.events_max, plan.writers)
        share += number < rest
        rate = None if plan.rate_per_s is None else plan.rate_per_s / plan.writers
        pace = None if rate is None else Pace(rate, self._clock.monotonic())
        async with self._client.writer(self._stream, plan.settings) as writer:
            await self._write(writer, pace, share, plan.events(number))

    async def _write(
        self, writer: EventWriter, pace: Pace | None, share: int, events: Iterator[bytes]
    ) -> None:
        plan, progress, now = self._plan, self.progress, self._clock.monotonic
        keys = cycle([key_name(number) for number in range(plan.keys)])
        sent = 0
        while sent < share and not self._ending.is_over:
            due = share if pace is None else min(share, pace.due(now()))
            count = min(due - sent, plan.batch_count)
            has_room = pace is None or progress.batches_in_flight < BATCHES_IN_FLIGHT_MAX
            if count > 0 and has_room:
                batch = list(islice(events, count))
                await take(writer, batch, list(islice(keys, count)) if plan.keys else None)
                self._await_acknowledgement(writer, count, pace, sent)
                sent += count
            if pace is None:
                await writer.drain()
            else:
                await self._clock.sleep(min(LOOK_S, max(TICK_S, pace.at(sent) - now())))

    def _await_acknowledgement(
        self, writer: EventWriter, count: int, pace: Pace | None, first: int
    ) -> None:
        """Note the acknowledgement of the batch that was just written, when it comes."""
        began = self._clock.monotonic()
        oldest, newest = (
            (began, began) if pace is None else (pace.at(first), pace.at(first + count - 1))
        )
        acknowledgement = writer.acknowledgement()
        assert isinstance(acknowledgement, asyncio.Future)
        acknowledgement.add_done_callback(partial(self._acknowledged, count, oldest, newest))
        self.progress.sent += count
        self.progress.batches_in_flight += 1

    def _acknowledged(
        self, count: int, oldest: float, newest: float, done: "asyncio.Future[None]"
    ) -> None:
        progress = self.progress
        progress.batches_in_flight -= 1
        if done.cancelled() or done.exception() is not None:
            return  # the writer itself raises its failure
        progress.ended = now = self._clock.monotonic()
        progress.acknowledged += count
        progress.moments.add(now)
        progress.latency.record_run(now - oldest, now - newest, count)
