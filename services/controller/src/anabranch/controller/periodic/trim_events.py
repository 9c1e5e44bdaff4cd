"""Deletes domain events that two snapshots have made superfluous.

Looks every ten minutes at what the mirror knows of each aggregate's snapshots. Once the last one
is older than `trim_after_s`, everything below the last but one goes: a reader that has lagged for
less than that time finds every message, one that has lagged longer finds a snapshot, and if the
last snapshot is damaged, there is another one with all that followed it.

All controllers may do this at once, and any of them may be wrong about what is newest: a purge
names the sequence below which it deletes, so a late one deletes nothing that is needed. What
cannot be read is left as it is, for the repair.

Owns: up to where each aggregate was trimmed by this process, so that nothing is asked for twice.
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
"""Controllers that begin together need not read and purge together for ever."""
CONCURRENT_MAX = 4
TRIM = "trim"

Aggregates = Callable[[], Iterable[Known]]
Purge = Callable[[str, int], Awaitable[None]]
"""See `EventStore.purge`."""

_log = structlog.get_logger(__name__)


def purgeable_below(loaded: Known, now_ms: int, trim_after_ms: int) -> int:
    """The sequence below which the aggregate's messages may go; 0: none of them."""
    if not loaded.snapshot_ms or now_ms - loaded.snapshot_ms < trim_after_ms:
        return 0
    return loaded.earlier_snapshot_sequence


class EventTrimmer:
    """See the module. `owns(subject)`: the aggregate is this process's to trim."""

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
        """Trims again and again."""
        return Job(
            name="trimming of events",
            period_s=PERIOD_S,
            jitter=JITTER,
            round=self.trim,
            failing="domain events are not trimmed",
        )

    async def trim(self) -> None:
        """Delete what may go now. Raises what the store raises; then some of it is left."""
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

        self._trimmed = trimmed  # what is gone from the mirror is forgotten here

        async def trim_one(subject: str) -> None:
            self._failed.add(subject)
            await self._purge(subject, due[subject])
            self._failed.discard(subject)
            self._trimmed[subject] = due[subject]

        async def trim_apart(subject: str) -> None:
            await self._containment.attempt(TRIM, subject, partial(trim_one, subject))

        self._failed &= due.keys()
        last = sorted(due, key=self._failed.__contains__)  # what failed keeps no other one
        await for_each(last, CONCURRENT_MAX, trim_apart)
        if due:
            _log.info("trimmed domain events", aggregates=len(due))
