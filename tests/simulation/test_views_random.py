"""A few seeds of random views; `make sim` runs as many as its time allows."""

import pytest

from kit.group_scenario import Focus
from kit.thorough import some_of
from kit.view_scenario import RESETS, ZOMBIES, random_view


@pytest.mark.parametrize("seed", some_of(range(40), 3))
def test_a_random_view_folds_every_event_once(seed: int) -> None:
    random_view(seed)


@pytest.mark.parametrize("focus", [ZOMBIES, RESETS])
@pytest.mark.parametrize("seed", some_of(range(10), 3))
def test_a_view_in_one_kind_of_trouble_folds_every_event_once(seed: int, focus: Focus) -> None:
    random_view(seed, focus)


def test_a_seed_gives_the_same_life_again() -> None:
    assert random_view(3) == random_view(3)
