"""Deletes domain events that two snapshots have made superfluous.

Every ten minutes, the job examines the snapshots of each aggregate that the mirror knows. Once the
last snapshot is older than `trim_after_s`, the job deletes everything below the last but one. A
reader that lags less than that time finds every message; one that lags longer finds a snapshot. If
the last snapshot is damaged, the one before it is left with all messages that followed.

All controllers may do this concurrently, even with an outdated view: a purge names the sequence
below which it deletes, so a late one deletes no needed message. Aggregates that cannot be read are
left as they are, for the repair.

Owns: the sequence up to which this process has trimmed each aggregate, so that no purge repeats.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.periodic.job import Job
from anabranch.controller.projections.mirror import Known

PERIOD_S = 600.0
JITTER = 0.1
"""Spreads controllers that started together."""
CONCURRENT_MAX = 4
TRIM = "trim"

Aggregates = Callable[[], Iterable[Known]]
Purge = Callable[[str, int], Awaitable[None]]
"""Deletes a subject's messages below a sequence (`EventStore.purge`)."""

_log = structlog.get_logger(__name__)


def purgeable_below(loaded: Known, now_ms: int, trim_after_ms: int) -> int:
    """The sequence below which the aggregate's messages may be deleted; 0 for none."""
    if not loaded.snapshot_ms or now_ms - loaded.snapshot_ms < trim_after_ms:
        return 0
    return loaded.earlier_snapshot_sequence


class EventTrimmer:
    """The job that trims. `owns(subject)` tells whether this process trims the aggregate."""

    def __init__(
        self,
        aggregates: Aggregates,
        purge: Purge,
        owns: Callable[[str], bool],
        *,
        clock: Clock,
        trim_after_s: float,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._failed: set[str] = set()
        self._aggregates = aggregates
        self._purge = purge
        self._owns = owns
        self._clock = clock
        self._trim_after_ms = int(trim_after_s * 1000)
        self._trimmed: dict[str, int] = {}

    def job(self) -> Job:
        """The periodic job."""
        return Job(
            name="trimming of events",
            period_s=PERIOD_S,
            jitter=JITTER,
            round=self.trim,
            failing="domain events are not trimmed",
        )

    async def trim(self) -> None:
        """Delete superfluous events. Raises the store's errors; later rounds delete the rest."""
        now_ms = self._clock.now_ms()
        due: dict[str, int] = {}
        trimmed: dict[str, int] = {}
        for loaded in self._aggregates():
            below = purgeable_below(loaded, now_ms, self._trim_after_ms)
            before = self._trimmed.get(loaded.subject, 0)
            if before:
                trimmed[loaded.subject] = before
            is_new = below > before
            if is_new and self._owns(loaded.subject):
                due[loaded.subject] = below

        self._trimmed = trimmed  # forgets aggregates that the mirror has dropped

        async def trim_one(subject: str) -> None:
            self._failed.add(subject)
            await self._purge(subject, due[subject])
            self._failed.discard(subject)
            self._trimmed[subject] = due[subject]

        async def trim_apart(subject: str) -> None:
            await self._containment.attempt(TRIM, subject, partial(trim_one, subject))

        self._failed &= due.keys()
        last = sorted(due, key=self._failed.__contains__)  # failed ones come last
        await for_each(last, CONCURRENT_MAX, trim_apart)
        if due:
            _log.info("trimmed domain events", aggregates=len(due))
