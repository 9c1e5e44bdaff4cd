"""The command `anabranch perf write`: how fast a stream takes events, and how soon for good."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.figures import counted, size
from anabranch.cli.output import Output
from anabranch.cli.perf import amounts, shown
from anabranch.cli.perf.ending import EXIT_INTERRUPTED, Ending, ended_by_ctrl_c
from anabranch.cli.perf.live import live_view
from anabranch.cli.perf.options import LoadOptions
from anabranch.cli.perf.streams import Wanted, measured_stream
from anabranch.cli.perf.writing import Plan, Progress, WriteLoad
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client
from anabranch.common.runtime.clock import Clock, SystemClock

_HERE = Connection()
_USUAL = LoadOptions()


@dataclass(frozen=True, slots=True)
class Outcome:
    """`why`: done (all events), time, or interrupted."""

    stream: str
    progress: Progress
    why: str


def write(
    stream: str | None = None,
    /,
    *,
    load: LoadOptions = _USUAL,
    segments: int = 1,
    keep: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> int:
    """Measure how fast a stream takes events, and how soon they are acknowledged.

    Without a stream, the command creates one, and deletes it at the end.

    Parameters
    ----------
    stream
        An existing stream, named scope/stream, which keeps the events.
    segments
        The number of segments of the command's own stream.
    keep
        Keep the command's own stream, for `anabranch perf read`.
    """
    amounts.at_least_one("--segments", segments)
    plan, wanted = load.plan(), Wanted(stream, "write", segments, keep=keep)

    async def perform(client: Client, output: Output) -> int:
        clock, seconds = SystemClock(), load.seconds_max
        outcome = await written(client, wanted, plan, seconds, clock=clock, output=output)
        show(outcome, plan, output)
        return EXIT_INTERRUPTED if outcome.why == "interrupted" else 0

    return run_with_client(connection, perform)


async def written(
    client: Client,
    wanted: Wanted,
    plan: Plan,
    seconds: float | None,
    *,
    clock: Clock,
    output: Output,
) -> Outcome:
    """Perform the load. Raises the client's errors."""
    ending = Ending(clock, seconds)
    with ended_by_ctrl_c(ending):
        async with measured_stream(client, wanted, output) as name:
            load = WriteLoad(client, name, plan, clock=clock, ending=ending)
            rows = live_rows(load.progress, clock.monotonic, seconds)
            with live_view(f"writing to {name}: {described(plan)}", rows, output):
                await load.run()
    if ending.interrupted:
        return Outcome(name, load.progress, "interrupted")
    is_done = load.progress.acknowledged >= plan.events_max
    return Outcome(name, load.progress, "done" if is_done else "time")


def described(plan: Plan) -> str:
    """The load in one line."""
    rate = "as fast as possible"
    if plan.rate_per_s is not None:
        rate = f"{shown.rate(plan.rate_per_s)} events/s"
    keys = f", {counted(plan.keys, 'key')}" if plan.keys else ""
    writers = counted(plan.writers, "writer")
    return f"events of {size(plan.event_size_bytes)}{keys}, {writers}, {rate}"


def live_rows(progress: Progress, now: Callable[[], float], seconds: float | None) -> shown.Live:
    """Returns the rows of the live view."""
    recent, each = shown.Recent(), progress.event_size_bytes

    def rows() -> shown.Rows:
        passed, done, waiting = now() - progress.began, progress.acknowledged, progress.in_flight
        lately, mean = recent.per_second(done, passed), shown.per_second(done, passed)
        return [
            ("time", shown.elapsed(passed, seconds)),
            ("events/s", f"{shown.rate(lately)} now, {shown.rate(mean)} on average"),
            ("bytes/s", f"{_mb(lately * each)} now, {_mb(mean * each)} on average"),
            ("in flight", f"{shown.count(waiting)} events, {size(waiting * each)}"),
            ("acknowledged in", shown.latency(progress.latency)),
        ]

    return rows


def _mb(bytes_per_s: float) -> str:
    return f"{shown.megabytes(bytes_per_s)}/s"


def record_of(outcome: Outcome, plan: Plan) -> dict[str, object]:
    """The outcome as one JSON object."""
    progress = outcome.progress
    rate = shown.per_second(progress.acknowledged, progress.seconds)
    return {
        "stream": outcome.stream,
        "ended": outcome.why,
        "events": progress.acknowledged,
        "event_size_bytes": plan.event_size_bytes,
        "bytes": progress.acknowledged * plan.event_size_bytes,
        "seconds": round(progress.seconds, 6),
        "events_per_s": rate,
        "bytes_per_s": rate * plan.event_size_bytes,
        "rate_asked": plan.rate_per_s,
        "writers": plan.writers,
        "keys": plan.keys,
        "acknowledgement_ms": progress.latency.summary_ms(),
    }


def show(outcome: Outcome, plan: Plan, output: Output) -> None:
    """Print the outcome."""
    if output.for_programs:
        output.done("", record_of(outcome, plan))
        return
    progress = outcome.progress
    rate = shown.per_second(progress.acknowledged, progress.seconds)
    asked = "" if plan.rate_per_s is None else f" of {shown.rate(plan.rate_per_s)} asked for"
    output.done(f"perf write {outcome.stream}: {described(plan)}", {})
    totals = (
        shown.count(progress.acknowledged),
        shown.megabytes(progress.acknowledged * plan.event_size_bytes),
        f"{progress.seconds:.3f}",
        f"{shown.rate(rate)}{asked}",
        _mb(rate * plan.event_size_bytes),
    )
    output.rows(shown.TOTAL_COLUMNS, [totals], ())
    row = shown.latency_row("acknowledgement", progress.latency.summary_ms())
    output.rows(shown.LATENCY_COLUMNS, [row], ())
