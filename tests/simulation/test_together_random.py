"""A few seeds of groups of appends; `make sim` runs as many as its time allows."""

import pytest

from kit.thorough import some_of
from kit.together_scenario import random_together

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize("seed", some_of(range(100), 25))
def test_random_groups_are_stored_whole_or_not_at_all(seed: int) -> None:
    random_together(seed)


def test_the_lives_store_groups_and_search_for_their_parts() -> None:
    counts = random_together(0)
    assert counts["groups stored"] > 10
    assert counts["states that were searched for parts of groups"] > 10
