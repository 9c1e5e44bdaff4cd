"""An event loop whose time is a number: it jumps to the next timer when nothing is ready.

Runs are deterministic: no sockets, no threads, no clock. When nothing is ready and no timer is
left, the program waits for something that can never happen; the loop then raises `Deadlock`.
"""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_RESOLUTION_S = 1e-6
"""Timers closer than this fire together; above the rounding error of a century in seconds."""
START_MS = 1_700_000_000_000
CANCELS_MAX = 10


class Deadlock(Exception):
    """Every task waits and no timer is set."""


class _Idle:
    """Stands where a selector stands: waiting means moving the time."""

    def __init__(self, loop: "VirtualTimeLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self._loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """An asyncio loop with virtual time. Files, sockets, signals and threads do not exist in it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = _RESOLUTION_S
        self._selector = _Idle(self)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the time forward."""
        self._now += max(0.0, seconds)

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        """Refused: a thread would make the run depend on the machine."""
        raise RuntimeError("a virtual loop has no threads")

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list, "a virtual loop has no sources of events"

    def _write_to_self(self) -> None:
        """Nothing to wake: whoever calls is on the loop's own thread."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks, as in a `TaskGroup`, are in their order."""

    def __init__(self, *given: Any, number: int, **more: Any) -> None:
        self._number = number
        super().__init__(*given, **more)

    def __hash__(self) -> int:
        return self._number


class OrderedLoop(VirtualTimeLoop):
    """A virtual loop in which also the end of many tasks at once is in the same order always."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self.set_task_factory(self._new_task)

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> NumberedTask:
        self._count += 1
        return NumberedTask(work, loop=loop, number=self._count, **more)


class VirtualClock:
    """A `runtime.clock.Clock` on a virtual loop (or on any loop's own time)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a fresh virtual loop. Raises Deadlock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel every task, and again if one goes on: a failure at that moment may hide the first."""
    for _ in range(CANCELS_MAX):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


def close_unbegun(work: Coroutine[Any, Any, object]) -> None:
    """Close work that never began, and the `work` that was given to it; else nothing happens."""
    given = inspect.getcoroutinelocals(work).get("work")
    work.close()
    if inspect.iscoroutine(given):
        close_unbegun(given)
