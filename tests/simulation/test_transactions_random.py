"""A few seeds of streams with transactions; `make sim` runs as many as its time allows."""

import pytest

from kit.transaction_scenario import COMMITTED, random_transactions


@pytest.mark.parametrize("seed", range(30))
def test_random_transactions_are_all_or_nothing_and_in_order(seed: int) -> None:
    random_transactions(seed)


def test_a_seed_gives_the_same_transactions_again() -> None:
    first = random_transactions(10)

    assert first[COMMITTED] > 0
    assert random_transactions(10) == first
