"""The simulation finds each of the bugs of key-value tables that are planted in the controller."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kit.control_crash import PLOTS, changing_requests, stood_still
from kit.control_scenario import random_control
from kit.planted_tables import TABLE_BUGS

SEEDS_MAX = 60
SEED_MIN = {"created by word": 4, "half deleted": 14, "member for ever": 7, "sealed by word": 14}
"""Where a bug that few seeds find was found when this was last looked up: it only saves time."""
Try = Callable[[], object]


def seeds(first: int = 0) -> Iterator[Try]:
    for seed in range(first, first + SEEDS_MAX):
        yield partial(random_control, seed)


def sleepers(name: str) -> Iterator[Try]:
    plot = PLOTS[name]
    for call in changing_requests(plot):
        yield partial(stood_still, plot, call, "before")
        yield partial(stood_still, plot, call, "after")


FOUND_BY: dict[str, Callable[[], Iterator[Try]]] = {
    "numbers reused": partial(sleepers, "delete table"),
    "numbers forgotten": partial(sleepers, "delete table"),
    "stamp not raised": partial(sleepers, "seal table"),
}
"""All others: by seeds."""


@pytest.mark.parametrize("name", TABLE_BUGS)
def test_a_planted_bug_of_tables_is_found(name: str) -> None:
    for attempt in FOUND_BY.get(name, partial(seeds, SEED_MIN.get(name, 0)))():
        try:
            with TABLE_BUGS[name]():
                attempt()
        except AssertionError:
            attempt()  # it is the bug that was found
            return
    pytest.fail(f"{name} was not found")
