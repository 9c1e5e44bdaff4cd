"""A process in virtual time: it can stand still at any await, and stop for ever.

Everything that runs in it is stepped through a gate. While the process stands still no step is
made, whatever it waits for has come; then all of it goes on at once, its application first, or what
is in its background, or in any order. A process that crashes never makes another step, so nothing
of it is cleaned up, and nothing more is said by it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar, cast

from kit.rng import Random

T = TypeVar("T")

CLOCK_SKEW_MAX = 0.06
"""Two clocks may differ by twice as much: a little less than the margin of a lease."""


class SkewedClock:
    """A `runtime.clock.Clock` that goes `rate` times as fast as the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float, ahead_s: float) -> None:
        self.rate = rate
        self._loop = loop
        self._ahead_s = ahead_s

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return self._loop.time() * self.rate + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.rate)


class ProcessTasks(asyncio.TaskGroup):
    """The tasks of a process's background."""

    def __init__(self, process: "SimProcess") -> None:
        super().__init__()
        self._process = process

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        work = cast(Coroutine[Any, Any, T], coro)
        gated = self._process.gated(work, is_application=False)
        task = super().create_task(gated, name=name, context=context)
        task.add_done_callback(lambda _: work.close())  # it may not have begun
        return task


class SimProcess:
    """See the module. `skew`: of its clock, from -1 to 1. `trouble`: when it did not run, or was
    not heard, as [begin, end)."""

    def __init__(self, rng: Random, loop: asyncio.AbstractEventLoop, skew: float) -> None:
        rate = 1 + skew * CLOCK_SKEW_MAX
        self.clock = SkewedClock(loop, rate, rng.random() * 1000)
        self.is_frozen = False
        self.is_dead = False
        self.is_buried = False
        self.away_until_s = 0.0
        self.trouble: list[tuple[float, float]] = []
        self._rng = rng
        self._loop = loop
        self._frozen_s = 0.0
        self._held: list[tuple[bool, asyncio.Future[None]]] = []

    async def gated(self, work: Coroutine[Any, Any, T], *, is_application: bool) -> T:
        """`work`, of which every step is made while the process runs."""
        return await _stepped(work, lambda: self._hold(is_application))

    def _hold(self, is_application: bool) -> "asyncio.Future[None] | None":
        if not self.is_frozen:
            return None
        held: asyncio.Future[None] = self._loop.create_future()
        self._held.append((is_application, held))
        return held

    def freeze(self) -> None:
        """Stand still."""
        if not self.is_frozen:
            self.is_frozen, self._frozen_s = True, self._loop.time()

    def thaw(self) -> None:
        """Go on."""
        if not self.is_frozen or (self.is_dead and not self.is_buried):
            return
        self.is_frozen = False
        self.trouble.append((self._frozen_s, self._loop.time()))
        held, self._held = self._held, []
        order = self._rng.choice((self._first, self._last, self._any))
        for _, future in sorted(held, key=order):
            if not future.done():
                future.set_result(None)

    def cut_off(self, until_s: float) -> None:
        """Let it run, and be heard by nobody until then."""
        self.away_until_s = until_s
        self.trouble.append((self._loop.time(), until_s + 1))

    def crash(self) -> None:
        """Stop for ever."""
        self.freeze()
        self.is_dead = True

    def bury(self) -> None:
        """The run is over: let what remains be cancelled. Nobody hears it."""
        self.is_dead = self.is_buried = True
        self.thaw()

    def troubled(self, from_s: float, to_s: float) -> bool:
        """Whether it did not run, or was not heard, at some time between."""
        if self.is_frozen and self._frozen_s <= to_s:
            return True
        return any(begin <= to_s and end >= from_s for begin, end in self.trouble)

    @staticmethod
    def _first(held: tuple[bool, object]) -> float:
        return 0.0 if held[0] else 1.0

    @staticmethod
    def _last(held: tuple[bool, object]) -> float:
        return 1.0 if held[0] else 0.0

    def _any(self, _held: tuple[bool, object]) -> float:
        return self._rng.random()


@coroutine
def _stepped(
    work: Coroutine[Any, Any, T], hold: Callable[[], "asyncio.Future[None] | None"]
) -> Generator[Any, Any, T]:
    error: BaseException | None = None
    while True:
        while (held := hold()) is not None:
            try:
                yield from held
            except asyncio.CancelledError as cancelled:
                error = cancelled
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as ended:
            return cast(T, ended.value)
        error = None
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001  whatever it is, it is for the work
            error = raised
