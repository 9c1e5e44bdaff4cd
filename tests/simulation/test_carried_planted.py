"""Every bug that is planted into carried transactions is found by seeds of the simulation."""

import pytest

from anabranch.common.errors import AnabranchError
from kit.planted_carried import CARRIED_BUGS
from kit.transaction_callers import MIXED, Habits
from kit.transaction_scenario import random_transactions

SEEDS_MAX = 300
HABITS = {
    "seal forgets": Habits(carrying=0.6, sealing=0.7),
    "tail not awaited": Habits(carrying=0.4, cutting=0.5),
}
"""Under which a bug is found soon that is found late by the usual ones."""
SEED_MIN = {
    "gates not moved": 130,
    "dropped and forgotten": 40,
    "decided behind the gate": 23,
    "forgotten in time": 23,
    "epochs mixed": 10,
    "tail not awaited": 10,
    "seal forgets": 735,
    "chunks not folded": 20,
}
"""Where a bug that few seeds find was found when this was last looked up: it only saves time."""


@pytest.mark.parametrize("name", CARRIED_BUGS)
def test_a_planted_bug_of_carried_transactions_is_found(name: str) -> None:
    habits, first = HABITS.get(name, MIXED), SEED_MIN.get(name, 0)
    for seed in range(first, first + SEEDS_MAX):
        try:
            with CARRIED_BUGS[name]():
                random_transactions(seed, habits)
        except (AssertionError, AnabranchError):
            random_transactions(seed, habits)  # it is the bug that was found
            return
    pytest.fail(f"{name} was not found")
