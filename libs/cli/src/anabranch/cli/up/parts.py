"""The parts of an embedded cluster as data: program, environment, probe.

The environment alone configures the services, exactly as in production; this module imports none of
them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from anabranch.cli.up import nats_config
from anabranch.cli.up.directory import DataDirectory, numbered
from anabranch.cli.up.ports import LOOPBACK
from anabranch.cli.up.stores import SEGSTORE, StoreSpec
from anabranch.common.runtime.nats_target import Login
from anabranch.common.runtime.port_file import PORT_FILE_VARIABLE

NATS = "nats"
CONTROLLER = "controller"
REDIS = "redis"
GATEWAY = "gateway"
NATS_GARBAGE_PERCENT = 50
"""The garbage that a NATS server may hold, as a share of what it uses. Go's 100 made its memory for
idle partitions a quarter larger, at the same processor time."""
REDIS_MEMORY_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NatsProbe:
    """Ready if the port greets like a NATS server, and its monitoring port reports good health.

    A server of several is ready when JetStream has a leader.

    After a failed write, the server keeps the error until it is restarted, which helps once the
    disk of `folder` has room.
    """

    port: int
    monitor_port: int
    folder: Path


@dataclass(frozen=True, slots=True)
class NatsPorts:
    """The ports of a NATS server: for clients, for its monitoring, for the other servers."""

    client: int
    monitor: int
    route: int = 0
    """0 for a server that is alone."""

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.client}"

    @property
    def monitor_url(self) -> str:
        return f"http://{LOOPBACK}:{self.monitor}"


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
    """One child process. `environment` is added to the parent's. It becomes ready only while most
    of the parts in `needs` are."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    probe: NatsProbe | RedisProbe | HealthProbe
    log_file: Path
    needs: tuple[str, ...] = ()
    pid_file: Path | None = None
    """The file in which users find the process id while the process runs."""
    irreplaceable: bool = False
    """The process alone holds its data, so a restart cannot bring it back."""
    expendable: bool = False
    """The cluster goes on if the process cannot be kept running."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables for which the parent's environment has the last word."""

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
    stores: tuple[StoreSpec, ...] = ()
    """The segment stores in the order of their ports; (): stores that draw their node ids."""
    controller_count: int = 1
    nats_monitor_port: int = 8222
    """The port on which NATS reports its configuration, for the controller's check."""
    nats_route_port: int = 0
    more_nats: tuple[NatsPorts, ...] = ()
    """Further NATS servers, which form one cluster with the first."""
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
    def nats_servers(self) -> tuple[NatsPorts, ...]:
        first = NatsPorts(self.nats_port, self.nats_monitor_port, self.nats_route_port)
        return (first, *self.more_nats)

    @property
    def nats_names(self) -> tuple[str, ...]:
        return numbered(NATS, len(self.nats_servers))

    @property
    def nats_url(self) -> str:
        """The URLs of all NATS servers, separated by commas."""
        return ",".join(server.url for server in self.nats_servers)

    @property
    def nats_monitor_url(self) -> str:
        """The monitoring URLs of all NATS servers, separated by commas."""
        return ",".join(server.monitor_url for server in self.nats_servers)

    @property
    def segstores(self) -> tuple[StoreSpec, ...]:
        """The segment stores, in the order of their endpoints."""
        drawn = numbered(SEGSTORE, 1 + len(self.more_segstore_ports))
        return self.stores or tuple(StoreSpec(part) for part in drawn)

    @property
    def segstore_endpoints(self) -> tuple[str, ...]:
        ports = (self.segstore_port, *self.more_segstore_ports)
        return tuple(f"{LOOPBACK}:{port}" for port in ports)

    @property
    def gateway_url(self) -> str:
        return f"http://{LOOPBACK}:{self.gateway_port}"


def cluster_parts(plan: ClusterPlan) -> tuple[PartSpec, ...]:
    """The parts in start order: NATS servers, redis, controllers, segstores, gateway.

    They stop in reverse. Redis is included only if the plan has it, and no part waits for it.
    """
    redis = [] if plan.redis_program is None else [_redis(plan, plan.redis_program)]
    controllers = [_controller(plan, name) for name in numbered(CONTROLLER, plan.controller_count)]
    placed = zip(plan.segstores, plan.segstore_endpoints, strict=True)
    stores = [store_part(plan, store, endpoint) for store, endpoint in placed]
    return (*_nats_servers(plan), *redis, *controllers, *stores, _gateway(plan))


