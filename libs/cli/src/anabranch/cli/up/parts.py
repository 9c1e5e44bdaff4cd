"""The parts of an embedded cluster as data: program, environment, probe.

The environment alone configures the services, exactly as in production; this module imports none of
them.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from anabranch.cli.up.directory import DataDirectory
from anabranch.cli.up.ports import LOOPBACK
from anabranch.common.runtime.nats_target import Login
from anabranch.common.runtime.port_file import PORT_FILE_VARIABLE

NATS_PAYLOAD_SIZE_MAX = 1024 * 1024
NATS_STORE_SIZE_MAX = 1 << 50
NATS_LOGIN_S_MAX = 10
"""The time for a client's login; NATS's default of two seconds is short on a busy machine."""
CONTROLLER = "controller"
SEGSTORE = "segstore"
REDIS = "redis"
REDIS_MEMORY_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NatsProbe:
    """Ready if the port greets like a NATS server, and its monitoring port reports good health.

    After a failed write, the server keeps the error until it is restarted, which helps once the
    disk of `folder` has room.
    """

    port: int
    monitor_port: int
    folder: Path


@dataclass(frozen=True, slots=True)
class RedisProbe:
    """Ready if the socket answers a PING as a Redis server does."""

    socket: Path


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """Ready if `/readyz` answers 200 on the port that the service wrote to `port_file`."""

    port_file: Path


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One child process. `environment` is added to the parent's; `needs` must be ready first."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    probe: NatsProbe | RedisProbe | HealthProbe
    log_file: Path
    needs: tuple[str, ...] = ()
    irreplaceable: bool = False
    """The process alone holds its data, so a restart cannot bring it back."""

    @property
    def folder(self) -> Path | None:
        """The data directory of a program that cannot report by itself that the disk is full."""
        return self.probe.folder if isinstance(self.probe, NatsProbe) else None


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The plan of an embedded cluster, with its ports and its NATS program."""

    directory: DataDirectory
    nats_program: Path
    nats_port: int
    segstore_port: int
    gateway_port: int
    container_count: int
    nats_login: Login
    """The login that the NATS server requires of every client."""
    tier2: str = ""
    """Empty: a directory in the data directory."""
    ephemeral: bool = False
    otlp_endpoint: str = ""
    more_segstore_ports: tuple[int, ...] = ()
    """The ports of further segment stores; all share one tier 2."""
    controller_count: int = 1
    nats_monitor_port: int = 8222
    """The port on which NATS reports its configuration, for the controller's check."""
    redis_program: Path | None = None
    """None: the controllers share their work without Redis."""
    redis_socket: Path = Path()
    """The socket of Redis, in a directory that no other user can enter."""

    @property
    def redis_url(self) -> str:
        """The URL of Redis; empty without Redis."""
        return f"unix://{quote(str(self.redis_socket))}" if self.redis_program else ""

    @property
    def tier2_url(self) -> str:
        """The tier 2 of the segment stores, to which the controller also exports streams."""
        if self.ephemeral:
            return "memory:"
        return self.tier2 or (self.directory.folder("segstore") / "tier2").as_uri()

    @property
    def nats_url(self) -> str:
        return f"nats://{LOOPBACK}:{self.nats_port}"

    @property
    def nats_monitor_url(self) -> str:
        return f"http://{LOOPBACK}:{self.nats_monitor_port}"

    @property
    def segstore_endpoint(self) -> str:
        return f"{LOOPBACK}:{self.segstore_port}"

    @property
    def segstore_endpoints(self) -> tuple[str, ...]:
        ports = (self.segstore_port, *self.more_segstore_ports)
        return tuple(f"{LOOPBACK}:{port}" for port in ports)

    @property
    def gateway_url(self) -> str:
        return f"http://{LOOPBACK}:{self.gateway_port}"


def cluster_parts(plan: ClusterPlan) -> tuple[PartSpec, ...]:
    """The parts in start order: nats, redis, controllers, segstores, gateway.

    They stop in reverse. Redis is included only if the plan has it, and no part waits for it.
    """
    redis = [] if plan.redis_program is None else [_redis(plan, plan.redis_program)]
    controllers = [_controller(plan, name) for name in numbered(CONTROLLER, plan.controller_count)]
    endpoints = plan.segstore_endpoints
    stores = [
        _segstore(plan, name, endpoint)
        for name, endpoint in zip(numbered(SEGSTORE, len(endpoints)), endpoints, strict=True)
    ]
    return (_nats(plan), *redis, *controllers, *stores, _gateway(plan))


def numbered(name: str, count: int) -> tuple[str, ...]:
    """The names of `count` parts of a kind: x, x-2, x-3 …"""
    return (name, *(f"{name}-{number}" for number in range(2, count + 1)))


