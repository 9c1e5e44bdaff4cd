"""Estimates the offset of this machine's wall clock from the event store's. Pure arithmetic.

A process writes its beat at one moment of its own clock and reads it back at another, and learns
the moment in between at which the store's clock dated it. So each beat bounds the offset between
the clocks. The narrowest of the last bounds counts, unless the newest contradicts it: one of the
clocks was then set meanwhile, and earlier bounds are wrong.
"""

from collections import deque
from typing import NamedTuple

BOUNDS_MAX = 16
"""About twenty seconds of beats."""
WIDTH_MS_MAX = 2_000
"""A beat that took longer bounds the offset too loosely."""


class Bound(NamedTuple):
    """The store's clock minus this machine's lies within [low, high], in milliseconds."""

    low_ms: int
    high_ms: int

    @property
    def width_ms(self) -> int:
        """The uncertainty of the bound."""
        return self.high_ms - self.low_ms


def bound_of(sent_ms: int, stored_ms: int, read_ms: int) -> Bound | None:
    """The bound from one beat; None if it took too long, or if `stored_ms` is unknown (0).

    `stored_ms` is by the store's clock, the others are by this machine's.
    """
    bound = Bound(stored_ms - read_ms, stored_ms - sent_ms)
    is_usable = stored_ms > 0 and 0 <= bound.width_ms <= WIDTH_MS_MAX
    return bound if is_usable else None


def offset_of(bounds: list[Bound]) -> int | None:
    """The middle of the narrowest bound that the newest one, the last, does not contradict."""
    if not bounds:
        return None
    newest = bounds[-1]
    agreeing = [b for b in bounds if b.low_ms <= newest.high_ms and newest.low_ms <= b.high_ms]
    narrowest = min(agreeing, key=lambda bound: bound.width_ms)
    return (narrowest.low_ms + narrowest.high_ms) // 2


class StoreClock:
    """The bounds from the last beats."""

    def __init__(self) -> None:
        self._bounds: deque[Bound] = deque(maxlen=BOUNDS_MAX)

    def learn(self, sent_ms: int, stored_ms: int, read_ms: int) -> None:
        """Add a beat that was sent, stored and read at these moments; see `bound_of`."""
        bound = bound_of(sent_ms, stored_ms, read_ms)
        if bound is not None:
            self._bounds.append(bound)

    def here_ms(self, stored_ms: int) -> int | None:
        """A moment of the store's clock in this machine's time; None while the offset is
        unknown."""
        offset_ms = offset_of(list(self._bounds))
        return None if offset_ms is None or not stored_ms else stored_ms - offset_ms

    def store_ms(self, here_ms: int) -> int | None:
        """A moment of this machine's clock by the store's; None while that is not known."""
        offset_ms = offset_of(list(self._bounds))
        return None if offset_ms is None else here_ms + offset_ms
