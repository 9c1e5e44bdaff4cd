"""Each planted bug of the log in a stream is caught within a few hundred seeds."""

import pytest

from kit.planted_stream_log import STREAM_LOG_BUGS
from kit.stream_log_scenario import random_stream_log

SEEDS_MAX = 400


def caught_by(seed: int) -> bool:
    try:
        random_stream_log(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("bug", list(STREAM_LOG_BUGS))
def test_a_planted_bug_is_caught(bug: str) -> None:
    with STREAM_LOG_BUGS[bug]():
        seed = next((seed for seed in range(SEEDS_MAX) if caught_by(seed)), None)
    assert seed is not None, "no seed caught it"
    random_stream_log(seed)
