"""Owners of a log in a stream, in turns and at once: no acknowledged loss, one history."""

import pytest

from kit.stream_log_scenario import random_stream_log
from kit.thorough import one_in

SEEDS = 1000 // one_in(50)


def test_random_lives_of_owners_lose_nothing_and_agree() -> None:
    for seed in range(SEEDS):
        random_stream_log(seed)


@pytest.mark.parametrize("seed", [26, 53])
def test_a_run_is_the_same_for_the_same_seed(seed: int) -> None:
    assert random_stream_log(seed) == random_stream_log(seed)
