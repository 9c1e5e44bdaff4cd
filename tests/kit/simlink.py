"""What lies between a process and its servers: delays, losses, pauses and deaths.

Everything that a process sends goes through its `Link` and arrives, or not, whether the process
still lives by then or not. So a request of a process that has died, or that has stood still and
been replaced, may still be performed: by that a zombie is one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import nats.errors

from kit.rng import Random

SHORT_S = (0.0002, 0.003)
SLOW_S = (0.05, 2.0)
LATE_S = (6.0, 40.0)
"""Longer than any caller waits for one answer."""

REQUESTS_LOST = "requests lost on the way"
ANSWERS_LOST = "answers lost on the way"
REQUESTS_LATE = "requests that came after their sender had given up"
SLOW = "requests and answers that were slow"

T = TypeVar("T")


class NoAnswer(Exception):
    """Raised by a server that is away: whoever asked hears nothing."""


@dataclass(frozen=True, slots=True)
class Weather:
    """The chance of each mishap, per request and per answer. Late: only requests."""

    slow: float = 0.0
    lost: float = 0.0
    late: float = 0.0


CLEAR = Weather()


@dataclass(frozen=True, slots=True)
class Blow:
    """`strike` at request number `call`: `before` it leaves, or `after` it was performed."""

    call: int
    when: Literal["before", "after"]
    strike: Callable[[], None]


class Link:
    """One process's way to its servers."""

    def __init__(self, rng: Random, counts: Counter[str]) -> None:
        self.weather = CLEAR
        self.calls = 0
        """Requests so far."""
        self.changing: list[int] = []
        """The numbers of those that may change something."""
        self.blow: Blow | None = None
        self.is_paused = False
        self.on_resume: Callable[[], None] | None = None
        self._is_cut = False
        self._held: list[Callable[[], None]] = []
        self._rng = rng
        self._counts = counts

    async def call(self, arrive: Callable[[], T], timeout_s: float, *, changes: bool) -> T:
        """What `arrive` returns or raises at the server. Raises nats.errors.TimeoutError."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self.calls += 1
        if changes:
            self.changing.append(self.calls)
        blow = self.blow if self.blow is not None and self.blow.call == self.calls else None

        def perform() -> None:
            try:
                result = arrive()
            except NoAnswer:
                pass
            except nats.errors.Error as error:
                failure = error
                self._answer(lambda: None if answer.done() else answer.set_exception(failure))
            else:
                self._answer(lambda: None if answer.done() else answer.set_result(result))
            if blow is not None and blow.when == "after":
                blow.strike()

        if blow is not None and blow.when == "before":
            blow.strike()
        self.post(perform)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise nats.errors.TimeoutError from None

    def post(self, arrive: Callable[[], None]) -> None:
        """Send something that nobody answers."""
        if self._is_cut:
            return
        if self.is_paused:
            self._held.append(lambda: self.post(arrive))
            return
        if self._rng.random() < self.weather.lost:
            self._counts[REQUESTS_LOST] += 1
            return
        delay = self._delay()
        if self._rng.random() < self.weather.late:
            self._counts[REQUESTS_LATE] += 1
            delay = self._rng.uniform(*LATE_S)
        asyncio.get_running_loop().call_later(delay, arrive)

    def pause(self) -> None:
        """Stand still: nothing is sent, and nothing received, until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Everything that was held goes its way now."""
        self.is_paused = False
        held, self._held = self._held, []
        for action in held:
            action()
        if self.on_resume is not None:
            self.on_resume()

    def cut(self) -> None:
        """The process has died: what it has sent goes on, and nothing else leaves."""
        self._is_cut = True
        self._held.clear()

    def _answer(self, settle: Callable[[], None]) -> None:
        if self._rng.random() < self.weather.lost:
            self._counts[ANSWERS_LOST] += 1
            return
        asyncio.get_running_loop().call_later(self._delay(), self._receive, settle)

    def _receive(self, settle: Callable[[], None]) -> None:
        if self.is_paused:
            self._held.append(settle)
        else:
            settle()

    def _delay(self) -> float:
        if self._rng.random() < self.weather.slow:
            self._counts[SLOW] += 1
            return self._rng.uniform(*SLOW_S)
        return self._rng.uniform(*SHORT_S)
