"""Ways of messages between processes and services: slow, lossy, late, or cut.

A way is one connection: messages arrive in their order, in both directions, except late ones. While
it is cut, a message waits or is lost, and what waits arrives when the way is mended. A request may
therefore be performed although its sender gave up, and long after.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anabranch.common.errors import AnabranchError
from kit.processes import Process, Processes
from kit.rng import Random

T = TypeVar("T")


@dataclass(slots=True)
class WayFaults:
    """Shares of messages, times in seconds. The defaults: quick and reliable."""

    slow_s_max: float = 0.002
    lost: float = 0.0
    late: float = 0.0
    late_s_max: float = 8.0


class _Direction:
    """One direction of a way."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.held: list[Callable[[], None]] = []


class Way:
    """The way of one process to a service, and back."""

    def __init__(
        self, processes: Processes, process: Process, rng: Random, counts: Counter[str]
    ) -> None:
        self.process = process
        self.watched = False
        """Whether it brings the changes of buckets that the process watches."""
        self.faults = WayFaults()
        self._processes = processes
        self._rng = rng
        self._counts = counts
        self._cut = False
        self._there = _Direction()
        self._back = _Direction()
        self._at_mending: list[Callable[[], None]] = []
        self.at_next_arrival: Callable[[], None] = _nothing
        """Called once, when the next message arrives in the process."""

    @property
    def cut(self) -> bool:
        """Whether nothing passes."""
        return self._cut

    def break_off(self) -> None:
        """Let nothing pass until `mend`."""
        self._cut = True

    def mend(self) -> None:
        """Deliver what waits, and let everything pass again."""
        if not self._cut:
            return
        self._cut = False
        for direction in (self._there, self._back):
            held, direction.held = direction.held, []
            for arrive in held:
                arrive()
        for callback in self._at_mending:
            callback()

    def at_mending(self, callback: Callable[[], None]) -> None:
        """Call whenever the way is mended."""
        self._at_mending.append(callback)

    def send(self, arrive: Callable[[], None]) -> None:
        """Carry a message of the process; `arrive` is called at the service."""
        if not self.process.dead:
            self._submit(self._there, arrive)

    def send_back(self, arrive: Callable[[], None]) -> None:
        """Carry a message to the process; `arrive` is called in one of its turns."""
        self._submit(self._back, lambda: self._deliver(arrive))

    def tell(self, arrive: Callable[[], None]) -> None:
        """Carry a message to the process that is repeated until it arrives, as those of a watch."""
        self._carry(self._back, lambda: self._deliver(arrive), sure=True)

    def _deliver(self, arrive: Callable[[], None]) -> None:
        told, self.at_next_arrival = self.at_next_arrival, _nothing
        told()
        self.process.deliver(arrive)

    async def ask(self, work: Callable[[], T]) -> T:
        """Let the service do the work, which raises what the service answers. There is no deadline:
        the answer may never come."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def hear(result: T | None, error: AnabranchError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def arrive() -> None:
            result, failure = None, None
            try:
                result = work()
            except AnabranchError as error:
                failure = error
            self.send_back(lambda: hear(result, failure))

        self.send(arrive)
        return await future

    def _submit(self, direction: _Direction, arrive: Callable[[], None]) -> None:
        faults = self.faults
        if faults.lost and self._rng.random() < faults.lost:
            self._counts["messages lost"] += 1
        elif faults.late and self._rng.random() < faults.late:
            self._counts["messages late"] += 1
            self._processes.later(self._rng.random() * faults.late_s_max, arrive)
        else:
            self._carry(direction, arrive)

    def _carry(
        self, direction: _Direction, arrive: Callable[[], None], *, sure: bool = False
    ) -> None:
        now_s = self._processes.now_s
        at_s = max(direction.last_s, now_s + self._rng.random() * self.faults.slow_s_max)
        direction.last_s = at_s
        self._processes.later(at_s - now_s, lambda: self._arrive(direction, arrive, sure))

    def _arrive(self, direction: _Direction, arrive: Callable[[], None], sure: bool) -> None:
        if not self._cut:
            arrive()
        elif sure or self._rng.random() < 0.5:
            direction.held.append(arrive)


def _nothing() -> None:
    return
