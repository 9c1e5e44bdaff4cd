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
        "test_a_guide_that_starts_a_cluster_does_what_it_says[docs/fail-over.md]",
        "test_a_guide_that_starts_a_cluster_does_what_it_says[docs/replication.md]",
        "test_while_nats_is_away_nobody_is_taken_for_dead",
        "test_controllers_continue_while_each_server_is_killed_wiped_and_back",
        "test_the_demo_survives_the_loss_of_a_store_and_its_disk[jetstream]",
        "test_a_redis_that_hangs_or_dies_stops_no_work",
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
