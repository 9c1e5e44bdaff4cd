"""Builds a segment store from its settings and runs it: the only place that knows adapters.

Start: settings → data directory and journal (lock, fence, scan; in memory there is neither) →
tier 2 (probe) → NATS → number of containers → listen → announce → follow the placements. Stop: no
new requests, what was accepted goes to the journal, clients are told, tasks end, the journal is
closed. What ends the journal ends the store: the process exits with the journal's error and a new
one recovers.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from nats.aio.client import Client

from anabranch.common.adapters.chunk_url import open_chunk_storage
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.local_disk import prepare_directory
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError, InvalidSetting, Unavailable
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import IdSource, SystemIds
from anabranch.common.runtime.service import Lifetime
from anabranch.common.runtime.settings import parse_bind
from anabranch.common.storage.location import MemoryLocation, parse_location
from anabranch.common.storage.ports import ChunkStorage
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.choice import choose_commits
from anabranch.segstore.adapters.journal.journal import FILE_SIZE_BYTES_DEFAULT
from anabranch.segstore.adapters.journal.layout import create_small, read_small
from anabranch.segstore.adapters.journal.local import open_local_journal
from anabranch.segstore.adapters.journal.recovery import OpenReport
from anabranch.segstore.adapters.load_publisher import LoadPublisher
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.server.nats_door import NatsDoor
from anabranch.segstore.server.tcp import Served, TcpLimits, TcpServer
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.assignments import Assignments
from anabranch.segstore.shell.cache import Cache
from anabranch.segstore.shell.catch_up import new_catch_up
from anabranch.segstore.shell.flusher import FlushLimits, back_off_s
from anabranch.segstore.shell.journal_watch import JournalWatch
from anabranch.segstore.shell.lifecycle import ContainerKeeper, Tiers
from anabranch.segstore.shell.load import LoadReporter
from anabranch.segstore.shell.metrics import StoreMetrics
from anabranch.segstore.shell.placements import Placements
from anabranch.segstore.shell.registration import Announcement, container_count
from anabranch.segstore.shell.residency import ResidencyLimits
from anabranch.segstore.shell.store import Store
from anabranch.segstore.shell.surroundings import Surroundings
from anabranch.segstore.shell.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.tier2 import TierTwoLimits
from anabranch.segstore.shell.tier2_open import OpenContainerTierTwo
from anabranch.segstore.shell.tracing import Commits, StoreTracing

NODE_ID_FILE = "node-id"
JOURNAL_DIRECTORY = "journal"
JOURNAL_FILES_MIN = 4
"""What the journal may take whatever is set: fewer files could never be let go in time."""
TIER_TWO_CALL_S_MAX = 30.0
DRAIN_S_MAX = 5.0
DOOR_CLOSE_S_MAX = 1.0
_DRAIN_POLL_S = 0.01
_DOOR_RETRY_S = 1.0
_CANCEL_AGAIN_S = 0.1
_BUCKETS = (subjects.NODES_BUCKET, subjects.PLACEMENTS_BUCKET, subjects.CLUSTER_BUCKET)

_log = structlog.get_logger(__name__)


async def serve(settings: SegstoreSettings, lifetime: Lifetime) -> None:
    """Run the store until `lifetime` says stop.

    Raises DirectoryInUse, DirectoryUnusable, FormatTooNew, InvalidSetting, PortInUse, Corrupt
    errors, and what ended the journal while serving.
    """
    check_settings(settings)  # first: a URL with a secret must not be logged
    clock, ids = SystemClock(), SystemIds()
    metrics = StoreMetrics(lifetime.telemetry.metrics)
    commits = Commits(metrics, clock, clock.now_ns)
    _log.info("settings", **settings.describe())
    with _opened_log(settings, clock, ids, commits) as log:
        keeps = settings.journal == "disk"
        node_id = _node_id(settings.data_dir, ids) if keeps else ids.new_id()
        storage = await open_chunk_storage(
            settings.tier2,
            ids,
            node_id,
            limit_s=TIER_TWO_CALL_S_MAX,
            options=settings.tier2_options,
        )
        client = await _connect(settings.nats_url, clock, lifetime)
        if client is None:
            return
        try:
            lifetime.set_ready("nats", True)
            parts = _Parts(
                settings=settings,
                lifetime=lifetime,
                clock=clock,
                ids=ids,
                log=log,
                node_id=node_id,
                session=ids.new_id(),
                client=client,
                storage=storage,
                metrics=metrics,
                commits=commits,
                tracing=_tracing(lifetime, commits),
            )
            await _Process(parts).run()
        finally:
            await close_nats(client)


def check_settings(settings: SegstoreSettings) -> None:
    """What can be told without touching anything. Raises InvalidSetting."""
    in_memory = isinstance(parse_location(settings.tier2), MemoryLocation)
    if in_memory != (settings.journal == "memory"):
        raise InvalidSetting(
            "journal and tier 2 must both be kept, or both be in memory",
            remedy="for a store that keeps nothing set journal=memory and tier2_url=memory:",
            journal=settings.journal,
            tier2=settings.tier2,
        )
    if in_memory and (settings.data_dir.expanduser() / JOURNAL_DIRECTORY).exists():
        raise InvalidSetting(
            "the data directory holds a journal, which a store in memory would not read",
            remedy="set journal=disk, or name another directory",
            data_dir=str(settings.data_dir),
        )


def throttle_limits(settings: SegstoreSettings) -> ThrottleLimits:
    """One setting bounds what tier 2 lacks, and with it what a start has to read."""
    untiered = settings.untiered_bytes_max
    return ThrottleLimits(
        untiered=untiered, journal=max(untiered, JOURNAL_FILES_MIN * FILE_SIZE_BYTES_DEFAULT)
    )


@contextmanager
def _opened_log(
    settings: SegstoreSettings, clock: Clock, ids: IdSource, commits: Commits
) -> Iterator[DurableDataLog]:
    """The store's log, open for as long as the block lasts."""
    loop = asyncio.get_running_loop()
    schedule = loop.call_soon
    if settings.journal == "memory":
        _log.warning(
            "this store keeps nothing: what is acknowledged is lost when it ends",
            remedy="set journal=disk for data that is to be kept",
        )
        log = MemoryLog(MemoryFrames(ids.new_id()), schedule)
        try:
            yield log
        finally:
            log.close()
        return
    journal = open_local_journal(
        settings.data_dir / JOURNAL_DIRECTORY,
        ids=ids,
        schedule=schedule,
        take_over=settings.take_over,
        watch=commits,
        choose_commits=choose_commits(settings.journal_writer, clock, loop),
    )
    try:
        _log_opening(journal.journal.report)
        yield journal.journal
    finally:
        journal.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What exists before the store serves."""

    settings: SegstoreSettings
    lifetime: Lifetime
    clock: Clock
    ids: IdSource
    log: DurableDataLog
    node_id: str
    session: str
    client: Client
    storage: ChunkStorage
    metrics: StoreMetrics
    commits: Commits
    tracing: StoreTracing | None

    def objects(self, bucket: str) -> JetStreamObjectStore:
        return JetStreamObjectStore(self.client, self.clock, bucket)


class _Process:
    """The store while it serves: its tasks and how they end."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._end = asyncio.Event()
        self._failure: AnabranchError | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until asked to stop or until the journal ends; raises what ended it."""
        parts = self._parts
        parts.lifetime.set_ready("containers", False, "waiting for the controller")
        async with asyncio.TaskGroup() as group:
            stopper = group.create_task(self._wait_for_stop())
            count = await self._container_count(group)
            if count is not None:
                cache = Cache(parts.settings.cache_bytes)
                catch_up = new_catch_up(cache, parts.clock, _call_later)
                store = Store(count, self._changed.set, parts.metrics, catch_up)
                await self._serve(store, cache, group)
            stopper.cancel()
        if self._failure is not None:
            raise self._failure

    async def _wait_for_stop(self) -> None:
        await self._parts.lifetime.wait_for_stop()
        self._end.set()

    async def _container_count(self, group: asyncio.TaskGroup) -> int | None:
        """The number of containers; None if the store is to stop first."""
        parts = self._parts
        asking = group.create_task(_learn_count(parts))
        ending = group.create_task(self._end.wait())
        await asyncio.wait((asking, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not asking.done():
            asking.cancel()
            return None
        return asking.result()

    async def _serve(self, store: Store, cache: Cache, group: asyncio.TaskGroup) -> None:
        parts, settings = self._parts, self._parts.settings
        throttle = Throttle(throttle_limits(settings), lambda: parts.log.live_size)
        spawned: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[None, None, None]) -> None:
            task = group.create_task(work)
            spawned.add(task)
            task.add_done_callback(spawned.discard)

        served = Served(
            store,
            throttle,
            parts.clock,
            _call_later,
            spawn,
            parts.node_id,
            parts.ids,
            TcpLimits(),
        )
        server = TcpServer(served)
        endpoint = _advertised(settings, await server.start(*parse_bind(settings.bind)))
        node = NodeRecord(parts.node_id, endpoint, parts.log.journal_id, parts.session)
        nodes = parts.objects(subjects.NODES_BUCKET)
        announcement = Announcement(nodes, node, parts.clock, self._fail)
        _watch_metrics(parts, throttle, cache, store, server)
        door = NatsDoor(parts.client, ControlDesk(store, spawn), throttle)
        tasks = [
            group.create_task(announcement.run()),
            group.create_task(self._assignments(store, throttle, cache).run()),
            group.create_task(self._follow(store, door)),
            group.create_task(_load_reporter(parts, store).run()),
            group.create_task(_journal_watch(parts, throttle, store).run()),
        ]
        _log.info("the store listens", node=parts.node_id, endpoint=str(endpoint))
        await self._end.wait()
        await _drain(store, server, parts.clock)
        await _close_door(door, parts.clock)
        await _end_tasks({*tasks, *spawned})
        if self._failure is None:
            await announcement.end()

    def _assignments(self, store: Store, throttle: Throttle, cache: Cache) -> Assignments:
        parts, settings = self._parts, self._parts.settings
        objects = parts.objects(subjects.PLACEMENTS_BUCKET)
        placements = Placements(objects, parts.node_id)
        around = Surroundings(
            parts.clock, cache, throttle, _call_later, parts.metrics, parts.tracing,
            ResidencyLimits(
                settings.segments_in_memory, settings.writer_expiry_s, settings.tombstone_s
            ),
        )  # fmt: skip
        tier_two_limits = TierTwoLimits(
            gc_grace_s=settings.gc_grace_s, tombstone_s=settings.tombstone_s
        )
        open_tier_two = OpenContainerTierTwo(parts.storage, parts.ids, parts.clock, tier_two_limits)
        tiers = Tiers(parts.log, open_tier_two, placements, parts.ids)
        limits = FlushLimits(bytes_max=settings.flush_bytes, age_s_max=settings.flush_age_s)

        def new_keeper(container: int) -> ContainerKeeper:
            return ContainerKeeper(
                container,
                store=store,
                tiers=tiers,
                around=around,
                limits=limits,
                store_failed=self._fail,
            )

        return Assignments(
            objects=objects,
            placements=placements,
            store=store,
            clock=parts.clock,
            new_keeper=new_keeper,
        )

    def _fail(self, error: AnabranchError) -> None:
        """The journal ended, or the store was replaced: nothing more can be acknowledged here."""
        if self._failure is None and not self._end.is_set():
            self._failure = error
        self._end.set()

    async def _follow(self, store: Store, door: NatsDoor) -> None:
        """Keep readiness and the NATS door in line with the containers."""
        lifetime = self._parts.lifetime
        while not store.stopping:
            closed = sorted(store.assigned - store.open_numbers)
            ready = store.all_placed and not closed
            reason = f"not open: {closed}" if closed else "not all containers are placed yet"
            lifetime.set_ready("containers", ready, "" if ready else reason)
            if not await door.serve(store.assigned):
                await self._parts.clock.sleep(_DOOR_RETRY_S)
                continue
            await self._changed.wait()
            self._changed.clear()


def _load_reporter(parts: _Parts, store: Store) -> LoadReporter:
    return LoadReporter(
        store,
        LoadPublisher(parts.client, parts.node_id),
        node_id=parts.node_id,
        session=parts.session,
        period_s=parts.settings.load_period_s,
        clock=parts.clock,
        metrics=parts.metrics,
    )


def _watch_metrics(
    parts: _Parts, throttle: Throttle, cache: Cache, store: Store, server: TcpServer
) -> None:
    parts.metrics.watch(
        pending=lambda: throttle.pending,
        untiered=lambda: throttle.untiered,
        cached=lambda: {("tail",): cache.used, ("read-ahead",): cache.lent},
        unsent=lambda: store.catch_up.outgoing.used,
        containers=lambda: len(store.open_numbers),
        states=store.count_states,
        resident=lambda: sum(
            opened.container.residency.count for opened in store.open_containers()
        ),
        connections=lambda: server.connection_count,
        granules=lambda: store.catch_up.ahead.outcomes,
    )
    parts.metrics.watch_journal(
        live_size=lambda: parts.log.live_size,
        outstanding_s=parts.commits.outstanding_s,
        ratios=throttle.ratios,
        refused=throttle.refused,
    )


def _journal_watch(parts: _Parts, throttle: Throttle, store: Store) -> JournalWatch:
    return JournalWatch(
        parts.log,
        store,
        throttle,
        clock=parts.clock,
        bytes_max=throttle_limits(parts.settings).journal,
        outstanding_s=parts.commits.outstanding_s,
        set_ready=parts.lifetime.set_ready,
    )


def _tracing(lifetime: Lifetime, commits: Commits) -> StoreTracing | None:
    tracer = lifetime.telemetry.tracer
    return StoreTracing(tracer, commits) if tracer is not None else None


async def _learn_count(parts: _Parts) -> int:
    for bucket in _BUCKETS:
        await _create_bucket(parts, bucket)
    return await container_count(parts.objects(subjects.CLUSTER_BUCKET), parts.clock)


async def _create_bucket(parts: _Parts, bucket: str) -> None:
    failures = 0
    while True:
        try:
            await create_bucket(parts.client, bucket)
            return
        except Unavailable as error:
            failures += 1
            _log.warning("a bucket cannot be created yet", bucket=bucket, error=str(error))
            await parts.clock.sleep(back_off_s(failures))


async def _drain(store: Store, server: TcpServer, clock: Clock) -> None:
    """No new requests; wait until what was accepted is in the journal and answered."""
    store.stopping = True
    server.stop_accepting()
    containers = [opened.container for opened in store.open_containers()]
    for container in containers:
        container.stop_accepting()
    deadline = clock.monotonic() + DRAIN_S_MAX
    while clock.monotonic() < deadline and not all(found.idle for found in containers):
        await clock.sleep(_DRAIN_POLL_S)
    server.close()


async def _close_door(door: NatsDoor, clock: Clock) -> None:
    """Tell who waits that the store stops; let go the answers that are on their way."""
    door.stop_reads(Unavailable("the store stops"))
    deadline = clock.monotonic() + DOOR_CLOSE_S_MAX
    while clock.monotonic() < deadline and not door.idle:
        await clock.sleep(_DRAIN_POLL_S)


async def _end_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel until all have ended.

    Once is not enough: a wait with a timeout that is answered in the same moment swallows the
    cancellation (CPython before 3.12).
    """
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)


