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
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from anabranch.cli.up import plan
from anabranch.cli.up.binaries import find_programs
from anabranch.cli.up.choices import Wish
from anabranch.cli.up.credentials import kept_credentials
from anabranch.cli.up.directory import STORES, DataDirectory, Endpoints, claim, numbered
from anabranch.cli.up.parts import (
    CONTROLLER,
    ClusterPlan,
    NatsPorts,
    PartSpec,
    cluster_parts,
)
from anabranch.cli.up.ports import choose_port
from anabranch.cli.up.provisioning import ProcessProvisioner, ensure_main, keep_provisioned
from anabranch.cli.up.settings import STORE_COUNT_MAX, UpSettings, check, check_replication
from anabranch.cli.up.stores import SEGSTORE, KnownStores, StoreSpec, known_in, stores_at_start
from anabranch.cli.up.supervisor import States, Supervisor
from anabranch.client import connect
from anabranch.common.errors import DirectoryUnusable, Unavailable
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import Rng, new_password, system_rng
from anabranch.common.runtime.nats_target import NatsTarget

READY_SECONDS_MAX = 90.0
REDIS_SOCKET = "redis.sock"
PROVISIONER_ENDS_S_MAX = 5.0
SOCKET_PATH_SIZE_MAX = 100
"""Bytes; the kernel's limit is 107."""
SHORT_PATH_SIZE_MAX = 50


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
    check(settings)
    with (
        _root(settings) as root,
        claim(root, _wish(settings)) as directory,
        place_for_sockets(directory.folder("run")) as sockets,
    ):
        known = _known_stores(directory)
        stores = _stores_at_start(settings, known)
        check_replication(directory.choices.replication, len(stores))
        ports = _Ports(system_rng())
        drawn = await _plan(settings, directory, sockets, ports, stores)
        endpoints = Endpoints(drawn.nats_url, drawn.segstore_endpoints, drawn.gateway_url)
        cluster = EmbeddedCluster(directory, endpoints, watch)
        cluster.redis_url = drawn.redis_url
        supervisor = Supervisor(parts(drawn), SystemClock(), cluster.changed)
        cluster.supervise(supervisor)
        provision: Callable[[], Coroutine[None, None, None]] | None = None
        if not settings.ephemeral:
            managed = tuple(store for store in stores if store.name)
            cluster.note_stores(KnownStores(known.custom, managed), drawn.segstore_endpoints)
            provisioner = ProcessProvisioner(
                drawn, known, supervisor, ports.take, cluster.note_stores
            )
            provision = partial(_provision, cluster, provisioner, known, stores, settings)
        try:
            async with _supervised(supervisor, provision):
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
    supervisor: Supervisor, provision: Callable[[], Coroutine[None, None, None]] | None
) -> AsyncIterator[None]:
    """Run the supervisor, and the provisioner, beside the block. After the block, cancel the
    provisioner, and stop the supervisor in order."""
    down = asyncio.Event()

    async def run() -> None:
        try:
            await supervisor.run()
        finally:
            down.set()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run())
            provisioning = group.create_task(provision()) if provision is not None else None
            try:
                yield
            finally:
                if provisioning is not None:  # its client closes while NATS still runs
                    provisioning.cancel()
                    await asyncio.wait({provisioning}, timeout=PROVISIONER_ENDS_S_MAX)
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
