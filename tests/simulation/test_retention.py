"""Hours under a retention policy: no byte goes too early, and no byte stays too long."""

import pytest

from kit.retention_scenario import random_retention
from kit.thorough import some_of


@pytest.mark.parametrize("seed", some_of([3, 5, 6, 11, 28], 4))
def test_a_random_life_keeps_exactly_as_much_as_its_policy_says(seed: int) -> None:
    random_retention(seed)
