"""Stores whose wall clock jumps an hour back and forth, or stands still, keep every promise.

Nothing that decides about data, leases, pauses or deadlines reads the wall clock; it only dates
segments and operations for people.
"""

from collections.abc import Callable

import pytest

from kit.rng import seeded
from kit.store_scenario import random_store
from kit.virtual_time import START_MS, VirtualClock

HOUR_MS = 3_600_000
NowMs = Callable[[VirtualClock], int]


def jumping(seed: int) -> NowMs:
    """Each look is an hour early, right, or an hour late."""
    rng, right = seeded(seed), VirtualClock.now_ms
    return lambda clock: right(clock) + rng.choice((-HOUR_MS, 0, HOUR_MS))


def frozen(seed: int) -> NowMs:
    """Every look shows the same hour, before anything began."""
    return lambda _: START_MS - HOUR_MS * seed


@pytest.mark.parametrize("clock", [jumping, frozen])
@pytest.mark.parametrize("share", range(4))
def test_a_clock_that_jumps_or_stands_still_costs_no_acknowledged_event(
    clock: Callable[[int], NowMs], share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(share, 100, 4):
        monkeypatch.setattr(VirtualClock, "now_ms", clock(seed))
        random_store(seed)
        monkeypatch.undo()
