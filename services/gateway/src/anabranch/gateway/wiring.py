"""Builds the gateway from its settings and runs its parts until the process must stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from anabranch.client import Client, connect
from anabranch.client.groups.reader import GroupReader, GroupReaderSettings
from anabranch.client.settings import ReaderSettings
from anabranch.common.contracts.tunnel import MESSAGE_SIZE_BYTES_MAX
from anabranch.common.errors import AnabranchError, PortInUse
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.health import PartHealth
from anabranch.common.runtime.ids import IdSource, SystemIds, system_rng
from anabranch.common.runtime.service import Lifetime
from anabranch.common.runtime.telemetry import Telemetry
from anabranch.common.workflow.containment import Contained, Containment
from anabranch.gateway.bounds.changes import ChangeLimits, Changes
from anabranch.gateway.bounds.leases import LeaseLimits
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.events.appends import Appends
from anabranch.gateway.events.destinations import open_writer
from anabranch.gateway.events.held_reader import FeedTimes
from anabranch.gateway.events.held_readers import HeldReaderLimits, HeldReaders
from anabranch.gateway.events.reads import Reads
from anabranch.gateway.events.writers import OpenWriters
from anabranch.gateway.http.app import build_app
from anabranch.gateway.http.edge.connections import ConnectionLimits, Connections, protocol_of
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.http.edge.used_keys import UsedKeys
from anabranch.gateway.http.edge.websockets import WebSocketConnection
from anabranch.gateway.http.routes.parts import Parts
from anabranch.gateway.settings import MIB, Settings
from anabranch.gateway.tables.open_tables import OpenTables, open_table
from anabranch.gateway.tables.reads import EntryReads
from anabranch.gateway.tables.updates import Updates
from anabranch.gateway.topics.producers import OpenProducers, open_producer
from anabranch.gateway.topics.produces import Produces
from anabranch.gateway.topics.reads import RecordReads
from anabranch.gateway.tunnels.stores import KnownStores

PROBE_PAUSE_S = 2.0
PROBE_PAUSE_FIRST_S = 0.2
DRAIN_S = 8
LEAVE_S = 2.0
"""After that, readers of groups have this long to leave their groups."""
STORE_S = 4.0
"""After that, pending changes have this long. The three together are below the grace."""
STORES_TIMEOUT_S = 2.0
"""A client waits 5 s for a tunnel; within this time the gateway must also reach the store."""
BACKLOG = 2048
READ_AHEAD_BYTES = 4 * MIB
"""The bytes that each reader of a group reads ahead."""

_log = structlog.get_logger(__name__)


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process's lifetime belongs to `run_service`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_gateway(settings: Settings, lifetime: Lifetime) -> None:
    """Run until the process must stop. Raises Unavailable (no NATS), Unauthorized, PortInUse."""
    lifetime.set_ready("http", False, "starting")
    lifetime.set_ready("controller", False, "waiting for NATS")
    with contextlib.closing(listen(settings.bind)) as listener:
        client = None
        async with lifetime.until_stop():
            client = await connect(settings.nats, name="gateway", tracer=lifetime.telemetry.tracer)
        if client is not None:
            async with client:
                await _run_on(client, settings, lifetime, listener)


async def _run_on(
    client: Client, settings: Settings, lifetime: Lifetime, listener: socket.socket
) -> None:
    clock = SystemClock()
    async with asyncio.TaskGroup() as group:
        parts = build(
            settings,
            client,
            clock,
            group,
            telemetry=lifetime.telemetry,
            health=lambda: lifetime.parts,
            stopping=lambda: lifetime.stopping,
        )
        containment = Containment(clock, system_rng(), partial(_on_defect, lifetime))
        keep = containment.keep
        background = [
            group.create_task(keep("open writers", parts.writers.serve)),
            group.create_task(keep("open tables", parts.tables.serve)),
            group.create_task(keep("open producers", parts.producers.serve)),
            group.create_task(keep("readers of groups", parts.group_readers.serve)),
            group.create_task(keep("probe", partial(_probe, client, clock, lifetime))),
        ]
        await serve(build_app(parts, clock), listener, lifetime, settings, parts.metrics)
        await parts.group_readers.end(LEAVE_S)
        await parts.changes.end(STORE_S)
        for task in background:
            task.cancel()


def _on_defect(lifetime: Lifetime, found: Contained, _error: BaseException) -> None:
    told = f"{found.part} of {found.subject}: {found.error}"
    lifetime.set_ready("defects", True, told)


def build(
    settings: Settings,
    client: Client,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    *,
    telemetry: Telemetry,
    health: Callable[[], Mapping[str, PartHealth]],
    stopping: Callable[[], bool],
) -> Parts:
    """Build the gateway's parts on an open client. The caller runs `serve` of its writers, tables
    and group readers."""
    writers = _writers(settings, client, clock, tasks)
    changes, places = _changes(settings, clock, tasks), ReadPlaces(settings.readers_max)
    tables = _tables(settings, client, clock, tasks)
    producers = _producers(settings, client, clock, tasks)
    ids = SystemIds()
    group_readers = _group_readers(settings, client, clock, ids, stopping)
    size_bytes_max, timeout_s = settings.read_size_bytes_max, settings.request_timeout_s
    return Parts(
        settings=settings,
        client=client,
        writers=writers,
        changes=changes,
        places=places,
        appends=Appends(writers, changes),
        reads=_reads(settings, client, clock, places, tasks, stopping=stopping),
        tables=tables,
        updates=Updates(tables, changes),
        entries=EntryReads(
            tables, places, clock, size_bytes_max=size_bytes_max, timeout_s=timeout_s
        ),
        producers=producers,
        produces=Produces(producers, changes),
        record_reads=RecordReads(
            client,
            clock,
            places,
            size_bytes_max=size_bytes_max,
            timeout_s=timeout_s,
            stopping=stopping,
        ),
        group_readers=group_readers,
        ids=ids,
        keys=UsedKeys(clock, settings.answers_max, settings.answer_age_s_max),
        metrics=GatewayMetrics(
            telemetry.metrics, *_open(writers, tables, producers), group_readers.by_state
        ),
        stores=KnownStores(partial(_stores, client), clock),
        tracer=telemetry.tracer,
        health=health,
    )


def _open(
    writers: OpenWriters, tables: OpenTables, producers: OpenProducers
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], int]]:
    """How many of each are open."""
    return (lambda: len(writers)), (lambda: len(tables)), (lambda: len(producers))


def _changes(settings: Settings, clock: Clock, tasks: asyncio.TaskGroup) -> Changes:
    limits = ChangeLimits(
        timeout_s=settings.request_timeout_s,
        pending_size_bytes_max=settings.pending_size_bytes_max,
        answers_max=settings.answers_max,
        answer_age_s_max=settings.answer_age_s_max,
    )
    return Changes(clock, tasks, limits)


def _writers(
    settings: Settings, client: Client, clock: Clock, tasks: asyncio.TaskGroup
) -> OpenWriters:
    things = "writers of streams and transactions"
    limits = LeaseLimits(things, settings.writers_max, settings.writer_idle_s)
    return OpenWriters(partial(open_writer, client), clock, tasks, limits)


def _reads(
    settings: Settings,
    client: Client,
    clock: Clock,
    places: ReadPlaces,
    tasks: asyncio.TaskGroup,
    *,
    stopping: Callable[[], bool],
) -> Reads:
    return Reads(
        client,
        clock,
        places,
        rng=system_rng(),
        tasks=tasks,
        size_bytes_max=settings.read_size_bytes_max,
        timeout_s=settings.request_timeout_s,
        stopping=stopping,
    )


def _tables(
    settings: Settings, client: Client, clock: Clock, tasks: asyncio.TaskGroup
) -> OpenTables:
    idle_s, age_s_max = settings.writer_idle_s, settings.table_age_s_max
    limits = LeaseLimits("key-value tables", settings.tables_max, idle_s, age_s_max)
    return OpenTables(partial(open_table, client), clock, tasks, limits)


def _producers(
    settings: Settings, client: Client, clock: Clock, tasks: asyncio.TaskGroup
) -> OpenProducers:
    limits = LeaseLimits("producers of topics", settings.writers_max, settings.writer_idle_s)
    return OpenProducers(partial(open_producer, client), clock, tasks, limits)


def _group_readers(
    settings: Settings, client: Client, clock: Clock, ids: IdSource, stopping: Callable[[], bool]
) -> HeldReaders:
    reading = ReaderSettings(read_ahead_bytes=READ_AHEAD_BYTES, retry_timeout_s=20.0)
    how = GroupReaderSettings(reading=reading, acks="explicit")

    def open_reader(group: str, reader_id: str) -> GroupReader:
        return client.reader_group(group).reader(reader_id, how)

    limits = HeldReaderLimits(
        readers_max=settings.group_readers_max,
        unacknowledged_events_max=settings.unacknowledged_events_max,
        unacknowledged_size_bytes_max=settings.unacknowledged_size_bytes_max,
        grace_s=settings.reader_grace_s,
        open_timeout_s=settings.request_timeout_s,
        times=FeedTimes(settings.heartbeat_s, settings.ack_wait_s),
    )
    return HeldReaders(open_reader, clock=clock, ids=ids, limits=limits, stopping=stopping)


async def _stores(client: Client) -> frozenset[Endpoint]:
    """The addresses of the stores. Raises Unavailable."""
    found = [one async for one in client.stores.list(timeout_s=STORES_TIMEOUT_S)]
    return frozenset(Endpoint(one.host, one.port) for one in found)


def listen(bind: str) -> socket.socket:
    """Open a listening socket at ``host:port``. Raises PortInUse, InvalidSetting."""
    host, port = parse_bind(bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PortInUse(
            "cannot listen for HTTP", host=host, port=port, cause=error.strerror or str(error)
        ) from error


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    lifetime: Lifetime,
    settings: Settings,
    metrics: GatewayMetrics,
) -> None:
    """Serve until the process must stop; open requests then have `DRAIN_S` to end."""
    limits = ConnectionLimits(
        settings.connections_max, settings.connections_per_peer_max, settings.header_timeout_s
    )
    config = uvicorn.Config(
        app,
        http=protocol_of(Connections(limits, metrics)),
        ws=WebSocketConnection,
        ws_max_size=MESSAGE_SIZE_BYTES_MAX,
        ws_ping_interval=None,  # The store protocol has its own heartbeats.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=cast(int, settings.keep_alive_s),  # uvicorn also takes a float
        timeout_graceful_shutdown=DRAIN_S,
        backlog=BACKLOG,
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        _log.info("http is served", host=host, port=port)
        lifetime.set_ready("http", True)
        await lifetime.wait_for_stop()
        server.should_exit = True
        await serving


async def _probe(client: Client, clock: Clock, lifetime: Lifetime) -> None:
    """Report periodically whether a controller answers."""
    while True:
        pause_s = PROBE_PAUSE_S
        try:
            await client.scopes.page(page_size=1)
            lifetime.set_ready("controller", True)
        except AnabranchError as error:
            lifetime.set_ready("controller", False, error.message)
            pause_s = PROBE_PAUSE_FIRST_S
        await clock.sleep(pause_s)