def _nats_servers(plan: ClusterPlan) -> list[PartSpec]:
    servers = zip(plan.nats_names, plan.nats_servers, strict=True)
    return [_nats(plan, name, ports) for name, ports in servers]


def _nats(plan: ClusterPlan, name: str, ports: NatsPorts) -> PartSpec:
    config = plan.directory.run_file(f"{name}.conf")
    folder = plan.directory.folder(name)
    all_ports = [one.route for one in plan.nats_servers]
    routes = nats_config.Routes(name, ports.route, all_ports) if plan.more_nats else None
    text = nats_config.nats_config(ports.client, ports.monitor, folder, plan.nats_login, routes)
    plan.directory.write(config, text)
    return PartSpec(
        name=name,
        command=(str(plan.nats_program), "--config", str(config)),
        environment={},
        defaults={"GOGC": str(NATS_GARBAGE_PERCENT)},
        probe=NatsProbe(ports.client, ports.monitor, folder),
        log_file=plan.directory.log_file(name),
        pid_file=plan.directory.run_file(f"{name}.pid"),
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
        pid_file=plan.directory.run_file(f"{REDIS}.pid"),
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
            **_replication_variables(plan),
            # An ephemeral tier 2 is in the store's memory, so no reader could use an export.
            "ANABRANCH_CONTROLLER_TIER2_URL": "" if plan.ephemeral else plan.tier2_url,
        },
        program=CONTROLLER,
    )


def store_part(plan: ClusterPlan, store: StoreSpec, endpoint: str) -> PartSpec:
    """The process of a segment store."""
    part = _service(
        plan,
        store.part,
        {
            **dict(store.env),
            **_spu_variables(store),
            "ANABRANCH_SEGSTORE_DATA_DIR": str(plan.directory.folder(store.part)),
            "ANABRANCH_SEGSTORE_TIER2_URL": plan.tier2_url,
            **_log_variables(plan),
            **_nats_variables(plan, "SEGSTORE"),
            "ANABRANCH_SEGSTORE_BIND": endpoint,
            "ANABRANCH_SEGSTORE_HEALTH_BIND": f"{LOOPBACK}:0",
        },
        program=SEGSTORE,
    )
    return replace(part, irreplaceable=plan.ephemeral)


def _spu_variables(store: StoreSpec) -> dict[str, str]:
    """The variables of a store about the SPU that it is; none if it is a custom one."""
    if not store.name:
        return {}
    variables = {
        "ANABRANCH_SEGSTORE_NODE_ID": store.name,
        "ANABRANCH_SEGSTORE_SPU_GROUP": store.group,
        "ANABRANCH_SEGSTORE_RACK": store.rack,
    }
    if store.storage_size_bytes:
        variables["ANABRANCH_SEGSTORE_TOPIC_STORAGE_SIZE_BYTES"] = str(store.storage_size_bytes)
    return variables


def _log_variables(plan: ClusterPlan) -> dict[str, str]:
    """The variables of a store about the place of its containers' logs."""
    if plan.ephemeral:
        return {"ANABRANCH_SEGSTORE_JOURNAL": "memory"}
    # The stores share this machine: a tier 2 in a directory dies when the logs do.
    loss = {"ANABRANCH_SEGSTORE_TIER2_LOSS": "accepted"}
    if plan.directory.choices.log == "journal":
        return {"ANABRANCH_SEGSTORE_JOURNAL": "disk"}
    if plan.directory.choices.log == "replicated":
        return {"ANABRANCH_SEGSTORE_JOURNAL": "replicated", **loss}
    return {
        "ANABRANCH_SEGSTORE_JOURNAL": "jetstream",
        "ANABRANCH_SEGSTORE_LOG_REPLICAS": str(len(plan.nats_servers)),
        "ANABRANCH_SEGSTORE_NATS_MONITOR_URLS": plan.nats_monitor_url,
        **loss,
    }


def _replication_variables(plan: ClusterPlan) -> dict[str, str]:
    """The variables of a controller about the replicas of the containers' logs."""
    replication = plan.directory.choices.replication
    return {"ANABRANCH_CONTROLLER_REPLICATION": str(replication)} if replication else {}


def _gateway(plan: ClusterPlan) -> PartSpec:
    return _service(
        plan,
        GATEWAY,
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
        pid_file=plan.directory.run_file(f"{name}.pid"),
        needs=plan.nats_names,
    )
