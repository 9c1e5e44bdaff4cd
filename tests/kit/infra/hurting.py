"""Servers that are hurt at random moments while tests use them: for promises about their loss.

``ANABRANCH_TEST_HURT=redis,nats`` names what is hurt: Redis is emptied (FLUSHALL), NATS is killed
and started again, which with every write synced loses nothing. Tests do not know; a test that
itself stops, kills or pauses its server is left alone until it has started it again.

The moments come from a seed, the number of the server in this run; when they fall is up to the
machine.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kit.infra import Infra, NatsServer, Server
from kit.rng import seeded

HURT_VARIABLE = "ANABRANCH_TEST_HURT"
REDIS, NATS = "redis", "nats"
PAUSE_S = (0.5, 4.0)
FLUSH_S = 2.0


def chosen_hurts() -> frozenset[str]:
    """What the environment asks for. Raises ValueError for what nobody can hurt."""
    named = frozenset(filter(None, os.environ.get(HURT_VARIABLE, "").split(",")))
    if not named <= {REDIS, NATS}:
        raise ValueError(f"{HURT_VARIABLE} may name {REDIS} and {NATS}, not {sorted(named)}")
    return named


def flush_all(url: str) -> None:
    """Empty the Redis server at `url`; one that does not answer is left alone."""
    host, _, port = url.removeprefix("redis://").partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=FLUSH_S) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(64)
    except OSError:
        return


def restart(server: Server) -> None:
    """Kill it and start it again."""
    server.kill()
    server.start()


class HurtServer:
    """A server beside which a thread strikes, whenever the test has it running."""

    def __init__(self, server: Server, strike: Callable[[], None], seed: int) -> None:
        self.strikes = 0
        self._server = server
        self._strike = strike
        self._rng = seeded(seed)
        self._is_running = True
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        with self._lock:
            self._server.start()
            self._is_running = True

    def stop(self) -> None:
        self._leave(self._server.stop)

    def kill(self) -> None:
        self._leave(self._server.kill)

    def pause(self) -> None:
        self._leave(self._server.pause)

    def resume(self) -> None:
        with self._lock:
            self._server.resume()
            self._is_running = True

    @contextmanager
    def hurting(self) -> Iterator[None]:
        """Strike until the block ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def _leave(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._is_running = False
            end()

    def _go_on(self) -> None:
        while not self._ended.wait(self._rng.uniform(*PAUSE_S)):
            with self._lock:
                if self._is_running:
                    self._strike()
                    self.strikes += 1


class HurtNats(HurtServer):
    """A NATS server that is hurt."""

    def __init__(self, server: NatsServer, strike: Callable[[], None], seed: int) -> None:
        super().__init__(server, strike, seed)
        self.monitor_url = server.monitor_url


class HurtingInfra:
    """An `Infra` whose servers are hurt."""

    def __init__(self, inside: Infra, hurts: frozenset[str]) -> None:
        self.inside = inside
        self._hurts = hurts
        self._started = 0

    @contextmanager
    def nats(self) -> Iterator[NatsServer]:
        with self.inside.nats() as server:
            if NATS not in self._hurts:
                yield server
                return
            hurt = HurtNats(server, lambda: restart(server), self._next_seed())
            with hurt.hurting():
                yield hurt

    @contextmanager
    def redis(self) -> Iterator[Server]:
        with self.inside.redis() as server:
            if REDIS not in self._hurts:
                yield server
                return
            hurt = HurtServer(server, lambda: flush_all(server.url), self._next_seed())
            with hurt.hurting():
                yield hurt

    def _next_seed(self) -> int:
        self._started += 1
        return self._started


def unhurt(infra: Infra) -> Infra:
    """The same without the blows: for tests that hurt their servers themselves, and say what is to
    be found in them afterwards."""
    return infra.inside if isinstance(infra, HurtingInfra) else infra
