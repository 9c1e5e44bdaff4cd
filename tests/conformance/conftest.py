"""One NATS server per test session, started when a test asks for it."""

from collections.abc import Iterator

import pytest

from kit.infra import Infra, NatsServer


@pytest.fixture(scope="session")
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    with infra.nats() as server:
        yield server
