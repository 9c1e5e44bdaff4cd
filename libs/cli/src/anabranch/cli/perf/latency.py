"""The command `anabranch perf latency`: the time of one event at a time.

One writer appends an event and waits until it is durable before it appends the next; a reader at
the tail notes the arrival of each. Both share one event loop and one clock.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from anabranch.cli.figures import counted, size
from anabranch.cli.output import Output
from anabranch.cli.perf import amounts, shown
from anabranch.cli.perf.ending import EXIT_INTERRUPTED, Ending, ended_by_ctrl_c
from anabranch.cli.perf.live import live_view
from anabranch.cli.perf.load.appends import Turn, append_one_by_one
from anabranch.cli.perf.load.histogram import Histogram
from anabranch.cli.perf.load.pacing import Pace
from anabranch.cli.perf.load.payloads import all_numbered, index_of, pool_count, pool_of
from anabranch.cli.perf.streams import Wanted, measured_stream
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, EventReader
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import IdSource, SystemIds

SECONDS_DEFAULT = 10.0
ARRIVAL_TIMEOUT_S = 5.0
"""How long the reader may lag behind the last acknowledgement."""
EVENTS_MAX = 1 << 40
KEY = "perf"
_HERE = Connection()


@dataclass(slots=True)
class Trips:
    """The events so far: the time to the acknowledgement, and to the arrival at the reader.

    An event may arrive before its writer learns of its acknowledgement, so both sides look for the
    other's note. Numbers start at a random one, which tells the events of other writers apart.
    """

    first: int = 0
    began: float = 0.0
    ended: float = 0.0
    acknowledgement: Histogram = field(default_factory=Histogram)
    arrival: Histogram = field(default_factory=Histogram)
    written: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, float] = field(default_factory=dict)

    def note_written(self, index: int, begun: float, acknowledged: float) -> None:
        self.ended = acknowledged
        self.acknowledgement.record(acknowledged - begun)
        arrived = self.arrived.pop(index, None)
        if arrived is None:
            self.written[index] = begun
        else:
            self.arrival.record(arrived - begun)

    def note_arrived(self, index: int, at: float) -> None:
        if not self.first <= index < self.first + EVENTS_MAX:
            return
        begun = self.written.pop(index, None)
        if begun is None:
            self.arrived[index] = at
        else:
            self.arrival.record(at - begun)


@dataclass(frozen=True, slots=True)
class Asked:
    """The load to measure. `rate_per_s` None: each event follows the one before at once."""

    size_bytes: int
    events_max: int | None
    seconds: float | None
    rate_per_s: float | None


def latency(
    stream: str | None = None,
    /,
    *,
    events: int | None = None,
    seconds: float | None = None,
    size: str = "1KiB",
    rate: amounts.Rate = "max",
    segments: int = 1,
    connection: Connection = _HERE,
) -> int:
    """Measure the time of one awaited event at a time, and of its way to a reader.

    Without a stream, the command creates one, and deletes it at the end.

    Parameters
    ----------
    stream
        An existing stream, named scope/stream, which keeps the events.
    events
        End after this many events.
    seconds
        End after this time, 10 s by default.
    size
        The size of an event: bytes, or as 1KiB.
    rate
        Events per second; a latency then counts from when its event was due.
    segments
        The number of segments of the command's own stream.
    """
    for name, value in (("--events", events), ("--seconds", seconds), ("--segments", segments)):
        amounts.at_least_one(name, value)
    if events is None and seconds is None:
        seconds = SECONDS_DEFAULT
    asked = Asked(amounts.event_size(size), events, seconds, amounts.events_per_s(rate))
    wanted = Wanted(stream, "latency", segments)

    async def perform(client: Client, output: Output) -> int:
        clock = SystemClock()
        trips, ending = Trips(first_number(SystemIds())), Ending(clock, seconds)
        with ended_by_ctrl_c(ending):
            async with measured_stream(client, wanted, output) as name:
                rows = live_rows(trips, clock.monotonic, seconds)
                with live_view(f"appending to {name}: {described(asked)}", rows, output):
                    await measure(client, name, asked, trips, clock=clock, ending=ending)
        show(name, asked, trips, output)
        return EXIT_INTERRUPTED if ending.interrupted else 0

    return run_with_client(connection, perform)


async def measure(
    client: Client, stream: str, asked: Asked, trips: Trips, *, clock: Clock, ending: Ending
) -> None:
    """Append and read until the measurement is over. Raises the client's errors."""
    async with (
        client.reader(stream, "tail") as reader,
        client.writer(stream) as writer,
        asyncio.TaskGroup() as tasks,
    ):
        reading = tasks.create_task(_read(reader, trips, clock))
        trips.began = trips.ended = clock.monotonic()
        ending.begin()
        pool = pool_of(asked.size_bytes, pool_count(asked.size_bytes))
        number = trips.first

        def note(begun: float, acknowledged: float) -> bool:
            nonlocal number
            trips.note_written(number, begun, acknowledged)
            number += 1
            return not ending.is_over

        await append_one_by_one(
            lambda event: writer.append(event, KEY),
            islice(all_numbered(pool, trips.first), asked.events_max),
            note,
            now=clock.monotonic,
            turn=_turn(asked, clock, ending),
        )
        await _until_all_arrived(trips, clock)
        reading.cancel()


