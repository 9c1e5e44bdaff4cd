"""An embedded cluster for the duration of an `async with`: NATS, Redis, and the services.

    async with embedded_cluster(UpSettings(data_dir=Path("out/anabranch"))) as cluster:
        await cluster.wait_ready()
        ... connect(cluster.nats) ...

Leaving the block stops the parts in order. A part that dies is restarted on the same port; if a
part cannot be kept running, the block ends with `Unavailable`. An ephemeral cluster lives in memory
and in a temporary directory, which is removed afterwards.
"""

import asyncio
import contextlib
import math
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from anabranch.cli.up import plan
from anabranch.cli.up.binaries import find_programs
from anabranch.cli.up.choices import NATS_COUNTS, REPLICATION_MAX, Log, Wish
from anabranch.cli.up.credentials import kept_credentials
from anabranch.cli.up.directory import STORES, DataDirectory, Endpoints, claim, numbered
from anabranch.cli.up.parts import (
    CONTROLLER,
    SEGSTORE,
    ClusterPlan,
    NatsPorts,
    PartSpec,
    cluster_parts,
)
from anabranch.cli.up.ports import choose_port
from anabranch.cli.up.provisioning import ProcessProvisioner, ensure_main, keep_provisioned
from anabranch.cli.up.stores import KnownStores, StoreSpec, known_in, stores_at_start
from anabranch.cli.up.supervisor import States, Supervisor
from anabranch.client import connect
from anabranch.common.errors import DirectoryUnusable, InvalidSetting, Unavailable
from anabranch.common.runtime.addresses import is_base_url
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import Rng, new_password, system_rng
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.common.storage.location import MemoryLocation, parse_location

READY_SECONDS_MAX = 90.0
CONTAINER_COUNT_MAX = 1024
STORE_COUNT_MAX = 16
CONTROLLER_COUNT_MAX = 8
REDIS_SOCKET = "redis.sock"
SOCKET_PATH_SIZE_MAX = 100
"""Bytes; the kernel's limit is 107."""
SHORT_PATH_SIZE_MAX = 50


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The settings of an embedded cluster. Port 0 means any free one.

    Without a `data_dir` the cluster is ephemeral and keeps no data.
    """

    data_dir: Path | None
    nats_port: int = 0
    segstore_port: int = 0
    gateway_port: int = 0
    container_count: int = 4
    tier2_url: str = ""
    """Empty: a directory in `data_dir`."""
    otlp_endpoint: str = ""
    """The collector of the services' traces and metrics; empty for none."""
    store_count: int | None = None
    """The number of segment stores, of which all but the first take any free port; None: as many
    as the data directory has, one for a new one. Those of SPU groups besides `main` come on top."""
    redis: bool = True
    """Whether to start Redis if its program is found; without it, controllers share work by
    rendezvous.
    """
    controller_count: int = 1
    nats_count: int | None = None
    """The number of NATS servers; None: that of the data directory, one for a new one."""
    log: Log | None = None
    """The place of the containers' logs; None: that of the data directory, `journal` for a new
    one."""
    replication: int | None = None
    """The number of stores that have a copy of each log; None: that of the data directory, whose
    logs have no copies unless this was chosen."""

    @property
    def ephemeral(self) -> bool:
        return self.data_dir is None


