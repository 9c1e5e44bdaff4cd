"""A call from a thread to a loop in another thread, and the wait for its result.

    thread   begin ──────────────── wait ───────────────────────────► value, or the error raised
                │                    ▲ errands: callbacks that the call needs, run by the thread
    loop        └── work ── task ────┘

A timeout or a signal (Ctrl-C) ends the wait early. The thread then cancels the work and waits for
its end, so that no work is pending when it calls again. If the work completes in spite of the
cancellation, its result is kept, so that nothing gets lost.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import ParamSpec

from anabranch.common.errors import AnabranchError, Closed, TimedOut
from anabranch.common.runtime.clock import Clock

CANCELLING_TIMEOUT_S = 5.0
"""How long a thread waits for the end of cancelled work."""

P = ParamSpec("P")
_CALL: ContextVar["Call"] = ContextVar("call")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of work: its value, or the error that it raised."""

    value: object = None
    error: BaseException | None = None

    def result(self) -> object:
        """The value. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class _Errand:
    """Work for the waiting thread, and the future that receives its result."""

    work: Callable[[], object]
    answered: "asyncio.Future[object]"


def is_begun_later(value: object) -> bool:
    """Whether it may be entered or awaited, as the caller likes: a `Beginning`."""
    return hasattr(type(value), "__aenter__") and hasattr(type(value), "__await__")


async def outcome_of(work: Awaitable[object]) -> Outcome:
    """The outcome of `work`; raises nothing, so that one failure does not end other tasks."""
    try:
        return Outcome(await work)
    except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
        trace = error.__traceback__
        return Outcome(error=error.with_traceback(trace and trace.tb_next))


class Call:
    """One piece of work for one waiting thread. `begin` and `cancel` belong to the loop."""

    def __init__(self, work: Callable[[], object], clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self._mailbox: SimpleQueue[Outcome | _Errand] = SimpleQueue()
        self._task: asyncio.Task[Outcome] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.outcome: Outcome | None = None
        """None while the thread has not seen the end."""

    # --- on the loop ----------------------------------------------------------------------

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Run the part of the work that does not wait, and start a task for the rest."""
        self._loop = asyncio.get_running_loop()
        _CALL.set(self)
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            trace = error.__traceback__
            self.settle(Outcome(error=error.with_traceback(trace and trace.tb_next)))
            return
        if not inspect.isawaitable(result) or is_begun_later(result):
            self.settle(Outcome(result))
            return
        self._task = tasks.create_task(outcome_of(result))
        self._task.add_done_callback(lambda task: self._ended(task, result))

    def _ended(self, task: "asyncio.Task[Outcome]", work: object) -> None:
        if task.cancelled():  # before its first step
            if inspect.iscoroutine(work):
                work.close()
            self.settle(Outcome(error=asyncio.CancelledError()))
        else:
            self.settle(task.result())

    def cancel(self) -> None:
        """Cancel the pending task; does nothing after its end."""
        if self._task is not None:
            self._task.cancel()

    def settle(self, outcome: Outcome) -> None:
        """Wake the waiting thread with the outcome; later ones are ignored."""
        self._mailbox.put(outcome)

    async def ask(self, work: Callable[[], object]) -> object:
        """Run `work` in the waiting thread, and wait for its result."""
        answered = asyncio.get_running_loop().create_future()
        self._mailbox.put(_Errand(work, answered))
        return await answered

    # --- on the thread --------------------------------------------------------------------

    def wait(
        self,
        timeout_s: float | None,
        *,
        submit: Callable[["Call"], None],
        revoke: Callable[["Call"], None],
    ) -> object:
        """The value of the work; `submit` hands it to the loop, and `revoke` cancels it there.

        Raises the error of the work, TimedOut, Closed if the loop ended meanwhile.
        """
        try:
            submit(self)
            is_in_time = self._watch(timeout_s)
            if not is_in_time:
                revoke(self)
                self._watch(CANCELLING_TIMEOUT_S)
        except BaseException:  # whatever a signal raises in this thread
            if self.outcome is None:
                revoke(self)
                self._watch(CANCELLING_TIMEOUT_S)
            raise
        outcome = self.outcome
        if outcome is None or isinstance(outcome.error, asyncio.CancelledError):
            raise self._ended_early(timeout_s, is_in_time=is_in_time)
        return outcome.result()

    def _ended_early(self, timeout_s: float | None, *, is_in_time: bool) -> AnabranchError:
        if is_in_time:
            return Closed("the client was closed while a call was under way")
        return TimedOut("a call did not end in time", timeout_s=timeout_s)

    def _watch(self, timeout_s: float | None) -> bool:
        """Run errands until the outcome arrives. Returns whether it came in time."""
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else deadline_s - self._clock.monotonic()
            try:
                item = self._mailbox.get(timeout=None if left_s is None else max(left_s, 0.0))
            except Empty:
                return False
            if isinstance(item, Outcome):
                self.outcome = item
                return True
            self._run(item)

    def _run(self, errand: _Errand) -> None:
        try:
            outcome = Outcome(errand.work())
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome = Outcome(error=error)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(_answer, errand.answered, outcome)


def asked_of_thread(work: Callable[P, object]) -> Callable[P, Awaitable[object]]:
    """`work` as an asynchronous function that runs it in the calling thread."""

    async def ask(*args: P.args, **kwargs: P.kwargs) -> object:
        return await _CALL.get().ask(lambda: work(*args, **kwargs))

    return ask


def _answer(answered: "asyncio.Future[object]", outcome: Outcome) -> None:
    if answered.done():
        return
    if outcome.error is not None:
        answered.set_exception(outcome.error)
    else:
        answered.set_result(outcome.value)