def nats_config(port: int, monitor_port: int, store: Path, login: Login) -> str:
    """The configuration of the embedded NATS server.

    It listens on loopback only, requires a login, syncs every write, and is limited by the disk
    alone. NATS's own limit would be three quarters of the free space at its start. The text holds
    the password.
    """
    return "\n".join(
        [
            f"listen: {json.dumps(f'{LOOPBACK}:{port}')}",
            f"http: {json.dumps(f'{LOOPBACK}:{monitor_port}')}",
            "authorization {",
            f"  user: {json.dumps(login.user)}",
            f"  password: {json.dumps(login.password.get_secret_value())}",
            f"  timeout: {NATS_LOGIN_S_MAX}",
            "}",
            f"max_payload: {NATS_PAYLOAD_SIZE_MAX}",
            "jetstream {",
            f"  store_dir: {json.dumps(str(store))}",
            "  sync_interval: always",
            f"  max_file_store: {NATS_STORE_SIZE_MAX}",
            "}",
            "",
        ]
    )


def _nats(plan: ClusterPlan) -> PartSpec:
    config = plan.directory.run_file("nats.conf")
    folder = plan.directory.folder("nats")
    text = nats_config(plan.nats_port, plan.nats_monitor_port, folder, plan.nats_login)
    plan.directory.write(config, text)
    return PartSpec(
        name="nats",
        command=(str(plan.nats_program), "--config", str(config)),
        environment={},
        probe=NatsProbe(plan.nats_port, plan.nats_monitor_port, folder),
        log_file=plan.directory.log_file("nats"),
    )


def _redis(plan: ClusterPlan, program: Path) -> PartSpec:
    """Redis, with a socket for this user alone and without a port.

    It has no password, and any client could make it write files. It keeps no data: all of its
    content may be lost at any time.
    """
    options = {
        "port": "0",
        "unixsocket": str(plan.redis_socket),
        "unixsocketperm": "700",
        "dir": str(plan.directory.root / "run"),
        "save": "",
        "appendonly": "no",
        "maxmemory": str(REDIS_MEMORY_SIZE_MAX),
        "maxmemory-policy": "noeviction",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return PartSpec(
        name=REDIS,
        command=(str(program), *words),
        environment={},
        probe=RedisProbe(plan.redis_socket),
        log_file=plan.directory.log_file(REDIS),
    )


def _controller(plan: ClusterPlan, name: str) -> PartSpec:
    return _service(
        plan,
        name,
        {
            "ANABRANCH_CONTROLLER_CONTROLLER_ID": name,
            **_nats_variables(plan, "CONTROLLER"),
            "ANABRANCH_CONTROLLER_NATS_MONITOR_URL": plan.nats_monitor_url,
            "ANABRANCH_CONTROLLER_REDIS_URL": plan.redis_url,
            "ANABRANCH_CONTROLLER_HEALTH_BIND": f"{LOOPBACK}:0",
            "ANABRANCH_CONTROLLER_CONTAINER_COUNT": str(plan.container_count),
            # An ephemeral tier 2 is in the store's memory, so no reader could use an export.
            "ANABRANCH_CONTROLLER_TIER2_URL": "" if plan.ephemeral else plan.tier2_url,
        },
        program=CONTROLLER,
    )


def _segstore(plan: ClusterPlan, name: str, endpoint: str) -> PartSpec:
    part = _service(
        plan,
        name,
        {
            "ANABRANCH_SEGSTORE_DATA_DIR": str(plan.directory.folder(name)),
            "ANABRANCH_SEGSTORE_TIER2_URL": plan.tier2_url,
            "ANABRANCH_SEGSTORE_JOURNAL": "memory" if plan.ephemeral else "disk",
            **_nats_variables(plan, "SEGSTORE"),
            "ANABRANCH_SEGSTORE_BIND": endpoint,
            "ANABRANCH_SEGSTORE_HEALTH_BIND": f"{LOOPBACK}:0",
        },
        program=SEGSTORE,
    )
    return replace(part, irreplaceable=plan.ephemeral)


def _gateway(plan: ClusterPlan) -> PartSpec:
    return _service(
        plan,
        "gateway",
        {
            **_nats_variables(plan, "GATEWAY"),
            "ANABRANCH_GATEWAY_BIND": f"{LOOPBACK}:{plan.gateway_port}",
            "ANABRANCH_GATEWAY_HEALTH_BIND": f"{LOOPBACK}:0",
        },
    )


def _nats_variables(plan: ClusterPlan, program: str) -> dict[str, str]:
    """The variables by which a service finds NATS, with the path of its credentials file."""
    return {
        f"ANABRANCH_{program}_NATS_URL": plan.nats_url,
        f"ANABRANCH_{program}_NATS_CREDENTIALS_FILE": str(plan.directory.nats_credentials_file),
    }


def _service(
    plan: ClusterPlan, name: str, environment: Mapping[str, str], program: str = ""
) -> PartSpec:
    """`program` is the service's name if the part's name differs."""
    program = program or name
    port_file = plan.directory.run_file(f"{name}.port")
    telemetry = {}
    if plan.otlp_endpoint:  # else the parent's environment applies
        telemetry[f"ANABRANCH_{program.upper()}_OTLP_ENDPOINT"] = plan.otlp_endpoint
    return PartSpec(
        name=name,
        command=(sys.executable, "-P", "-m", f"anabranch.{program}"),
        environment={**environment, **telemetry, PORT_FILE_VARIABLE: str(port_file)},
        probe=HealthProbe(port_file),
        log_file=plan.directory.log_file(name),
        needs=("nats",),
    )
