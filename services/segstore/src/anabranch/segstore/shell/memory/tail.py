"""Reads that wait at the tail of a segment until it grows, ends or their time is up."""

from collections.abc import Callable

from anabranch.common.errors import Overloaded

CallLater = Callable[[float, Callable[[], None]], Callable[[], None]]
"""(seconds, callback) → a function that cancels the call."""

WAITERS_MAX = 100_000


class TailWaiter:
    """One waiting read; `callback(timed_out)` is called once, unless it is cancelled."""

    __slots__ = ("callback", "cancel_timer", "number")

    def __init__(self, number: int, callback: Callable[[bool], None]) -> None:
        self.number = number
        self.callback = callback
        self.cancel_timer: Callable[[], None] | None = None


class TailWaiters:
    """The waiting reads of a container, by segment number."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: dict[int, dict[TailWaiter, None]] = {}
        self.count = 0

    def wait(
        self, number: int, seconds: float, callback: Callable[[bool], None]
    ) -> Callable[[], None]:
        """Call back when the segment changes or after `seconds`. Returns a cancel function.

        Raises Overloaded.
        """
        if self.count >= WAITERS_MAX:
            raise Overloaded("too many reads wait at the tail", limit=WAITERS_MAX)
        waiter = TailWaiter(number, callback)
        self._waiting.setdefault(number, {})[waiter] = None
        self.count += 1
        waiter.cancel_timer = self._call_later(seconds, lambda: self._time_up(waiter))
        return lambda: self._forget(waiter)

    def wake(self, number: int) -> None:
        """Wake the reads in the order of their arrival: the segment grew, was sealed or truncated,
        or is gone."""
        for waiter in tuple(self._waiting.get(number, ())):
            self._forget(waiter)
            waiter.callback(False)

    def watches(self, number: int) -> bool:
        """Whether a read waits at the segment's tail."""
        return number in self._waiting

    def wake_all(self) -> None:
        """Wake all reads, because the container ends."""
        for number in tuple(self._waiting):
            self.wake(number)

    def _time_up(self, waiter: TailWaiter) -> None:
        self._forget(waiter)
        waiter.callback(True)

    def _forget(self, waiter: TailWaiter) -> None:
        waiting = self._waiting.get(waiter.number)
        if waiting is None or waiter not in waiting:
            return
        del waiting[waiter]
        self.count -= 1
        if not waiting:
            del self._waiting[waiter.number]
        if waiter.cancel_timer is not None:
            waiter.cancel_timer()
