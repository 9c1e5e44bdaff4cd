"""NATS servers for whoever asks: one per test, or one per module whose tests do not hurt it."""

from collections.abc import Iterator

import pytest

from kit.infra import Infra, NatsServer


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
