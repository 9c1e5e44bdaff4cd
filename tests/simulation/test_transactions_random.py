"""A few seeds of streams with transactions; `make sim` runs as many as its time allows."""

import pytest

from kit.thorough import some_of
from kit.transaction_callers import Habits
from kit.transaction_scenario import COMMITTED, random_transactions

KEPT = (126,)
"""More seeds, each of which once found a broken promise."""


@pytest.mark.parametrize("seed", [*some_of(range(30), 3), *KEPT])
def test_random_transactions_are_all_or_nothing_and_in_order(seed: int) -> None:
    random_transactions(seed)


@pytest.mark.parametrize("seed", [47, 57])
def test_what_is_asked_about_while_its_stream_is_deleted_is_never_unknown(seed: int) -> None:
    random_transactions(seed, Habits(sealing=0.5, recalling=0.9))


def test_a_seed_gives_the_same_transactions_again() -> None:
    first = random_transactions(10)

    assert first[COMMITTED] > 0
    assert random_transactions(10) == first
