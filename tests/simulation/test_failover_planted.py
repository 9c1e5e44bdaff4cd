"""Each planted bug of fail-overs is caught within a thousand seeds."""

from collections.abc import Iterator

import pytest

from kit.failover_scenario import random_failover
from kit.planted_failover import FAILOVER_BUGS

SEEDS_MAX = 1000
CAUGHT_BY = {
    "stale read after the lease": 13,
    "lease counted from the confirmation": 236,
    "given away without ending the session": 6,
    "end of the session ignored": 21,
    "former process not awaited": 55,
    "journal container failed over": 15,
}
"""The seed that is tried first. Any change of the timing may shift it, and costs only time."""


def candidates(bug: str) -> Iterator[int]:
    yield CAUGHT_BY[bug]
    yield from range(SEEDS_MAX)


def caught_by(seed: int) -> bool:
    try:
        random_failover(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("bug", list(FAILOVER_BUGS))
def test_a_planted_bug_is_caught(bug: str) -> None:
    with FAILOVER_BUGS[bug]():
        seed = next((seed for seed in candidates(bug) if caught_by(seed)), None)
    assert seed is not None, "no seed caught it"
    random_failover(seed)
