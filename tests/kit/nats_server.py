"""A real nats-server with JetStream for tests: loopback, any free port, data in a directory.

The program is found by ``ANABRANCH_NATS_SERVER_BIN``, on PATH, or beside the interpreter.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_DEADLINE_S = 10.0

_CONFIG = """
host: 127.0.0.1
port: {port}
jetstream {{
  store_dir: "{store}"
  sync_interval: always
}}
"""


def nats_server_binary() -> Path:
    """The nats-server program. Raises FileNotFoundError."""
    beside = Path(sys.executable).parent / "nats-server"
    named = os.environ.get("ANABRANCH_NATS_SERVER_BIN") or shutil.which("nats-server")
    found = Path(named) if named else beside
    if not found.is_file():
        raise FileNotFoundError("no nats-server: set ANABRANCH_NATS_SERVER_BIN")
    return found


class NatsServer:
    """One server process; `stop` and `start` again keep the port and the data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start and wait until the port answers."""
        config = self._directory / "nats.conf"
        store = self._directory / "jetstream"
        config.write_text(_CONFIG.format(port=self.port, store=store))
        with (self._directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [nats_server_binary(), "-c", config], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_DEADLINE_S  # noqa: TID251 - a real process
        while time.monotonic() < deadline:  # noqa: TID251 - a real process
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.01)  # noqa: TID251 - a real process
        self.stop()
        raise RuntimeError(f"nats-server did not start: {(self._directory / 'nats.log')}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End the process with the signal `how`; stopped already is fine."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # a disk that stalls may hold it up for long
                self._process.kill()
                self._process.wait(timeout=10)
        self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