async def _connect(url: str, clock: Clock, lifetime: Lifetime) -> Client | None:
    """A NATS connection, as soon as a server answers; None if the store is to stop first."""
    failures = 0
    while not lifetime.stopping:
        try:
            return await connect_nats(url, "segstore")
        except Unavailable as error:
            failures += 1
            _log.warning("NATS does not answer yet", error=str(error), remedy=error.remedy)
            lifetime.set_ready("nats", False, str(error))
            await clock.sleep(min(2.0, back_off_s(failures)))
    return None


def _call_later(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    return asyncio.get_running_loop().call_later(seconds, callback).cancel


def _node_id(data_dir: Path, ids: IdSource) -> str:
    """The node's id: drawn at the first start, kept in the data directory."""
    disk = prepare_directory(data_dir)
    if not disk.exists(NODE_ID_FILE):
        create_small(disk, NODE_ID_FILE, [ids.new_id()], ids.new_id())
    return read_small(disk, NODE_ID_FILE)[0]


def _advertised(settings: SegstoreSettings, bound: Endpoint) -> Endpoint:
    """The endpoint that clients are told; port 0 stands for the one that is listened on."""
    if not settings.advertise:
        return bound
    host, port = parse_bind(settings.advertise)
    return Endpoint(host, port or bound.port)


def _log_opening(report: OpenReport) -> None:
    _log.info(
        "journal open",
        journal_epoch=report.journal_epoch,
        files=report.file_count,
        frames=report.frame_count,
    )
    for tail in report.torn:
        _log.warning(
            "the journal's last write is incomplete and is left out; a copy is kept",
            remedy="expected after a crash, and not acknowledged then; else check the disk",
            file=layout.journal_file(tail.file_id),
            position=tail.position,
            size=tail.size,
            copy=layout.torn_file(tail.file_id, tail.position),
        )
    for orphan in report.orphans:
        _log.warning("a file of a former owner is set aside and can be deleted", file=orphan)
