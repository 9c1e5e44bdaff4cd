"""A few seeds of random reader groups; `make sim` runs as many as its time allows."""

import pytest

from kit.group_scenario import BOUNDED, CUT_OFFS, LEAVING, WAKING, Focus, random_groups
from kit.thorough import some_of


@pytest.mark.parametrize("seed", some_of(range(50), 3))
def test_a_random_reader_group_keeps_its_promises(seed: int) -> None:
    random_groups(seed)


@pytest.mark.parametrize("focus", [BOUNDED, CUT_OFFS, LEAVING, WAKING])
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_group_in_one_kind_of_trouble_keeps_its_promises(seed: int, focus: Focus) -> None:
    random_groups(seed, focus)


def test_a_seed_gives_the_same_life_again() -> None:
    assert random_groups(3) == random_groups(3)
