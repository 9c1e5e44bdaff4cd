"""The simulation finds each of the bugs of table segments that are planted in a store."""

import pytest

from kit.planted_table_segments import TABLE_BUGS
from kit.table_scenario import random_tables

SEEDS_MAX = 40


@pytest.mark.parametrize("name", TABLE_BUGS)
def test_a_planted_bug_of_table_segments_is_found(name: str) -> None:
    for seed in range(SEEDS_MAX):
        try:
            with TABLE_BUGS[name]():
                random_tables(seed)
        except Exception:  # noqa: BLE001 - found, in whichever way it shows
            random_tables(seed)  # without the bug, the same life is right
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find: {name}")
