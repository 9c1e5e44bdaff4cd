"""Processes under one virtual time, each on an event loop of its own: they pause, wake and die.

    Processes.run ──earliest──► an event of the world, such as a message that arrives
                        └─────► one turn of the loop of a process that is due

A paused process gets no turn while its clock goes on, as if it was stopped by SIGSTOP: when it
wakes, everything that arrived meanwhile is ready, and all its timers are due. A dead process never
gets a turn again. A process can have a clock that runs too fast or too slow. Runs are
deterministic: nothing happens but turns and events, in the order of their times.
"""

import asyncio
import heapq
from asyncio.events import _set_running_loop
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from kit.virtual_time import START_MS, NumberedTask, cancel_all

_RESOLUTION_S = 1e-6
LOOK_S = 0.05


class _NoSelector:
    """Stands where a selector stands, and learns when the loop wants its next turn."""

    def __init__(self, loop: "ProcessLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.wants_turn_in(timeout)
        return []


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process. It runs in turns that `Processes` gives it."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._process = process
        self._clock_resolution = _RESOLUTION_S
        self._selector = _NoSelector(self)
        self._task_count = 0
        self._ending_s: float | None = None
        self.due_s = -inf
        """When the next turn is due, by the world's time."""
        self.set_task_factory(self._new_task)

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> NumberedTask:
        self._task_count += 1
        return NumberedTask(work, loop=loop, number=self._task_count, **more)

    def time(self) -> float:
        """The process's monotonic clock."""
        if self._ending_s is not None:
            return self._ending_s
        return self._process.local_s()

    def wants_turn_in(self, timeout: float | None) -> None:
        """Note when the next turn is due; None: when something arrives."""
        if self._ending_s is not None:
            self._ending_s += timeout or 0.0
        elif timeout is None:
            self.due_s = inf
        else:
            self.due_s = self._process.world_s(self.time() + timeout)

    def turn(self) -> None:
        """Run what is ready or due."""
        _set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            _set_running_loop(None)

    def end(self) -> None:
        """Cancel what is left, in a time of its own, and close the loop."""
        self._ending_s = self.time()
        cancel_all(self)
        self.close()

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        """Refused: a thread would make the run depend on the machine."""
        raise RuntimeError("a process of a simulation has no threads")

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list, "there are no sources of events"

    def _write_to_self(self) -> None:
        """Nothing to wake: the caller is on the only thread."""


class ProcessClock:
    """`runtime.clock.Clock` of a process."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def now_ms(self) -> int:
        return START_MS + int(self._process.local_s() * 1000)

    def monotonic(self) -> float:
        return self._process.local_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Process:
    """One process. `rate` is the speed of its clock."""

    def __init__(self, processes: "Processes", name: str, rate: float) -> None:
        self._processes = processes
        self._born_s = processes.now_s
        self.name = name
        self.rate = rate
        self.paused = False
        self.dead = False
        self.loop = ProcessLoop(self)
        self.clock = ProcessClock(self)
        self.at_death: list[Callable[[], None]] = []
        self._turns_left: int | None = None
        self._pause_s = 0.0
        self.loop.set_exception_handler(self._on_exception)

    def local_s(self) -> float:
        """The time by the process's clock, which begins anywhere."""
        return 1000.0 + (self._processes.now_s - self._born_s) * self.rate

    def world_s(self, local_s: float) -> float:
        """The world's time at a time of the process's clock."""
        return self._born_s + (local_s - 1000.0) / self.rate

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Run `main` as the process's program; the process is dead when it returns."""
        self.loop.create_task(main).add_done_callback(self._ended)
        self.loop.due_s = self._processes.now_s

    def deliver(self, callback: Callable[[], None]) -> None:
        """Something arrives: the process handles it in its next turn."""
        if not self.dead:
            self.loop.call_soon(callback)
            self.loop.due_s = min(self.loop.due_s, self._processes.now_s)

    def pause(self) -> None:
        """Give it no turns until `wake`."""
        self.paused = True

    def pause_in(self, turns: int, seconds: float) -> None:
        """Pause for a while after so many turns, which may be amid what one turn began."""
        self._turns_left, self._pause_s = turns, seconds

    def note_turn(self) -> None:
        """A turn is over."""
        if self._turns_left is None:
            return
        self._turns_left -= 1
        if self._turns_left < 0:
            self._turns_left = None
            self.pause()
            self._processes.later(self._pause_s, self.wake)

    def wake(self) -> None:
        """Give it turns again."""
        self.paused = False

    def kill(self) -> None:
        """End it at once; its messages that are on the way still arrive."""
        if self.dead:
            return
        self.dead = True
        self._processes.forget(self)
        for callback in self.at_death:
            callback()

    def _ended(self, main: "asyncio.Task[None]") -> None:
        if self.dead:
            return
        if not main.cancelled() and (error := main.exception()) is not None:
            self._processes.broken.append(error)
        self.kill()

    def _on_exception(self, _: object, context: dict[str, Any]) -> None:
        if not self.dead:
            found = context.get("exception")
            error = found if isinstance(found, BaseException) else AssertionError(context)
            self._processes.broken.append(error)


class Processes:
    """All processes, and what happens outside of them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.broken: list[BaseException] = []
        """Errors that no process expected; the run ends at the first one."""
        self._all: list[Process] = []
        self._alive: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0

    def new(self, name: str, rate: float = 1.0) -> Process:
        """A process that has no program yet."""
        process = Process(self, name, rate)
        self._all.append(process)
        self._alive.append(process)
        return process

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call outside of all processes, after this time; calls for one time keep their order."""
        self._event_count += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._event_count, callback))

    def run(self, until: Callable[[], bool], seconds_max: float) -> bool:
        """Run until a condition holds, which is looked at several times a second; False if it is
        not met in time. Raises the first error that no process expected."""
        limit_s = self.now_s + seconds_max
        while not until():
            if self.now_s >= limit_s:
                return False
            self.run_for(LOOK_S)
        return True

    def run_for(self, seconds: float) -> None:
        """Run for a while. Raises the first error that no process expected."""
        until_s = self.now_s + seconds
        while self._step(until_s):
            if self.broken:
                raise _plain(self.broken[0])
        self.now_s = until_s

    def _step(self, limit_s: float) -> bool:
        """One event or one turn; False if none is left before the limit."""
        at_s = self._events[0][0] if self._events else inf
        chosen: Process | None = None
        for process in self._alive:
            if process.loop.due_s < at_s and not process.paused:
                at_s, chosen = process.loop.due_s, process
        if at_s > limit_s:
            return False
        self.now_s = max(self.now_s, at_s)
        if chosen is not None:
            chosen.loop.turn()
            chosen.note_turn()
        else:
            heapq.heappop(self._events)[2]()
        return True

    def forget(self, process: Process) -> None:
        """Give the process no turns any more."""
        self._alive = [one for one in self._alive if one is not process]

    def end(self) -> None:
        """Kill everything, and close all loops."""
        for process in self._all:
            process.dead = True
        for process in self._all:
            process.loop.end()


def _plain(error: BaseException) -> BaseException:
    """The error itself, out of the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
