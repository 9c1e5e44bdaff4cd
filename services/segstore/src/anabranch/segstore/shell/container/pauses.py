"""The pauses of a store between retries, all drawn from one range."""

from collections.abc import Callable

from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.ids import Rng

BACK_OFF = Backoff(first_s=0.5, longest_s=30.0)

BackOff = Callable[[int], float]
"""Seconds to wait after so many failures in a row, counted from 1; drawn anew at each call."""


def drawn_from(rng: Rng) -> BackOff:
    """Pauses of `BACK_OFF`, drawn from `rng`."""
    return lambda failures: BACK_OFF.delay_s(failures, rng.random())
