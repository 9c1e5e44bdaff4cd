"""Every bug that is planted into retention is found."""

import pytest

from kit.planted_retention import RETENTION_BUGS
from kit.retention_scenario import random_retention

SEEDS_MAX = 20
SEED_MIN = {
    "maximum forgotten": 3,
    "next cut at the maximum": 3,
    "minimum halved": 11,
    "recorded too early": 3,
    "own clock": 13,
}
"""Where a bug was found when this was last looked up: it only saves time."""


@pytest.mark.parametrize("name", RETENTION_BUGS)
def test_a_planted_bug_of_retention_is_found(name: str) -> None:
    first = SEED_MIN.get(name, 1)
    for seed in range(first, first + SEEDS_MAX):
        try:
            with RETENTION_BUGS[name]():
                random_retention(seed)
        except AssertionError:
            return
    pytest.fail(f"{name} was not found")
