"""NATS servers: one per test, or one per module whose tests do not hurt it.

Services and commands are processes that fork from one that has imported them: see `kit.preloaded`.

A usual run leaves the longest tests out; `make test-integration` takes all of them.
"""

from collections.abc import Iterator

import pytest

from kit.infra import Infra, NatsServer
from kit.infra.nats_cluster import NatsCluster, nats_cluster
from kit.preloaded import programs_fork
from kit.thorough import is_thorough

LONGEST = frozenset(
    {
        "test_a_cluster_reads_all_events_and_goes_on_after_its_metadata_was_restored",
        "test_a_cluster_that_loses_its_power_has_everything_that_it_acknowledged",
        "test_a_guide_that_starts_a_cluster_does_what_it_says[docs/fail-over.md]",
        "test_a_guide_that_starts_a_cluster_does_what_it_says[docs/replication.md]",
        "test_a_guide_that_starts_a_cluster_does_what_it_says[docs/topics.md]",
        "test_a_hundred_scales_survive_the_death_of_a_controller_that_performs_them",
        "test_a_message_is_stored_only_seconds_after_its_gate_moved_at_the_latest[dies]",
        "test_a_message_is_stored_only_seconds_after_its_gate_moved_at_the_latest[is paused]",
        "test_a_message_is_stored_only_seconds_after_its_gate_moved_at_the_latest[lives]",
        "test_a_paused_leader_that_wakes_up_serves_no_more",
        "test_a_redis_that_hangs_or_dies_stops_no_work",
        "test_a_store_that_acknowledges_before_it_writes_is_found_out",
        "test_a_view_is_the_plain_fold_of_its_events_whenever_its_processes_are_killed",
        "test_controllers_continue_while_each_server_is_killed_wiped_and_back",
        "test_every_block_that_is_marked_to_run_does_what_the_document_says[docs/measuring.md]",
        "test_every_transaction_ends_whole_or_not_at_all",
        "test_nothing_acknowledged_is_lost_and_no_number_is_given_twice",
        "test_nothing_is_taken_for_missing_while_no_majority_is_there",
        "test_the_demo_survives_the_loss_of_a_store_and_its_disk[jetstream]",
        "test_the_demo_survives_the_loss_of_a_store_and_its_disk[replicated]",
        "test_three_nats_servers_survive_the_death_of_one_and_keep_what_they_confirmed",
        "test_while_nats_is_away_nobody_is_taken_for_dead",
    }
)
LONG = "one of the longest tests: make test-integration runs all of them"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the longest tests to `make test-integration`."""
    if is_thorough():
        return
    for item in items:
        if item.name in LONGEST:
            item.add_marker(pytest.mark.skip(reason=LONG))


@pytest.fixture(scope="session", autouse=True)
def preloaded() -> Iterator[None]:
    with programs_fork():
        yield


@pytest.fixture
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    """A server of the test's own, to be stopped, killed or paused."""
    with infra.nats() as server:
        yield server


@pytest.fixture(scope="module")
def nats_url(infra: Infra) -> Iterator[str]:
    """The address of a server that the module's tests share."""
    with infra.nats() as server:
        yield server.url


@pytest.fixture(scope="module")
def three_nats() -> Iterator[NatsCluster]:
    """Three servers of one JetStream cluster that the module's tests share.

    A test that hurts them calls `restore` at its end. They are processes of this machine, whichever
    provider serves the run.
    """
    with nats_cluster() as cluster:
        yield cluster
