"""The command `anabranch perf read`: how fast a stream is read, or how soon new events arrive."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from cyclopts import Parameter

from anabranch.cli.figures import NONE, duration
from anabranch.cli.output import Output
from anabranch.cli.perf import amounts, shown
from anabranch.cli.perf.ending import EXIT_INTERRUPTED, Ending, ended_by_ctrl_c
from anabranch.cli.perf.live import live_view
from anabranch.cli.perf.load.histogram import Histogram
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, EventBatch
from anabranch.common.runtime.clock import Clock, SystemClock

SECONDS_DEFAULT = 10.0
WHY = {
    "end": "to the end of the stream",
    "done": "all events that were asked for",
    "time": "until the time was up",
    "interrupted": "until it was interrupted",
}
_HERE = Connection()


@dataclass(slots=True)
class Reading:
    """The counts of a reader so far, and why it ended: a key of `WHY`."""

    clock: Clock
    follow: bool
    began: float = 0.0
    ended: float = 0.0
    events: int = 0
    size_bytes: int = 0
    first_s: float | None = None
    """The wait for the first events."""
    latency: Histogram = field(default_factory=Histogram)
    why: str = "time"

    @property
    def seconds(self) -> float:
        """From the begin to the last event."""
        return max(0.0, self.ended - self.began)

    def take(self, batch: EventBatch) -> None:
        """Count the events of a block."""
        payloads, self.ended = batch.payloads, self.clock.monotonic()
        if self.first_s is None:
            self.first_s = self.ended - self.began
        self.events += len(payloads)
        self.size_bytes += sum(map(len, payloads))
        if self.follow and payloads:
            now_ms, stamps = self.clock.now_ms(), batch.timestamps_ms
            oldest, newest = (now_ms - stamps[0]) / 1000, (now_ms - stamps[-1]) / 1000
            self.latency.record_run(oldest, newest, len(payloads))


def read(
    stream: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    events: int | None = None,
    seconds: float = SECONDS_DEFAULT,
    connection: Connection = _HERE,
) -> int:
    """Measure how fast a stream is read from its head, or how soon its new events arrive.

    Parameters
    ----------
    follow
        Read new events only, and show the time from their timestamps to their arrival, to within
        a millisecond. The clocks of the writers and of this machine must agree.
    events
        End when this many events were read.
    seconds
        End after this time. Without --follow, the command ends at the end of the stream too.
    """
    amounts.at_least_one("--events", events)
    amounts.at_least_one("--seconds", seconds)

    async def perform(client: Client, output: Output) -> int:
        found, ending = Reading(SystemClock(), follow), Ending(SystemClock(), seconds)
        with (
            ended_by_ctrl_c(ending),
            live_view(f"reading {stream}", live_rows(found, seconds), output),
        ):
            await measure(client, stream, found, ending, events_max=events)
        show(stream, found, output)
        return EXIT_INTERRUPTED if found.why == "interrupted" else 0

    return run_with_client(connection, perform)


async def measure(
    client: Client, stream: str, found: Reading, ending: Ending, *, events_max: int | None
) -> None:
    """Read to the end of the stream, the time or the events. Raises the reader's errors."""
    start: Literal["head", "tail"] = "tail" if found.follow else "head"
    async with client.reader(stream, start, until_tail=not found.follow) as reader:
        found.began = found.ended = found.clock.monotonic()
        async with ending.cutting_off():
            while events_max is None or found.events < events_max:
                batch = await reader.next_batch()
                if batch is None:
                    found.why = "end"
                    return
                found.take(batch)
            found.why = "done"
    if ending.interrupted:
        found.why = "interrupted"


def live_rows(found: Reading, seconds: float) -> shown.Live:
    """Returns the rows of the live view."""
    recent = shown.Recent()

    def rows() -> shown.Rows:
        passed = found.clock.monotonic() - found.began if found.began else 0.0
        lately = recent.per_second(found.events, passed)
        mean = shown.per_second(found.events, passed)
        bytes_per_s = shown.megabytes(shown.per_second(found.size_bytes, passed))
        told = [
            ("time", shown.elapsed(passed, seconds)),
            ("events", shown.count(found.events)),
            ("events/s", f"{shown.rate(lately)} now, {shown.rate(mean)} on average"),
            ("bytes/s", f"{bytes_per_s}/s on average"),
        ]
        return [*told, ("arrived in", shown.latency(found.latency))] if found.follow else told

    return rows


def record_of(stream: str, found: Reading) -> dict[str, object]:
    """The outcome as one JSON object."""
    record: dict[str, object] = {
        "stream": stream,
        "ended": found.why,
        "events": found.events,
        "bytes": found.size_bytes,
        "seconds": round(found.seconds, 6),
        "events_per_s": shown.per_second(found.events, found.seconds),
        "bytes_per_s": shown.per_second(found.size_bytes, found.seconds),
        "first_events_ms": None if found.first_s is None else round(found.first_s * 1000, 3),
    }
    return {**record, "arrival_ms": found.latency.summary_ms()} if found.follow else record


def show(stream: str, found: Reading, output: Output) -> None:
    """Print the outcome."""
    if output.for_programs:
        output.done("", record_of(stream, found))
        return
    if found.follow and not found.events:
        output.done(f"no new events arrived in {stream}; this needs a writer beside it", {})
        return
    rate = shown.per_second(found.events, found.seconds)
    bytes_per_s = shown.per_second(found.size_bytes, found.seconds)
    output.done(f"perf read {stream}: {WHY[found.why]}", {})
    totals = (
        shown.count(found.events),
        shown.megabytes(found.size_bytes),
        f"{found.seconds:.3f}",
        shown.rate(rate),
        f"{shown.megabytes(bytes_per_s)}/s",
        NONE if found.first_s is None else duration(found.first_s * 1000),
    )
    output.rows((*shown.TOTAL_COLUMNS, "first events"), [totals], ())
    if found.follow:
        row = shown.latency_row("arrival", found.latency.summary_ms())
        output.rows(shown.LATENCY_COLUMNS, [row], ())
