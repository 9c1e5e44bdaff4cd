"""The configuration of the embedded NATS servers, as text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from anabranch.cli.up.ports import LOOPBACK
from anabranch.common.runtime.nats_target import Login

NATS_PAYLOAD_SIZE_MAX = 1024 * 1024
NATS_STORE_SIZE_MAX = 1 << 50
NATS_LOGIN_S_MAX = 10
"""The time for a client's login; NATS's default of two seconds is short on a busy machine."""
CLUSTER = "anabranch"


@dataclass(frozen=True, slots=True)
class Routes:
    """One server's part in a cluster of NATS servers: its own name and port, and all ports."""

    server: str
    port: int
    ports: Sequence[int]
    """The ports of all servers for each other, its own included."""


def nats_config(
    port: int, monitor_port: int, store: Path, login: Login, routes: Routes | None = None
) -> str:
    """The configuration of an embedded NATS server; `routes` None: of one that is alone.

    It listens on loopback only, requires a login of clients and of other servers, syncs every
    write, and is limited by the disk alone. NATS's own limit would be three quarters of the free
    space at its start. The text holds the password.
    """
    return "\n".join(
        [
            f"listen: {json.dumps(f'{LOOPBACK}:{port}')}",
            f"http: {json.dumps(f'{LOOPBACK}:{monitor_port}')}",
            *_authorization(login),
            f"max_payload: {NATS_PAYLOAD_SIZE_MAX}",
            "jetstream {",
            f"  store_dir: {json.dumps(str(store))}",
            "  sync_interval: always",
            f"  max_file_store: {NATS_STORE_SIZE_MAX}",
            "}",
            *([] if routes is None else _cluster(routes, login)),
            "",
        ]
    )


def _authorization(login: Login) -> list[str]:
    return [
        "authorization {",
        f"  user: {json.dumps(login.user)}",
        f"  password: {json.dumps(login.password.get_secret_value())}",
        f"  timeout: {NATS_LOGIN_S_MAX}",
        "}",
    ]


def _cluster(routes: Routes, login: Login) -> list[str]:
    words = (login.user, login.password.get_secret_value())
    user, password = (quote(word, safe="") for word in words)
    places = [f"nats-route://{user}:{password}@{LOOPBACK}:{port}" for port in routes.ports]
    return [
        # The servers know each other's data by these names, which therefore never change.
        f"server_name: {json.dumps(routes.server)}",
        "cluster {",
        f"  name: {json.dumps(CLUSTER)}",
        f"  listen: {json.dumps(f'{LOOPBACK}:{routes.port}')}",
        *(f"  {line}" for line in _authorization(login)),
        f"  routes: {json.dumps(places)}",
        "}",
    ]
