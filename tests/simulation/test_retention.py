"""Hours under a retention policy: no byte goes too early, and no byte stays too long."""

import pytest

from kit.retention_scenario import random_retention


@pytest.mark.parametrize("seed", [3, 5, 6, 11, 28])
def test_a_random_life_keeps_exactly_as_much_as_its_policy_says(seed: int) -> None:
    random_retention(seed)
