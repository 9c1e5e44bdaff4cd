"""Every bug that is planted into watermarks is found."""

import pytest

from kit.planted_watermarks import WATERMARK_BUGS
from kit.watermark_scenario import random_watermarks

SEEDS_MAX = 20
SEED_MIN = {"new owner does not wait": 16, "loss not noticed": 3, "last cut forgotten": 2}
"""Where a bug was found when this was last looked up: it only saves time."""


@pytest.mark.parametrize("name", WATERMARK_BUGS)
def test_a_planted_bug_of_watermarks_is_found(name: str) -> None:
    first = SEED_MIN.get(name, 1)
    for seed in range(first, first + SEEDS_MAX):
        try:
            with WATERMARK_BUGS[name]():
                random_watermarks(seed)
        except AssertionError:
            return
    pytest.fail(f"{name} was not found")
