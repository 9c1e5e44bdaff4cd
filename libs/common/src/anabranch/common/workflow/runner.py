"""The runner: while an aggregate has a next step, perform it and append its event.

Owns: which aggregates are being worked on, and how far they are. What must be done is never
stored here; it is computed from the aggregate's state at its head, so a crash is a reload and
a missed or repeated wake-up loses and doubles nothing. One aggregate is worked on by at most
one task; a failed step is tried again after a pause that grows and is drawn at random, one that
still waits for something within a second or when it is woken.

         woken                      at rest, or not ours any more
    ─────────────▶ queued ──▶ worked on ──────────────────────────▶ forgotten
                     ▲          │    │
                     │   failed │    │ still waiting
                     │          ▼    ▼
                     └────── pausing, resting (a wake-up ends only the latter)
                                │
                                └ the tenth defect ─▶ parked, until it is redriven

A step that raises what nobody expected fails as `Defect`; ten in a row park the aggregate, so that
one that cannot be worked on costs the others nothing (`containment`).

Only aggregates that `owns` says are worked on. `let_go` is called when its answer changes: what is
queued or rests is forgotten, a step that runs ends, and no further one begins.
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
"""In the place of a step, for reading what the next step is."""

S = TypeVar("S")
E = TypeVar("E")
K = TypeVar("K", bound=str)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workflow(Generic[S, E, K]):
    """What the runner must know of a kind of aggregate.

    `next_step(state)` names what must be done next, or is None; `steps` performs it and returns
    the event that it ends in. Steps are idempotent: a step may run again after its work was
    done but its event was not stored. Where the next step follows from other aggregates, too,
    `settle` waits until what is known of them is no older than the state.
    """

    repository: Repository[S, E]
    next_step: Callable[[S], K | None]
    steps: Mapping[K, Callable[[Loaded[S]], Awaitable[E]]]
    settle: Callable[[Loaded[S]], Awaitable[None]] | None = None


class StepFailed(Exception):
    """Carries which step raised `error`."""

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
    """Perform steps until nothing is left to do; returns the aggregate at rest.

    It begins with the aggregate as it is known without asking, which may be old: then a step is
    performed that was performed before, which does no harm, and its event is refused, or the step
    fails or waits. That is believed only once the state turns out to be the head. That nothing is
    to be done is believed of either: whoever learns of more wakes the runner again.

    `begin` hears of every step before it is performed; none is when `goes_on` says no, and the
    aggregate is returned as it is then. A lost race means that another runner appended: reload
    and go on. Raises StepFailed, and StillWaiting of the step begun last.
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
    """Works on the aggregates that it is woken for and that `owns` says are its own."""

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
        self._work_came = asyncio.Event()

    def wake(self, subject: str) -> None:
        """There may be something to do for `subject`. Cheap, repeatable, never refused.

        What waits is bounded by the number of aggregates, since each waits at most once.
        """
        if not self._owns(subject) or self._containment.is_parked(STEP, subject):
            return
        self._end_rest(subject)
        if subject in self._running:
            self._again.add(subject)
        elif subject not in self._queued:
            self._queued.add(subject)
            self._queue.append(subject)
            self._work_came.set()

    def let_go(self) -> None:
        """Forget what is not owned any more; what is being performed comes to its end."""
        for subject in [one for one in (*self._queue, *self._rests) if not self._owns(one)]:
            self._end_rest(subject)
            self._board.end(subject)
        self._queue = deque(subject for subject in self._queue if self._owns(subject))
        # Whoever owns it now finds out for itself.
        for subject in self._containment.forgive_all(STEP, self._is_lost):
            self._board.end(subject)
        self._queued = set(self._queue)

    def _is_lost(self, subject: str) -> bool:
        return self._board.knows(subject) and not self._owns(subject)

    @property
    def active_count(self) -> int:
        """Aggregates that are queued, worked on, pause after a failure or rest."""
        return len(self._queued | self._running | self._rests.keys())

    @property
    def failing_count(self) -> int:
        """Aggregates whose next step fails at the moment."""
        return len(self.failures())

    def progress(self) -> list[StepProgress]:
        """The steps under way, failing and waiting ones included, longest first."""
        return [found for found in self._board.all() if self._owns(found.subject)]

    def failures(self) -> list[StepProgress]:
        """The steps that fail at the moment, longest first."""
        return [found for found in self.progress() if found.error is not None]

    async def serve(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENT_MAX):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            while not self._queue:
                self._work_came.clear()
                await self._work_came.wait()
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
                    # Stays in `_running`: nothing may pick it up before the pause is over.
                    group.create_task(self._resume_after(subject, pause))
            except StillWaiting as waiting:
                self._rest(subject, waiting, group)
            else:
                self._release(subject, again=subject in self._again)

    async def _perform(self, subject: str) -> None:
        """Run to rest, or to where it stopped to be ours. Raises StepFailed, StillWaiting."""
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
                remedy=failed.error.remedy,
            )
        return PAUSES.delay_s(failure.attempts, self._rng.random())

    def _parks(self, subject: str, defect: Defect) -> bool:
        """Whether this defect was one too many; the board goes on showing it."""
        return self._owns(subject) and self._containment.note(STEP, subject, defect).parked

    async def _resume_after(self, subject: str, pause: float) -> None:
        await self._clock.sleep(pause)
        self._release(subject, again=True)

    def _rest(self, subject: str, waiting: StillWaiting, group: asyncio.TaskGroup) -> None:
        """Until a wake-up, or for a while; a wake-up that came meanwhile counts."""
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
