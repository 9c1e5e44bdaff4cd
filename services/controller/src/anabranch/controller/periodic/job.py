"""Periodic jobs: what a controller does again and again, and the one loop that does it.

    round ──▶ pause: the period and some jitter, cut short by `woken` ──▶ round …
      │
      └─ fails ──▶ logged and reported once in a row; pause: `retry`, else the period ──▶ round …

A round does what is due for everything that this controller owns, and is safe to repeat: two
controllers may own a bucket for a moment. What one thing of many fails of is contained inside the
round (`Containment.attempt`), so that it keeps no other one; a failure of the whole round, mostly a
store that does not answer, ends here. A defect ends the loop, and `Containment.keep` begins it
again after a pause.

How late rounds begin is measured: from when the period was over since the last one began. It grows
when rounds take longer than their period, fail, or the process has too much to do.

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
"""Takes why the job fails at the moment; empty if it does not."""
Measure = Callable[[str, float], None]
"""Takes a job's name and how late, in seconds, its round began."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something that is done again and again.

    `name`: in logs and metrics. `period_s`: between two rounds; `jitter`: by which part of it a
    pause may be longer, at random, so that controllers do not come together. `round()`: does what
    is due; raises AnabranchError or OSError if it cannot. `failing`: what that means, as a sentence
    for operators. `woken`: when set, the next round comes at once; it is cleared then. `retry`: the
    pauses after failures, where not the period. `part`: the part of readiness that tells of
    failures, if any. `close()`: lets go, when the loop ends, of what rounds keep.
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
    """Do one round after another until cancelled. Raises what no round is to raise."""
    due_s, failures = clock.monotonic(), 0
    try:
        while True:
            began_s = clock.monotonic()
            measure(job.name, max(0.0, began_s - due_s))
            error = await _round(job)
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
    """Only the first of a row is told: the others follow from it or look the same."""
    if failures > 1:
        return
    report(f"{job.failing}: {error}")
    remedy = error.remedy if isinstance(error, AnabranchError) else "check the directory"
    _log.warning(
        "a periodic job fails, and is tried again", job=job.name, failing=job.failing,
        error=str(error), remedy=remedy,
    )  # fmt: skip


def _note_success(job: Job, failures: int, report: Report) -> None:
    report("")
    if failures:
        _log.info("a periodic job succeeds again", job=job.name, failures=failures)