def first_number(ids: IdSource) -> int:
    """A random number with room for all events behind it."""
    return int.from_bytes(ids.new_bytes()[:7], "little")


def _turn(asked: Asked, clock: Clock, ending: Ending) -> Turn | None:
    """An event counts from the moment when it was due, if the one before it took longer than that;
    else from its begin, so that the timer's error is no latency."""
    if asked.rate_per_s is None:
        return None
    pace = Pace(asked.rate_per_s, clock.monotonic())

    async def turn(number: int) -> float:
        left_s = pace.at(number) - clock.monotonic()
        if left_s <= 0:
            return pace.at(number)
        await ending.pause(left_s)
        return clock.monotonic()

    return turn


async def _read(reader: EventReader, trips: Trips, clock: Clock) -> None:
    while (batch := await reader.next_batch()) is not None:
        at = clock.monotonic()
        for payload in batch.payloads:
            trips.note_arrived(index_of(payload), at)


async def _until_all_arrived(trips: Trips, clock: Clock) -> None:
    """Return when the reader has every event, or no longer can be waited for."""
    deadline = clock.monotonic() + ARRIVAL_TIMEOUT_S
    while trips.written and clock.monotonic() < deadline:
        await clock.sleep(0.001)


def described(asked: Asked) -> str:
    """The load in one line."""
    rate = "at once" if asked.rate_per_s is None else f"at {shown.rate(asked.rate_per_s)} events/s"
    return f"events of {size(asked.size_bytes)}, one at a time, {rate}"


def live_rows(trips: Trips, now: Callable[[], float], seconds: float | None) -> shown.Live:
    """Returns the rows of the live view."""

    def rows() -> shown.Rows:
        passed = now() - trips.began if trips.began else 0.0
        mean = shown.per_second(trips.acknowledgement.count, passed)
        return [
            ("time", shown.elapsed(passed, seconds)),
            ("events/s", f"{shown.rate(mean)} on average"),
            ("acknowledged in", shown.latency(trips.acknowledgement)),
            ("arrived in", shown.latency(trips.arrival)),
        ]

    return rows


def record_of(stream: str, asked: Asked, trips: Trips) -> dict[str, object]:
    """The outcome as one JSON object."""
    count, seconds = trips.acknowledgement.count, max(0.0, trips.ended - trips.began)
    return {
        "stream": stream,
        "events": count,
        "event_size_bytes": asked.size_bytes,
        "seconds": round(seconds, 6),
        "events_per_s": shown.per_second(count, seconds),
        "rate_asked": asked.rate_per_s,
        "acknowledgement_ms": trips.acknowledgement.summary_ms(),
        "arrival_ms": trips.arrival.summary_ms(),
        "missing": len(trips.written),
    }


def show(stream: str, asked: Asked, trips: Trips, output: Output) -> None:
    """Print the outcome."""
    if output.for_programs:
        output.done("", record_of(stream, asked, trips))
        return
    seconds = max(0.0, trips.ended - trips.began)
    events = f"{shown.count(trips.acknowledgement.count)} events"
    output.done(f"perf latency {stream}: {events} in {seconds:.3g} s; {described(asked)}", {})
    rows = [
        shown.latency_row("acknowledgement", trips.acknowledgement.summary_ms()),
        shown.latency_row("write to read", trips.arrival.summary_ms()),
    ]
    output.rows(shown.LATENCY_COLUMNS, rows, ())
    if trips.written:
        late = counted(len(trips.written), "event")
        output.done(f"{late} did not arrive within {ARRIVAL_TIMEOUT_S:g} s", {})
