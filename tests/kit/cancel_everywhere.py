"""Cancels what a test calls at each of its suspensions in turn: once per run of a scenario.

A scenario makes its calls through `Cancelling.run` and then checks that nothing was lost. The
suspensions of all these calls are counted together, so that `everywhere` reaches each await of
each call, down to those inside of what is called, as cancellations from outside do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SUSPENSIONS_MAX = 2000
"""A scenario with more than these does not end by itself."""


class Cancelling:
    """Cancels the suspension with number `at`, from 1, of all that runs through it."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._seen = 0

    @property
    def done(self) -> bool:
        """Whether it has cancelled something."""
        return self._seen >= self._at

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run `work` to its end in a task of its own → what it returns; None: it was cancelled.

        Raises what `work` raises, and AssertionError if it went on although it was cancelled.
        """
        was_done = self.done
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._drive(work))
        if task.cancelled():
            return None
        assert self.done == was_done, f"the cancellation of suspension {self._at} was swallowed"
        result, error = task.result()
        if error is not None:
            raise error
        return result

    async def _drive(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
        try:
            return await _Counted(work, self._suspended), None
        except Exception as error:  # noqa: BLE001  # raised outside of the group, which would wrap it
            return None, error

    def _suspended(self) -> None:
        self._seen += 1
        if self._seen == self._at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # reaches the future that is waited for from now on


class _Counted(Generic[T]):
    """Awaits `work`; calls `suspended` each time that it suspends."""

    def __init__(self, work: Coroutine[Any, Any, T], suspended: Callable[[], None]) -> None:
        self._work = work
        self._suspended = suspended

    def __await__(self) -> Generator[Any, Any, T]:
        work, error = self._work, None
        while True:
            try:
                waited_for = work.send(None) if error is None else work.throw(error)
            except StopIteration as ended:
                result: T = ended.value
                return result
            self._suspended()
            error = None
            try:
                yield waited_for
            except BaseException as thrown:  # noqa: BLE001  # into what suspended, as without us in between
                error = thrown


async def everywhere(scenario: Callable[[Cancelling], Awaitable[None]]) -> int:
    """Run `scenario` once for each suspension, which is cancelled → how many there were.

    The last run is not disturbed at all. What fails says at which suspension.
    """
    for at in range(1, SUSPENSIONS_MAX):
        cancelling = Cancelling(at)
        try:
            await scenario(cancelling)
        except Exception as error:
            error.add_note(f"cancelled at suspension {at}")
            raise
        if not cancelling.done:
            return at - 1
    raise AssertionError(f"the scenario suspends more than {SUSPENSIONS_MAX} times")
