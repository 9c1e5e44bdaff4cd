"""Every bug that is planted into reader groups is found by the random groups' referee."""

import pytest

from kit.group_scenario import (
    ANYTHING,
    BOUNDED,
    CUT_OFFS,
    LEAVING,
    WAKING,
    Focus,
    random_groups,
)
from kit.planted_groups import GROUP_BUGS

SEEDS_MAX = 150
FOUND_BY: dict[str, tuple[Focus, int]] = {
    "no margin": (CUT_OFFS, 80),
    "lost without the beat": (WAKING, 118),
    "forgotten on leaving": (LEAVING, 84),
    "ends not heeded": (BOUNDED, 0),
    "never saved": (ANYTHING, 50),
    "never levelled": (ANYTHING, 28),
    "lease never checked": (ANYTHING, 30),
    "nonce not checked": (ANYTHING, 24),
    "read from the next block": (ANYTHING, 20),
}
"""What life is looked at, from which seed on: rare meetings are looked for where they are."""


@pytest.mark.parametrize("name", GROUP_BUGS)
def test_a_planted_bug_of_reader_groups_is_found(name: str) -> None:
    focus, first = FOUND_BY.get(name, (ANYTHING, 0))
    for seed in range(first, first + SEEDS_MAX):
        try:
            with GROUP_BUGS[name]():
                random_groups(seed, focus)
        except AssertionError:
            random_groups(seed, focus)  # it is the bug that was found
            return
    pytest.fail(f"{name} was not found")
