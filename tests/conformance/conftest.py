"""One NATS and one Redis server per test session, started when a test asks for them."""

from collections.abc import Iterator

import pytest

from kit.infra import Infra, NatsServer, Server


@pytest.fixture(scope="session")
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    with infra.nats() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(infra: Infra) -> Iterator[Server]:
    with infra.redis() as server:
        yield server
