"""Every bug that is planted into groups of appends is found by seeds of the simulation."""

import pytest

from anabranch.common.errors import AnabranchError
from kit.planted_together import TOGETHER_BUGS
from kit.together_scenario import random_together

SEEDS_MAX = 100


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("name", TOGETHER_BUGS)
def test_a_planted_bug_of_groups_is_found(name: str) -> None:
    for seed in range(SEEDS_MAX):
        try:
            with TOGETHER_BUGS[name]():
                random_together(seed)
        except (AssertionError, AnabranchError, BaseExceptionGroup):
            random_together(seed)  # it is the bug that was found
            return
    pytest.fail(f"{name} was not found")
