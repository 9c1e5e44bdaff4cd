"""NATS servers: one per test, or one per module whose tests do not hurt it.

Services and commands are processes that fork from one that has imported them: see `kit.preloaded`.
"""

from collections.abc import Iterator

import pytest

from kit.infra import Infra, NatsServer
from kit.infra.nats_cluster import NatsCluster, nats_cluster
from kit.preloaded import programs_fork


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
