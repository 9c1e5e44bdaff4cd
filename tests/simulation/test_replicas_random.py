"""Logs that stores replicate: no acknowledged loss, one history, a leader again in bounded time."""

import pytest

from kit.replica_log_scenario import random_replicated_log
from kit.replicas_scenario import random_replicas
from kit.thorough import one_in

LOG_SEEDS = 20 * 25 // one_in(25)
SEEDS = 6 * 25 // one_in(25)


def test_replicated_logs_alone_lose_nothing_and_have_one_history() -> None:
    for seed in range(LOG_SEEDS):
        random_replicated_log(seed)


def test_clusters_with_replicated_logs_lose_nothing_and_answer_with_the_present() -> None:
    for seed in range(SEEDS):
        random_replicas(seed)


@pytest.mark.parametrize("seed", [2])
def test_a_run_is_the_same_for_the_same_seed(seed: int) -> None:
    assert random_replicated_log(seed) == random_replicated_log(seed)
    assert random_replicas(seed) == random_replicas(seed)
