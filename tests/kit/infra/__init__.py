"""The servers that tests need beside the project's own parts: NATS with JetStream, and Redis.

`Infra` is the port. `embedded.py` runs the server programs of this machine, `containers.py` the
images of docker-compose.yml. Which of them serves a test run is chosen by the environment
variable ``ANABRANCH_TEST_INFRA``; tests take it from the fixture `infra` and cannot tell which
it is. Every server has an address and a data directory of its own, keeps both across `kill`,
`stop` and `start`, and is reachable from this machine alone.
"""

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

VARIABLE = "ANABRANCH_TEST_INFRA"
START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
LOOPBACK = "127.0.0.1"


class Provider(StrEnum):
    EMBEDDED = "embedded"
    CONTAINERS = "containers"


class Server(Protocol):
    """One server that somebody else started."""

    @property
    def url(self) -> str:
        """Where clients connect; the same for the server's whole life."""
        ...

    def start(self) -> None:
        """Start it again after `stop` or `kill`, and wait until it serves."""
        ...

    def stop(self) -> None:
        """End it in order. Idempotent."""
        ...

    def kill(self) -> None:
        """End it at once, as SIGKILL does. Idempotent."""
        ...

    def pause(self) -> None:
        """Let it hang: connections stay open and nothing answers, until `resume`."""
        ...

    def resume(self) -> None: ...


class NatsServer(Server, Protocol):
    """NATS with JetStream, configured by deploy/nats.conf."""

    @property
    def monitor_url(self) -> str:
        """Where its own HTTP answers: ``/healthz``, ``/jsz``."""
        ...


class Infra(Protocol):
    """Starts servers; leaving the context ends one and deletes its data, whatever happened."""

    def nats(self) -> AbstractContextManager[NatsServer]: ...

    def redis(self) -> AbstractContextManager[Server]:
        """It syncs to its append-only file and never evicts; `url` is ``redis://…``."""
        ...
