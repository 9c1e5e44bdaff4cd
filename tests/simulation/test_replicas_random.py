"""Logs that stores replicate: no acknowledged loss, one history, a leader again in bounded time."""

import pytest

from kit.failover_scenario import BEGIN_S_MAX, RECOVERY_S_MAX
from kit.replica_log_scenario import random_replicated_log
from kit.replicas_scenario import random_replicas
from kit.replicas_world import ReplicaWorld
from kit.rng import seeded
from kit.thorough import one_in

LOG_SEEDS = 500 // one_in(100)
SEEDS = 150 // one_in(75)
KEPT = (1327,)
"""More seeds of clusters: a frame that waited for ever after fewer members were needed."""


def test_replicated_logs_alone_lose_nothing_and_have_one_history() -> None:
    for seed in range(LOG_SEEDS):
        random_replicated_log(seed)


def test_clusters_with_replicated_logs_lose_nothing_and_answer_with_the_present() -> None:
    for seed in range(SEEDS):
        random_replicas(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_a_cluster_serves_again_after_faults_that_once_stopped_it(seed: int) -> None:
    random_replicas(seed)


def test_operators_replace_a_lost_store_that_a_list_still_wants() -> None:
    world = ReplicaWorld(seeded(1), store_count=4, container_count=1, replication=3, isr_min=2)
    world.start()
    try:
        assert world.processes.run(world.all_open, BEGIN_S_MAX)
        (found,) = world.placements()
        (spare,) = world.stores.keys() - set(found.replicas)
        world.want(0, [*found.replicas[:2], spare])
        world.lose_for_good(spare)
        world._replace_lost()
        assert world.processes.run(world.all_open, RECOVERY_S_MAX), world.placements()
        (found,) = world.placements()
        assert spare not in found.replicas
    finally:
        world.processes.end()


@pytest.mark.parametrize("seed", [2])
def test_a_run_is_the_same_for_the_same_seed(seed: int) -> None:
    assert random_replicated_log(seed) == random_replicated_log(seed)
    assert random_replicas(seed) == random_replicas(seed)
