"""The runner: while an aggregate has a next step, perform it and append its event.

Owns: which aggregates are being worked on, and what failed when. What must be done is never
stored here; it is computed from the aggregate's state at its head, so a crash is a reload and
a missed or repeated wake-up loses and doubles nothing. One aggregate is worked on by at most
one task; a failed step is tried again after a pause that grows and is drawn at random.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from anabranch.common.errors import AnabranchError, WrongExpectedSequence
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.workflow.waiting import StillWaiting

CONCURRENT_MAX = 16
LOST_RACES_MAX = 8
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 30.0
REST_S_MAX = 1.0

S = TypeVar("S")
E = TypeVar("E")
K = TypeVar("K", bound=str)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workflow(Generic[S, E, K]):
    """What the runner must know of a kind of aggregate.

    `next_step(state)` names what must be done next, or is None; `steps` performs it and returns
    the event that it ends in. Steps are idempotent: a step may run again after its work was
    done but its event was not stored.
    """

    repository: Repository[S, E]
    next_step: Callable[[S], K | None]
    steps: Mapping[K, Callable[[Loaded[S]], Awaitable[E]]]


@dataclass(frozen=True, slots=True)
class StepFailure:
    """A step that does not succeed at the moment. Times are of `Clock.now_ms`."""

    subject: str
    step: str
    since_ms: int
    attempts: int
    error: AnabranchError


class StepFailed(Exception):
    """Carries which step raised `error`."""

    def __init__(self, step: str, error: AnabranchError) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


async def run_to_rest(workflow: Workflow[S, E, K], subject: str) -> Loaded[S]:
    """Perform steps until nothing is left to do; returns the aggregate at rest.

    A lost race means that another runner appended: reload and go on. Raises StepFailed, and
    StillWaiting of the step begun last.
    """
    lost_races = 0
    step: str = "load"
    try:
        while True:
            step = "load"
            loaded = await workflow.repository.load(subject)
            found = workflow.next_step(loaded.state)
            if found is None:
                return loaded
            step = found
            event = await workflow.steps[found](loaded)
            try:
                await workflow.repository.append(loaded, [event])
            except WrongExpectedSequence:
                lost_races += 1
                if lost_races > LOST_RACES_MAX:
                    raise
    except AnabranchError as error:
        raise StepFailed(step, error) from error


def pause_s(attempts: int, draw: float) -> float:
    """How long to wait after the `attempts`-th failure in a row; `draw` in [0, 1)."""
    ceiling = min(PAUSE_S_MAX, PAUSE_S_MIN * 2.0 ** min(attempts - 1, 16))
    return float(ceiling * (0.5 + draw / 2))


class Runner(Generic[S, E, K]):
    """Works on the aggregates that it is woken for."""

    def __init__(self, workflow: Workflow[S, E, K], clock: Clock, rng: Rng) -> None:
        self._workflow = workflow
        self._clock = clock
        self._rng = rng
        self._waiting: deque[str] = deque()
        self._known: set[str] = set()
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, StepFailure] = {}
        self._work_came = asyncio.Event()

    def wake(self, subject: str) -> None:
        """There may be something to do for `subject`. Cheap, repeatable, never refused.

        What waits is bounded by the number of aggregates, since each waits at most once.
        """
        if subject in self._running:
            self._again.add(subject)
        elif subject not in self._known:
            self._known.add(subject)
            self._waiting.append(subject)
            self._work_came.set()

    @property
    def active_count(self) -> int:
        """Aggregates that wait for work, are worked on, or pause after a failure."""
        return len(self._known | self._running)

    @property
    def failing_count(self) -> int:
        """Aggregates whose next step fails at the moment."""
        return len(self._failures)

    def failures(self) -> list[StepFailure]:
        """The steps that fail at the moment, longest first."""
        return sorted(self._failures.values(), key=lambda failure: failure.since_ms)

    async def serve(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENT_MAX):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            while not self._waiting:
                self._work_came.clear()
                await self._work_came.wait()
            subject = self._waiting.popleft()
            self._known.discard(subject)
            self._running.add(subject)
            pause = await self._attempt(subject)
            if pause:
                # Stays in `_running`: nothing else may pick it up before the pause is over.
                group.create_task(self._resume_after(subject, pause))
            else:
                self._release(subject, again=subject in self._again)

    async def _attempt(self, subject: str) -> float:
        """Run to rest; returns the pause in seconds before it must be tried again, or 0."""
        self._again.discard(subject)
        try:
            await run_to_rest(self._workflow, subject)
        except StepFailed as failed:
            return self._note_failure(subject, failed)
        except StillWaiting:
            self._failures.pop(subject, None)
            return REST_S_MAX
        if self._failures.pop(subject, None) is not None:
            _log.info("a workflow that failed goes on", subject=subject)
        return 0.0

    def _note_failure(self, subject: str, failed: StepFailed) -> float:
        before = self._failures.get(subject)
        same = before is not None and before.step == failed.step
        failure = StepFailure(
            subject=subject,
            step=failed.step,
            since_ms=before.since_ms if before is not None and same else self._clock.now_ms(),
            attempts=before.attempts + 1 if before is not None and same else 1,
            error=failed.error,
        )
        self._failures[subject] = failure
        if failure.attempts == 1:
            _log.warning(
                "a workflow step failed and will be repeated",
                subject=subject,
                step=failed.step,
                error=str(failed.error),
                remedy=failed.error.remedy,
            )
        return pause_s(failure.attempts, self._rng.random())

    async def _resume_after(self, subject: str, pause: float) -> None:
        await self._clock.sleep(pause)
        self._release(subject, again=True)

    def _release(self, subject: str, *, again: bool) -> None:
        self._running.discard(subject)
        self._again.discard(subject)
        if again:
            self.wake(subject)
