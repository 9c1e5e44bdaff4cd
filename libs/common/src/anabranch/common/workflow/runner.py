"""The runner: while an aggregate has a next step, perform it and append its event.

State owned: the aggregates that are worked on, and their progress. The next step is never stored
here. It is computed from the aggregate's state at its head, so a reload suffices after a crash, and
a missed or repeated wake-up loses or duplicates nothing. At most one task works on an aggregate. A
failed step is retried after a pause that grows and is drawn at random; a step that still waits for
a condition is retried within a second, or when it is woken.

         woken                      at rest, or not ours any more
    ─────────────▶ queued ──▶ worked on ──────────────────────────▶ forgotten
                     ▲          │    │
                     │   failed │    │ still waiting
                     │          ▼    ▼
                     └────── pausing, resting (a wake-up ends only the latter)
                                │
                                └ the tenth defect ─▶ parked, until it is redriven

A step that raises an unexpected exception fails as `Defect`. Ten defects in a row park the
aggregate, so that it costs the others nothing (`containment`).

The runner works only on aggregates for which `owns` returns true. Call `let_go` when the result of
`owns` changes: queued and resting aggregates are forgotten, a running step completes, and no
further one begins.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.common.errors import AnabranchError, Defect, WrongExpectedSequence
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.runtime.logger import get_logger
from anabranch.common.workflow.containment import STEP, Containment, naming_defects
from anabranch.common.workflow.progress import ProgressBoard, StepProgress
from anabranch.common.workflow.waiting import StillWaiting

CONCURRENT_MAX = 16
LOST_RACES_MAX = 8
PAUSES = Backoff(first_s=0.1, longest_s=30.0)
REST_S_MAX = 1.0
LOAD = "load"
"""Stands for a step while the next step is being read."""

S = TypeVar("S")
E = TypeVar("E")
K = TypeVar("K", bound=str)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workflow(Generic[S, E, K]):
    """One kind of aggregate, as the runner needs it.

    `next_step(state)` names the next step, or is None; `steps` performs it and returns the event
    that it ends in. Steps are idempotent: a step may run again after its work was done but its
    event was not stored. If the next step also depends on other aggregates, `settle` waits until
    the known states of these are no older than `state`.
    """

    repository: Repository[S, E]
    next_step: Callable[[S], K | None]
    steps: Mapping[K, Callable[[Loaded[S]], Awaitable[E]]]
    settle: Callable[[Loaded[S]], Awaitable[None]] | None = None


class StepFailed(Exception):
    """Names the step that raised `error`."""

    def __init__(self, step: str, error: AnabranchError) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


async def run_to_rest(
    workflow: Workflow[S, E, K],
    subject: str,
    *,
    begin: Callable[[str], None] = lambda _step: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Loaded[S]:
    """Perform steps until none is left; returns the aggregate at rest.

    It begins with the aggregate as known in memory, which may be out of date. A step may then be
    performed twice, which is harmless: its event is refused, or the step fails or waits. Such a
    failure or wait counts only if a reload shows that the state was the head. The absence of a next
    step counts in either case: the process that learns of a newer state wakes the runner again.

    `begin` is called with every step before the step is performed. When `goes_on` returns false, no
    step follows, and the aggregate is returned as it is then. A lost race means that another runner
    appended; the aggregate is reloaded and the work continues. Raises StepFailed, and StillWaiting
    of the step begun last.
    """
    lost_races = 0
    step: str = LOAD
    known = workflow.repository.known(subject)
    loaded = known or await _load(workflow, subject)
    is_head = known is None
    while True:
        try:
            with naming_defects("a workflow step", StillWaiting):
                found = await _next_step(workflow, loaded)
                if found is None or not goes_on():
                    return loaded
                step = found
                begin(step)
                event = await workflow.steps[found](loaded)
                loaded = await workflow.repository.append(loaded, [event])
                is_head = True
        except WrongExpectedSequence as error:
            lost_races += 1
            if lost_races > LOST_RACES_MAX:
                raise StepFailed(step, error) from error
            loaded, is_head = await _load(workflow, subject), True
        except (AnabranchError, StillWaiting) as error:
            at = loaded.sequence
            if not is_head:
                loaded, is_head = await _load(workflow, subject), True
            if loaded.sequence == at:
                if isinstance(error, StillWaiting):
                    raise
                raise StepFailed(step, error) from error


async def _load(workflow: Workflow[S, E, K], subject: str) -> Loaded[S]:
    try:
        with naming_defects("loading an aggregate"):
            return await workflow.repository.load(subject)
    except AnabranchError as error:
        raise StepFailed(LOAD, error) from error


async def _next_step(workflow: Workflow[S, E, K], loaded: Loaded[S]) -> K | None:
    if workflow.settle is not None:
        await workflow.settle(loaded)
    return workflow.next_step(loaded.state)


class Runner(Generic[S, E, K]):
    """Works on the aggregates that it is woken for and that it owns."""

    def __init__(
        self,
        workflow: Workflow[S, E, K],
        clock: Clock,
        rng: Rng,
        owns: Callable[[str], bool] = lambda _subject: True,
        *,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._workflow = workflow
        self._clock = clock
        self._rng = rng
        self._owns = owns
        self._queue: deque[str] = deque()
        self._queued: set[str] = set()
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._rests: dict[str, asyncio.Task[None]] = {}
        self._board = ProgressBoard(clock)
        self._waiting = asyncio.Semaphore(0)
        """Counts the queued aggregates, and those that were let go; each wakes one worker."""

    def wake(self, subject: str) -> None:
        """Check `subject` for a next step soon. Cheap, repeatable, never refused.

        The number of aggregates bounds the queue, because each waits at most once.
        """
        if not self._owns(subject) or self._containment.is_parked(STEP, subject):
            return
        self._end_rest(subject)
        if subject in self._running:
            self._again.add(subject)
        elif subject not in self._queued:
            self._queued.add(subject)
            self._queue.append(subject)
            self._waiting.release()

    def let_go(self) -> None:
        """Forget aggregates that are no longer owned; a running step completes."""
        for subject in [one for one in (*self._queue, *self._rests) if not self._owns(one)]:
            self._end_rest(subject)
            self._board.end(subject)
        self._queue = deque(subject for subject in self._queue if self._owns(subject))
        # Their new owners find the defects themselves.
        for subject in self._containment.forgive_all(STEP, self._is_lost):
            self._board.end(subject)
        self._queued = set(self._queue)

    def _is_lost(self, subject: str) -> bool:
        return self._board.knows(subject) and not self._owns(subject)

    @property
    def active_count(self) -> int:
        """Aggregates that are queued, worked on, pausing after a failure or resting."""
        return len(self._queued | self._running | self._rests.keys())

    @property
    def failing_count(self) -> int:
        """Aggregates whose next step currently fails."""
        return len(self.failures())

    def progress(self) -> list[StepProgress]:
        """The steps in progress, failing and waiting ones included, longest first."""
        return [found for found in self._board.all() if self._owns(found.subject)]

    def failures(self) -> list[StepProgress]:
        """The steps that currently fail, longest first."""
        return [found for found in self.progress() if found.error is not None]

    async def serve(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENT_MAX):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._waiting.acquire()
            if not self._queue:
                continue
            subject = self._queue.popleft()
            self._queued.discard(subject)
            self._running.add(subject)
            self._again.discard(subject)
            try:
                await self._perform(subject)
            except StepFailed as failed:
                pause = self._note_failure(subject, failed)
                if isinstance(failed.error, Defect) and self._parks(subject, failed.error):
                    self._release(subject, again=False)
                else:
                    # It stays in `_running`, so that no worker takes it before the pause is over.
                    group.create_task(self._resume_after(subject, pause))
            except StillWaiting as waiting:
                self._rest(subject, waiting, group)
            else:
                self._release(subject, again=subject in self._again)

    async def _perform(self, subject: str) -> None:
        """Run to rest, or until the aggregate is no longer owned. Raises StepFailed,
        StillWaiting."""
        await run_to_rest(
            self._workflow,
            subject,
            begin=lambda step: self._board.begin(subject, step),
            goes_on=lambda: self._owns(subject),
        )
        self._containment.forgive(STEP, subject)
        ended = self._board.end(subject)
        if ended is not None and ended.error is not None and self._owns(subject):
            _log.info("a failing workflow makes progress again", subject=subject)

    def _note_failure(self, subject: str, failed: StepFailed) -> float:
        if failed.step == LOAD:
            self._board.begin(subject, LOAD)
        failure = self._board.fail(subject, failed.error)
        if failure.attempts == 1:
            _log.warning(
                "a workflow step failed and will be retried",
                subject=subject,
                step=failed.step,
                error=str(failed.error),
                remedy=failed.error.remedy_for("command"),
            )
        return PAUSES.delay_s(failure.attempts, self._rng.random())

    def _parks(self, subject: str, defect: Defect) -> bool:
        """Note the defect; returns whether it parks the aggregate, which the board continues to
        show."""
        return self._owns(subject) and self._containment.note(STEP, subject, defect).parked

    async def _resume_after(self, subject: str, pause: float) -> None:
        await self._clock.sleep(pause)
        self._release(subject, again=True)

    def _rest(self, subject: str, waiting: StillWaiting, group: asyncio.TaskGroup) -> None:
        """Rest until a wake-up or for a while; a wake-up that came meanwhile counts."""
        self._board.wait(subject, waiting.reason)
        again = subject in self._again
        self._release(subject, again=again)
        if not again and self._owns(subject):
            pause = REST_S_MAX * (0.5 + self._rng.random() / 2)
            self._rests[subject] = group.create_task(self._wake_after(subject, pause))

    async def _wake_after(self, subject: str, pause: float) -> None:
        await self._clock.sleep(pause)
        self._rests.pop(subject, None)
        self.wake(subject)

    def _end_rest(self, subject: str) -> None:
        rest = self._rests.pop(subject, None)
        if rest is not None:
            rest.cancel()

    def _release(self, subject: str, *, again: bool) -> None:
        self._running.discard(subject)
        self._again.discard(subject)
        if not self._owns(subject):
            self._board.end(subject)
            self._containment.forgive(STEP, subject)
        elif again:
            self.wake(subject)
