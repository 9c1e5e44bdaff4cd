"""Periodic jobs of a controller, and the one loop that runs them.

    round ──▶ pause: the period and some jitter, cut short by `woken` ──▶ round …
      │
      └─ fails ──▶ logged and reported once in a row; pause: `retry`, else the period ──▶ round …

A round does everything due in the buckets that this controller owns, and is safe to repeat: two
controllers may own a bucket for a moment. A failure of one item is contained inside the round
(`Containment.attempt`), so that the others continue. If the whole round fails, mostly because a
store does not answer, the loop logs the failure and tries again. A defect ends the loop, and
`Containment.keep` restarts it after a pause.

The metrics show how long each round takes and how late it begins, counted from one period after the
last one began. The delay grows if rounds take longer than their period, fail, or if the process is
overloaded.

A new job is a module beside this one with a function that returns a `Job`, and an entry in
`wiring/jobs.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng

Report = Callable[[str], None]
"""Takes the reason why the job fails, or "" if it does not."""
Measure = Callable[[str, float, float], None]
"""Takes a job's name, the delay with which its round began, and the duration of the round, both in
seconds; called when the round has ended."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A periodic job.

    `name`: for logs and metrics. `period_s`: the pause between two rounds. `jitter`: the fraction
    of the period by which a pause is randomly extended, so that controllers spread. `round()`: does
    the due work; raises AnabranchError or OSError if it cannot. `failing`: the meaning of such a
    failure, as a sentence for operators. `woken`: if set, the next round starts at once, and the
    loop clears the event. `retry`: the pauses after failures; None: the period. `part`: the part of
    readiness that reports failures, if any. `close()`: releases resources when the loop ends.
    """

    name: str
    period_s: float
    jitter: float
    round: Callable[[], Awaitable[None]]
    failing: str
    woken: asyncio.Event | None = None
    retry: Backoff | None = None
    part: str = ""
    close: Callable[[], Awaitable[None]] | None = None


async def repeat(job: Job, clock: Clock, rng: Rng, *, measure: Measure, report: Report) -> None:
    """Run one round after another until cancelled. Raises only errors that no round may raise."""
    due_s, failures = clock.monotonic(), 0
    try:
        while True:
            began_s = clock.monotonic()
            error = await _round(job)
            measure(job.name, max(0.0, began_s - due_s), clock.monotonic() - began_s)
            if error is None:
                _note_success(job, failures, report)
                failures = 0
            else:
                failures += 1
                _note_failure(job, error, failures, report)
            period_s = job.period_s * (1 + job.jitter * rng.random())
            due_s = began_s + period_s
            if failures and job.retry is not None:
                await clock.sleep(job.retry.delay_s(failures, rng.random()))
            elif failures or job.woken is None:
                await clock.sleep(period_s)
            else:
                await _woken(job.woken, period_s)
    finally:
        if job.close is not None:
            await job.close()


async def _round(job: Job) -> AnabranchError | OSError | None:
    try:
        await job.round()
    except (AnabranchError, OSError) as error:
        return error
    return None


async def _woken(event: asyncio.Event, longest_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            await event.wait()
    event.clear()


def _note_failure(job: Job, error: AnabranchError | OSError, failures: int, report: Report) -> None:
    """Log only the first failure in a row: the others follow from it or look the same."""
    if failures > 1:
        return
    report(f"{job.failing}: {error}")
    remedy = (
        error.remedy_for("command") if isinstance(error, AnabranchError) else "check the directory"
    )
    _log.warning(
        "a periodic job fails, and is tried again", job=job.name, failing=job.failing,
        error=str(error), remedy=remedy,
    )  # fmt: skip


def _note_success(job: Job, failures: int, report: Report) -> None:
    report("")
    if failures:
        _log.info("a periodic job succeeds again", job=job.name, failures=failures)
