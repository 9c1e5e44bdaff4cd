"""Right bytes while memory is scarce, whatever is read; and the bugs that this must find."""

import pytest

from kit.catch_up_scenario import CatchUpLife
from kit.planted_reads import READ_BUGS

KIB = 1024


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cache_size", [0, 1, 5_000, 300_000])
def test_reads_are_right_while_nearly_nothing_fits_into_memory(cache_size: int, seed: int) -> None:
    CatchUpLife(seed, cache_size, block_size=2_000).run(steps=60)


def windows_come_and_go(seed: int) -> None:
    life = CatchUpLife(seed, 4096 * KIB, block_size=100 * KIB)
    assert life.driver.catch_up.ahead.window
    life.run(steps=60)


def five_lives() -> None:
    for seed in range(5):
        windows_come_and_go(seed)


@pytest.mark.parametrize("seed", range(3))
def test_reads_are_right_while_windows_come_and_go(seed: int) -> None:
    windows_come_and_go(seed)


@pytest.mark.parametrize("bug", READ_BUGS)
def test_the_planted_bug_is_found(bug: str) -> None:
    with READ_BUGS[bug](), pytest.raises(AssertionError):
        five_lives()
