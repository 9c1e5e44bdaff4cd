"""Every bug that is planted into views is found: a row is not the plain fold of its events."""

import pytest

from kit.group_scenario import ANYTHING, Focus
from kit.planted_views import VIEW_BUGS
from kit.view_scenario import RESETS, random_view

SEEDS_MAX = 100
FOUND_BY: dict[str, tuple[Focus, int]] = {
    "positions without a condition": (ANYTHING, 14),
    "unchanged rows not noted": (RESETS, 29),
    "positions removed with their segment": (RESETS, 1),
}
"""The kind of life, and the first seed: rare meetings are looked for where they happen."""


@pytest.mark.parametrize("name", VIEW_BUGS)
def test_a_planted_bug_of_views_is_found(name: str) -> None:
    focus, first = FOUND_BY.get(name, (ANYTHING, 0))
    for seed in range(first, first + SEEDS_MAX):
        try:
            with VIEW_BUGS[name]():
                random_view(seed, focus)
        except AssertionError:
            random_view(seed, focus)  # the bug was found, and nothing else
            return
    pytest.fail(f"{name} was not found")
