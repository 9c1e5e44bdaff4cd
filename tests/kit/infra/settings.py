"""How the servers of tests are configured, and when they are ready: the same for both providers."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from anabranch.common.runtime.ids import system_rng
from kit.infra import LOOPBACK, START_SECONDS_MAX

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy" / "nats.conf"
PROBE_SECONDS = 1.0
PAUSE_SECONDS = 0.01
PORT_MIN, PORT_MAX = 20_000, 32_000
NATS_NAME = "anabranch-nats"
REDIS_OPTIONS = ("--appendonly", "yes", "--maxmemory-policy", "noeviction", "--save", "")


def nats_config(*, listen: str, http: str, store_dir: str, name: str = NATS_NAME) -> str:
    """deploy/nats.conf with these addresses, directory and server's name in place of its own."""
    text = DEPLOYED.read_text()
    for deployed, wanted in (
        (f"server_name: {NATS_NAME}\n", f"server_name: {name}\n"),
        ('"0.0.0.0:4222"', json.dumps(listen)),
        ('"0.0.0.0:8222"', json.dumps(http)),
        ('"/data"', json.dumps(store_dir)),
    ):
        assert text.count(deployed) == 1, f"deploy/nats.conf no longer says {deployed}"
        text = text.replace(deployed, wanted)
    return text


def nats_serves(monitor_port: int) -> bool:
    """Whether the server says of itself that it and JetStream are healthy."""
    url = f"http://{LOOPBACK}:{monitor_port}/healthz?js-enabled-only=true"
    try:
        with urlopen(url, timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):  # a proxy in between may accept and hang up
        return False


def redis_serves(port: int) -> bool:
    """Whether the server answers a PING; while it still loads its file it refuses."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=PROBE_SECONDS) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def wait_until(
    condition: Callable[[], bool],
    still_alive: Callable[[], bool],
    *,
    seconds_max: float = START_SECONDS_MAX,
) -> bool:
    """Whether the condition came true before the server ended or its time was over."""
    deadline = time.monotonic() + seconds_max  # noqa: TID251 - a real process
    while time.monotonic() < deadline:  # noqa: TID251 - a real process
        if condition():
            return True
        if not still_alive():
            return False
        time.sleep(PAUSE_SECONDS)  # noqa: TID251 - a real process
    return False


def free_port() -> int:
    """A port without a listener, below those that the system gives to outgoing connections.

    One of the latter could be taken between this moment and the server's start.
    """
    while True:
        port = PORT_MIN + int(system_rng().random() * (PORT_MAX - PORT_MIN))
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
