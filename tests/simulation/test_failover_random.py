"""Stores that take over from each other: no acknowledged loss, one history, no stale answer."""

import pytest

from kit.failover_scenario import random_failover
from kit.thorough import one_in

SEEDS = 250 // one_in(80)


def test_random_fail_overs_lose_nothing_and_answer_with_the_present() -> None:
    for seed in range(SEEDS):
        random_failover(seed)


@pytest.mark.parametrize("seed", [2])
def test_a_run_is_the_same_for_the_same_seed(seed: int) -> None:
    assert random_failover(seed) == random_failover(seed)
