"""A few seeds of the random control plane; `make sim` runs as many as its time allows."""

import pytest

from kit.control_scenario import random_control, rewound_control
from kit.thorough import some_of

KEPT = (657,)
"""More seeds, each of which once found a broken promise."""


@pytest.mark.parametrize("seed", [*some_of(range(60), 4), *KEPT])
def test_a_random_control_plane_keeps_its_promises(seed: int) -> None:
    random_control(seed)


@pytest.mark.parametrize("seed", some_of(range(12), 3))
def test_a_cluster_that_stores_conflicting_messages_does_no_harm(seed: int) -> None:
    random_control(seed, careless=0.7)


def test_a_seed_gives_the_same_life_again() -> None:
    assert random_control(3) == random_control(3)


@pytest.mark.parametrize("seed", some_of(range(12), 3))
def test_no_controller_goes_on_with_what_the_event_store_has_lost(seed: int) -> None:
    rewound_control(seed)
