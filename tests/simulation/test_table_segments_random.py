"""A few seeds of the random tables; `make sim` runs as many as its time allows."""

import pytest

from kit.table_scenario import random_tables
from kit.thorough import some_of


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("seed", some_of(range(30), 4))
def test_random_tables_keep_their_promises(seed: int) -> None:
    random_tables(seed)


def test_the_lives_of_tables_are_full_of_faults() -> None:
    counts: dict[str, int] = {}
    for seed in range(16):
        for name, count in random_tables(seed).items():
            counts[name] = counts.get(name, 0) + count
    few = {name: counts.get(name, 0) for name in EXPECTED if counts.get(name, 0) < 3}
    assert few == {}


EXPECTED = (
    "answers of tables that were lost",
    "blocks of copies",
    "compactions of tables",
    "flipped bits in indexes",
    "indexes of other logs",
    "late copies of updates",
    "moves of tables",
    "reads of tables",
    "repeats that got the first answer",
    "unknown outcomes",
    "updates refused in part",
)


def test_a_seed_has_the_same_lives_again() -> None:
    assert random_tables(3) == random_tables(3)