class EmbeddedCluster:
    """A running embedded cluster; made by `embedded_cluster`."""

    def __init__(
        self, directory: DataDirectory, endpoints: Endpoints, watch: Callable[[States], None]
    ) -> None:
        self._directory = directory
        self._endpoints = endpoints
        self._watch = watch
        self._ready = asyncio.Event()
        self._supervisor: Supervisor | None = None
        self.spu_trouble = ""
        """Why the processes cannot follow the SPU groups now; "" if they do."""
        self.redis_url = ""
        """The URL of Redis; empty without Redis."""

    @property
    def endpoints(self) -> dict[str, str | list[str]]:
        """The content of endpoints.json: {"nats", "gateway": url, "segstores": ["host:port"],
        "nats_credentials": name of a file beside it}."""
        return self._endpoints.as_dict()

    @property
    def nats(self) -> NatsTarget:
        """The address for clients, which may connect before the cluster is ready."""
        return NatsTarget.at(
            self._endpoints.nats, credentials_file=self._directory.nats_credentials_file
        )

    @property
    def endpoints_file(self) -> Path:
        """The endpoints for other processes; the file exists once the cluster has been ready."""
        return self._directory.endpoints_file

    @property
    def data_dir(self) -> Path:
        return self._directory.root

    def segstore_pids(self) -> list[int]:
        """The process ids of the running segment stores."""
        return self._pids_of(SEGSTORE)

    def controller_pids(self) -> list[int]:
        """The process ids of the running controllers."""
        return self._pids_of(CONTROLLER)

    def _pids_of(self, kind: str) -> list[int]:
        assert self._supervisor is not None, "the cluster is not supervised yet"
        parts = [name for name in self._supervisor.states if name.startswith(kind)]
        return [pid for name in parts for pid in self.pids(name)]

    def pids(self, part: str) -> list[int]:
        """The process ids of one part (`nats`, `controller-2` …); empty while it is down."""
        assert self._supervisor is not None, "the cluster is not supervised yet"
        return self._supervisor.pids(part)

    async def wait_ready(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Return when all parts are ready at one time. Raises Unavailable after the deadline."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._ready.wait()
        except TimeoutError as error:
            raise Unavailable(
                "the cluster is not ready in time",
                remedy=f"read the logs in {self._directory.root / 'logs'}",
                seconds=seconds_max,
            ) from error

    def supervise(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def note_stores(self, known: KnownStores, endpoints: Sequence[str]) -> None:
        """Keep the stores for the next start, and publish their endpoints."""
        self._directory.write(self._directory.root / STORES, known.as_text())
        self._endpoints = replace(self._endpoints, segstores=tuple(endpoints))
        if self._ready.is_set():
            self._directory.publish(self._endpoints)

    def note_trouble(self, trouble: str) -> None:
        """Note why the processes cannot follow the SPU groups; "": they do."""
        self.spu_trouble = trouble

    def changed(self, states: States) -> None:
        """Publish the endpoints when everything is ready for the first time, and notify the
        watcher.
        """
        if plan.is_cluster_ready(states) and not self._ready.is_set():
            self._directory.publish(self._endpoints)
            self._ready.set()
        self._watch(states)


@contextlib.asynccontextmanager
async def embedded_cluster(
    settings: UpSettings,
    *,
    watch: Callable[[States], None] = lambda _states: None,
    parts: Callable[[ClusterPlan], Sequence[PartSpec]] = cluster_parts,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster with these settings; `watch` is called on every change of a part.

    Raises InvalidSetting, DirectoryInUse, DirectoryUnusable, FormatTooNew, PortInUse,
    BinaryNotFound before any part starts; Unavailable if a part cannot be kept running.
    """
    _check(settings)
    with (
        _root(settings) as root,
        claim(root, _wish(settings)) as directory,
        place_for_sockets(directory.folder("run")) as sockets,
    ):
        known = _known_stores(directory)
        stores = _stores_at_start(settings, known)
        _check_replication(directory.choices.replication, len(stores))
        ports = _Ports(system_rng())
        drawn = await _plan(settings, directory, sockets, ports, stores)
        endpoints = Endpoints(drawn.nats_url, drawn.segstore_endpoints, drawn.gateway_url)
        cluster = EmbeddedCluster(directory, endpoints, watch)
        cluster.redis_url = drawn.redis_url
        supervisor = Supervisor(parts(drawn), SystemClock(), cluster.changed)
        cluster.supervise(supervisor)
        works: list[Callable[[], Coroutine[None, None, None]]] = []
        if not settings.ephemeral:
            managed = tuple(store for store in stores if store.name)
            cluster.note_stores(KnownStores(known.custom, managed), drawn.segstore_endpoints)
            provisioner = ProcessProvisioner(
                drawn, known, supervisor, ports.take, cluster.note_stores
            )
            works.append(partial(_provision, cluster, provisioner, known, stores, settings))
        try:
            async with _supervised(supervisor, works):
                yield cluster
        finally:
            directory.withdraw()


def _known_stores(directory: DataDirectory) -> KnownStores:
    """The stores of the data directory. Raises DirectoryUnusable."""
    text = directory.kept_stores()
    if text is None:
        made = takewhile(directory.has_node_id, numbered(SEGSTORE, STORE_COUNT_MAX))
        return KnownStores(custom=tuple(made))
    try:
        return known_in(text)
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            "the list of the segment stores cannot be read",
            remedy="restore it from a backup of the data directory",
            path=str(directory.root / STORES),
        ) from error


def _stores_at_start(settings: UpSettings, known: KnownStores) -> tuple[StoreSpec, ...]:
    if settings.ephemeral:  # its one store keeps nothing, and cannot be replaced
        return (StoreSpec(SEGSTORE),)
    return stores_at_start(known, settings.store_count)


async def _provision(
    cluster: EmbeddedCluster,
    provisioner: ProcessProvisioner,
    known: KnownStores,
    stores: Sequence[StoreSpec],
    settings: UpSettings,
) -> None:
    """Follow the SPU groups once the cluster is ready."""
    await cluster.wait_ready(math.inf)
    await keep_provisioned(
        lambda: connect(cluster.nats),
        provisioner,
        lambda client: ensure_main(client, known, stores, settings.store_count),
        cluster.note_trouble,
        SystemClock(),
    )


def _wish(settings: UpSettings) -> Wish:
    return Wish(settings.nats_count, settings.log, settings.replication)


@contextlib.contextmanager
def _root(settings: UpSettings) -> Iterator[Path]:
    """The data directory; for an ephemeral cluster, a temporary one that ends with the block."""
    if settings.data_dir is not None:
        yield settings.data_dir
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-") as name:
        yield Path(name)


@contextlib.asynccontextmanager
async def _supervised(
    supervisor: Supervisor, works: Sequence[Callable[[], Coroutine[None, None, None]]] = ()
) -> AsyncIterator[None]:
    """Run the supervisor and other works beside the block. After the block, cancel the works, and
    stop the supervisor in order."""
    down = asyncio.Event()

    async def run() -> None:
        try:
            await supervisor.run()
        finally:
            down.set()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run())
            tasks = [group.create_task(work()) for work in works]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                supervisor.request_stop()
                await down.wait()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) == 1:
            raise failures.exceptions[0] from None
        raise


@contextlib.contextmanager
def place_for_sockets(folder: Path) -> Iterator[Path]:
    """A directory for unix sockets that only this user can enter.

    It is `folder`, or a temporary directory if that path is too long for the name of a socket.
    """
    if len(os.fsencode(folder / REDIS_SOCKET)) <= SOCKET_PATH_SIZE_MAX:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-", dir=_short_place()) as name:
        yield Path(name)


def _short_place() -> str | None:
    """A parent for temporary directories with short names; None: the system's default."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= SHORT_PATH_SIZE_MAX else "/tmp"


class _Ports:
    """Draws ports of which no two are the same."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._taken: set[int] = set()

    def take(self, wanted: int = 0) -> int:
        """`wanted`, or any free port for 0. Raises PortInUse."""
        port = choose_port(wanted, self._rng, taken=frozenset(self._taken))
        self._taken.add(port)
        return port


async def _plan(
    settings: UpSettings,
    directory: DataDirectory,
    sockets: Path,
    ports: _Ports,
    stores: tuple[StoreSpec, ...],
) -> ClusterPlan:
    nats_port = ports.take(settings.nats_port)
    segstore_port = ports.take(settings.segstore_port)
    gateway_port = ports.take(settings.gateway_port)
    count = directory.choices.nats_count
    programs = await find_programs(redis=settings.redis)
    return ClusterPlan(
        redis_program=programs.redis,
        redis_socket=sockets / REDIS_SOCKET,
        stores=stores,
        more_segstore_ports=tuple(ports.take() for _ in stores[1:]),
        controller_count=settings.controller_count,
        directory=directory,
        nats_program=programs.nats,
        nats_port=nats_port,
        nats_login=kept_credentials(directory, new_password),
        nats_monitor_port=ports.take(),
        nats_route_port=ports.take() if count > 1 else 0,
        more_nats=tuple(
            NatsPorts(ports.take(), ports.take(), ports.take()) for _ in range(count - 1)
        ),
        segstore_port=segstore_port,
        gateway_port=gateway_port,
        container_count=settings.container_count,
        tier2=settings.tier2_url,
        ephemeral=settings.ephemeral,
        otlp_endpoint=settings.otlp_endpoint,
    )


def _check(settings: UpSettings) -> None:
    for name, port in (
        ("nats-port", settings.nats_port),
        ("segstore-port", settings.segstore_port),
        ("gateway-port", settings.gateway_port),
    ):
        if not 0 <= port <= 65535:
            raise InvalidSetting("port is out of range", setting=name, port=port)
    if settings.otlp_endpoint and not is_base_url(settings.otlp_endpoint):
        raise InvalidSetting(
            "the OTLP endpoint is not a URL",
            remedy="write it as http://127.0.0.1:4318",
            setting="otlp-endpoint",
        )
    if not 1 <= settings.container_count <= CONTAINER_COUNT_MAX:
        raise InvalidSetting(
            f"container count must be 1 to {CONTAINER_COUNT_MAX}", count=settings.container_count
        )
    if settings.store_count is not None and not 1 <= settings.store_count <= STORE_COUNT_MAX:
        raise InvalidSetting(
            f"a cluster on one machine has 1 to {STORE_COUNT_MAX} stores",
            count=settings.store_count,
        )
    if not 1 <= settings.controller_count <= CONTROLLER_COUNT_MAX:
        raise InvalidSetting(
            f"a cluster on one machine has 1 to {CONTROLLER_COUNT_MAX} controllers",
            count=settings.controller_count,
        )
    if settings.nats_count not in (None, *NATS_COUNTS):
        raise InvalidSetting(
            "a cluster on one machine has 1 or 3 NATS servers", count=settings.nats_count
        )
    if settings.replication is not None:
        _check_replicas(settings, settings.replication)
    if settings.ephemeral and settings.log == "jetstream":
        raise InvalidSetting(
            "an ephemeral cluster keeps no logs, so none can be in JetStream",
            remedy="omit --log or --ephemeral",
        )
    if settings.ephemeral and (settings.store_count or 1) > 1:
        raise InvalidSetting(
            "several stores cannot share a tier 2 in memory",
            remedy="omit --spus or --ephemeral",
        )
    if settings.tier2_url:
        _check_tier2(settings)


def _check_replicas(settings: UpSettings, replication: int) -> None:
    if not 1 <= replication <= REPLICATION_MAX:
        raise InvalidSetting(
            f"a log has 1 to {REPLICATION_MAX} replicas", setting="replication", count=replication
        )
    if settings.log is not None:
        raise InvalidSetting(
            "logs with replicas are in the journals of several stores",
            remedy="omit --log or --replication",
            log=settings.log,
        )
    if settings.ephemeral:
        raise InvalidSetting(
            "an ephemeral cluster keeps no logs, so none has replicas",
            remedy="omit --replication or --ephemeral",
        )
    if settings.store_count is not None:
        _check_replication(replication, settings.store_count)


def _check_replication(replication: int, store_count: int) -> None:
    """Raises InvalidSetting if there are fewer stores than replicas of each log."""
    if store_count < replication:
        raise InvalidSetting(
            f"each log has {replication} replicas, which need as many stores",
            remedy=f"start the cluster with --spus {replication} or more",
            replication=replication,
            stores=store_count,
        )


def _check_tier2(settings: UpSettings) -> None:
    if settings.ephemeral:
        raise InvalidSetting(
            "an ephemeral cluster keeps nothing, not even in tier 2",
            remedy="omit --tier2 or --ephemeral",
        )
    if isinstance(parse_location(settings.tier2_url), MemoryLocation):
        raise InvalidSetting(
            "a durable cluster needs a durable tier 2",
            remedy="name a directory or a bucket, or use --ephemeral",
            tier2=settings.tier2_url,
        )
