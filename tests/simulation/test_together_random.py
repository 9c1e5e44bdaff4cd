"""A few seeds of groups of appends; `make sim` runs as many as its time allows."""

import pytest

from kit.thorough import some_of
from kit.together_scenario import random_together


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("seed", some_of(range(100), 25))
def test_random_groups_are_stored_whole_or_not_at_all(seed: int) -> None:
    counts = random_together(seed)
    assert counts["groups stored"]
    assert counts["states that were searched for parts of groups"]
