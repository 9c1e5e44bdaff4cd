"""Stores whose wall clock jumps an hour back and forth, or stands still, keep every promise.

Nothing that decides about data, leases, pauses or deadlines reads the wall clock; it only dates
segments and operations for people.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from anabranch.segstore.domain.container import large
from anabranch.segstore.domain.container.decide import DUPLICATE, decide_append
from kit.rng import seeded
from kit.store_scenario import random_store
from kit.thorough import some_of
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


def live_with(
    clock: Callable[[int], NowMs], seeds: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random store of each seed, with such a clock."""
    for seed in seeds:
        with monkeypatch.context() as patch:
            patch.setattr(VirtualClock, "now_ms", clock(seed))
            random_store(seed)


@pytest.mark.parametrize("clock", [jumping, frozen])
@pytest.mark.parametrize("share", range(4))
def test_a_clock_that_jumps_or_stands_still_costs_no_acknowledged_event(
    clock: Callable[[int], NowMs], share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_with(clock, some_of(range(share, 100, 4), 5), monkeypatch)


def test_a_decision_that_trusts_the_clock_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an append that is dated before the one before it is taken for a duplicate."""
    decide, latest_ms = decide_append, [0]

    def trusting(*request: Any, now_ms: int) -> Any:
        decision = decide(*request, now_ms=now_ms)
        late, latest_ms[0] = now_ms < latest_ms[0], now_ms
        return DUPLICATE if late else decision

    monkeypatch.setattr(large, "decide_append", trusting)
    with pytest.raises(AssertionError):
        live_with(jumping, range(100), monkeypatch)
