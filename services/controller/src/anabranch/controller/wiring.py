"""Builds the controller from its settings and runs its parts until it is asked to stop."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import nats.errors
import structlog
from nats.aio.client import Client

from anabranch.common.adapters.chunk_transient import shared_location, transient_chunk_storage
from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.nats_connection import close_nats, connect_nats, server_id
from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.model.cluster import ControllerRecord
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import IdSource, Rng, SystemIds, system_rng
from anabranch.common.runtime.service import Lifetime
from anabranch.common.workflow.runner import Runner, Workflow
from anabranch.controller.adapters.command_queue import CommandQueue
from anabranch.controller.adapters.command_sender import NatsCommandSender
from anabranch.controller.adapters.load_reports import LoadReportListener
from anabranch.controller.adapters.nats_monitor import jetstream_status
from anabranch.controller.adapters.parked_commands import (
    JetStreamParkedCommands,
    create_parked_stream,
)
from anabranch.controller.adapters.peers import Peers
from anabranch.controller.adapters.query_server import QueryServer
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.cluster.balancer import Balancer
from anabranch.controller.cluster.buckets import LEASE_S, Buckets, Neighbourhood
from anabranch.controller.cluster.constants import settle_constants
from anabranch.controller.cluster.heads import HeadWatch
from anabranch.controller.cluster.leadership import Leadership
from anabranch.controller.cluster.membership import MemberRecords, Membership
from anabranch.controller.cluster.placement_changes import PlacementChanges
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.cluster.rates import Rates
from anabranch.controller.domain.durability import check_synced
from anabranch.controller.domain.liveness import Kind
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeEvent, ScopeStep
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.handlers.cluster_queries import ClusterDesk
from anabranch.controller.handlers.commands import CommandDesk, handle_command
from anabranch.controller.handlers.queries import QUERIES, QueryDesk, answer_query
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.export_streams import StreamExporter
from anabranch.controller.periodic.trim_events import EventTrimmer
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.load_reports import LoadReports
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.settings import Settings
from anabranch.controller.workflows import (
    archive_history,
    create_stream,
    delete_scope,
    delete_scope_recursively,
    delete_stream,
    scale_stream,
    seal_stream,
    truncate_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer, observed

BUCKETS = (
    subjects.NODES_BUCKET,
    subjects.CONTROLLERS_BUCKET,
    subjects.PLACEMENTS_BUCKET,
    subjects.CLUSTER_BUCKET,
)
SWEEP_S = 5.0
CATCH_UP_PAUSE_S = 0.2
LEASE_PREFIX = "anabranch"
TIER_TWO_CALL_S_MAX = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What this controller knows and does of the cluster."""

    members: Membership
    leadership: Leadership
    placements: Placements
    balancer: Balancer
    peers: Peers


@dataclass(frozen=True, slots=True)
class Controller:
    """The parts of a running controller."""

    client: Client
    clock: Clock
    mirror: Mirror
    listener: FoldListener
    scope_runner: Runner[Scope, ScopeEvent, ScopeStep]
    stream_runner: Runner[Stream, StreamEvent, StreamStep]
    cluster: Cluster
    exporter: StreamExporter | None
    trimmer: EventTrimmer
    heads: HeadWatch
    load: LoadReportListener
    queries: QueryServer
    commands: CommandQueue
    buckets: Buckets

    def buckets_changed(self, taken: frozenset[int], lost: frozenset[int]) -> None:
        """Take up the work of new buckets, and none any more of lost ones."""
        _log.info("buckets changed", taken=sorted(taken), lost=sorted(lost))
        self.commands.own(self.buckets.owned)
        self.scope_runner.let_go()
        self.stream_runner.let_go()
        if taken:
            self.sweep()

    def sweep(self) -> None:
        """Wake the runners for everything that has work; they know what is theirs."""
        for subject in self.mirror.scopes_with_work():
            self.scope_runner.wake(subject)
        for subject in self.mirror.streams_with_work():
            self.stream_runner.wake(subject)


async def run_controller(settings: Settings, lifetime: Lifetime) -> None:
    """Run until asked to stop.

    Raises Unavailable (no NATS), MetadataNotSynced, StreamRewound, InvalidSetting (other
    constants).
    """
    clock, ids, rng = SystemClock(), SystemIds(), system_rng()
    telemetry = lifetime.telemetry
    observer = Observer(ControllerMetrics(telemetry.metrics, clock), telemetry.tracer)
    if settings.tier2_url:
        shared_location(settings.tier2_url)  # wrong for ever if it is wrong now
    client = await connect_nats(settings.nats_url, "controller")
    try:
        await _require_durable_metadata(settings, client, clock)
        await create_streams(client)
        await create_parked_stream(client)
        for bucket in BUCKETS:
            await create_bucket(client, bucket)
        constants = JetStreamObjectStore(client, clock, subjects.CLUSTER_BUCKET)
        await settle_constants(constants, settings.container_count)
        controller = build(settings, client, clock, ids, rng, observer=observer)
        _watch(controller, observer.metrics)
        await controller.heads.check(accept=settings.accept_rewound)
        await _serve(controller, lifetime)
        await controller.cluster.members.leave()
    finally:
        await close_nats(client)


async def _require_durable_metadata(settings: Settings, client: Client, clock: Clock) -> None:
    if settings.nats_sync == "unchecked":
        _log.warning("nobody checks whether the NATS server keeps what it acknowledges")
        return
    status = await jetstream_status(settings.nats_monitor_url, clock)
    check_synced(status, await server_id(client))


def _watch(controller: Controller, metrics: ControllerMetrics) -> None:
    runners = (controller.scope_runner, controller.stream_runner)
    metrics.watch(
        active=lambda: sum(runner.active_count for runner in runners),
        failing=lambda: sum(runner.failing_count for runner in runners),
        folds=lambda: controller.mirror.folds,
    )
    buckets = controller.buckets
    metrics.watch_buckets(
        owned=lambda: len(buckets.owned),
        by_rendezvous=lambda: int(buckets.by_rendezvous),
        changes=lambda: {("taken",): buckets.taken_count, ("lost",): buckets.lost_count},
        parked=lambda: controller.commands.parked_count,
    )
    members = controller.cluster.members
    metrics.watch_cluster(
        members=partial(_count_members, members),
        holds=partial(_holds, members),
        leads=lambda: int(controller.cluster.leadership.leading),
    )


def _count_members(members: Membership) -> Mapping[tuple[str, ...], float]:
    return Counter(
        (kind.value, "live" if found.live else "down")
        for kind in Kind
        for _, found in members.standings(kind)
    )


def _holds(members: Membership) -> Mapping[tuple[str, ...], float]:
    hold = members.hold
    blind = hold is not None and hold.blind
    return {("blind",): int(blind), ("losses",): int(hold is not None and not blind)}


def build(
    settings: Settings,
    client: Client,
    clock: Clock,
    ids: IdSource,
    rng: Rng,
    *,
    observer: Observer,
) -> Controller:
    """The controller's parts, connected but not started."""
    store = JetStreamEventStore(client, clock)
    scopes = Repository(store, SCOPE, ids, lambda known: mirror.known_scope(known))  # noqa: PLW0108
    streams = Repository(store, STREAM, ids, lambda known: mirror.known_stream(known))  # noqa: PLW0108
    parked = JetStreamParkedCommands(client)
    listener = FoldListener(
        lambda subject: _wake(controller, subject), lambda subject: _tell(controller, subject)
    )
    mirror = Mirror(store, scopes, streams, listener)
    cluster = _cluster(settings, client, clock, ids)
    buckets = _buckets(settings, cluster.members, clock, rng)
    histories = Histories(HistoryChunks(store, ids))
    context = WorkContext(
        NatsSegmentStores(client, settings.container_count),
        scopes,
        mirror,
        histories,
        NatsCommandSender(client),
        Gates(store, ids),
    )
    placements = cluster.placements
    placed = JetStreamObjectStore(client, clock, subjects.PLACEMENTS_BUCKET)
    changes = PlacementChanges(placed, placements, settings.container_count, clock)
    command_desk = CommandDesk(
        scopes, streams, clock, partial(_reply, client), observer, histories=histories
    )
    cluster_desk = _cluster_desk(cluster, buckets)
    reports = LoadReports(clock)
    rates = Rates(placements, reports, settings.container_count)
    query_desk = QueryDesk(
        mirror,
        placements.locate,
        placements.list_containers,
        observer,
        rates.rate,
        cluster_desk.list_nodes,
        changes.perform,
        parked,
        cluster_desk,
    )
    controller = Controller(
        client=client,
        clock=clock,
        mirror=mirror,
        listener=listener,
        scope_runner=Runner(
            _scope_workflow(scopes, context, observer), clock, rng, buckets.owns_aggregate
        ),
        stream_runner=Runner(
            _stream_workflow(streams, context, observer), clock, rng, buckets.owns_aggregate
        ),
        cluster=cluster,
        exporter=_exporter(settings, mirror, clock, ids, rng),
        trimmer=_trimmer(settings, store, mirror, clock),
        heads=_head_watch(client, store, mirror, clock),
        load=LoadReportListener(client, reports.learn, observer.metrics),
        queries=_query_server(client, query_desk, cluster.members.me),
        commands=CommandQueue(
            settings.nats_url, partial(handle_command, command_desk), parked.park, clock
        ),
        buckets=buckets,
    )
    return controller


def _cluster_desk(cluster: Cluster, buckets: Buckets) -> ClusterDesk:
    return ClusterDesk(
        cluster.members,
        cluster.placements,
        lambda: cluster.leadership.leader,
        cluster.peers.ask_peers,
        buckets.owners,
    )


def _buckets(settings: Settings, members: Membership, clock: Clock, rng: Rng) -> Buckets:
    leases = None
    if settings.redis_url:
        leases = RedisLeases(settings.redis_url, LEASE_PREFIX, SHARD_COUNT, LEASE_S)
    neighbourhood = Neighbourhood(members.me.controller_id, members.live_controllers)
    return Buckets(neighbourhood, leases, clock=clock, rng=rng)


def _query_server(client: Client, desk: QueryDesk, me: ControllerRecord) -> QueryServer:
    return QueryServer(client, QUERIES, partial(answer_query, desk), me.controller_id)


def _cluster(settings: Settings, client: Client, clock: Clock, ids: IdSource) -> Cluster:
    def objects(bucket: str) -> JetStreamObjectStore:
        return JetStreamObjectStore(client, clock, bucket)

    host = socket.gethostname()
    drawn = "".join(c for c in host.split(".")[0] if c.isascii() and c.isalnum())[:32]
    me = ControllerRecord(
        settings.controller_id or f"{drawn}-{ids.new_id()[:8]}",
        session=ids.new_id(),
        host=host,
        pid=os.getpid(),
        started_ms=clock.now_ms(),
    )
    controllers = objects(subjects.CONTROLLERS_BUCKET)
    records = MemberRecords(controllers, objects(subjects.NODES_BUCKET))
    members = Membership(me, records, clock)
    leadership = Leadership(objects(subjects.CLUSTER_BUCKET), controllers, members, clock)
    placements = Placements(
        members, objects(subjects.PLACEMENTS_BUCKET), settings.container_count, clock
    )
    balancer = Balancer(
        objects(subjects.PLACEMENTS_BUCKET),
        placements,
        members,
        leadership,
        container_count=settings.container_count,
        settle_s=settings.placement_settle_s,
        clock=clock,
    )
    peers = Peers(client, members.live_controllers, me.controller_id)
    return Cluster(members, leadership, placements, balancer, peers)


def _exporter(
    settings: Settings, mirror: Mirror, clock: Clock, ids: IdSource, rng: Rng
) -> StreamExporter | None:
    url = settings.tier2_url
    if not url:
        _log.info("streams are not told to tier 2", unset="ANABRANCH_CONTROLLER_TIER2_URL")
        return None
    return StreamExporter(
        mirror.shaped_streams,
        partial(
            transient_chunk_storage,
            url,
            clock,
            ids,
            limit_s=TIER_TWO_CALL_S_MAX,
            options=settings.tier2_options,
        ),
        settings.container_count,
        clock=clock,
        rng=rng,
    )


def _head_watch(
    client: Client, store: JetStreamEventStore, mirror: Mirror, clock: Clock
) -> HeadWatch:
    record = JetStreamObjectStore(client, clock, subjects.CLUSTER_BUCKET)
    return HeadWatch(record, store.last_sequence, mirror.reached, clock)


def _trimmer(
    settings: Settings, store: JetStreamEventStore, mirror: Mirror, clock: Clock
) -> EventTrimmer:
    """All aggregates are trimmed by every controller: a purge names what it deletes."""
    return EventTrimmer(
        mirror.aggregates,
        store.purge,
        lambda _: True,
        clock=clock,
        trim_after_s=settings.trim_after_s,
    )


def _scope_workflow(
    scopes: Repository[Scope, ScopeEvent], context: WorkContext, observer: Observer
) -> Workflow[Scope, ScopeEvent, ScopeStep]:
    table = {**delete_scope.STEPS, **delete_scope_recursively.STEPS}
    steps = {
        step: observed(observer, step, partial(perform, context)) for step, perform in table.items()
    }
    return Workflow(scopes, scope_next_step, steps)


def _stream_workflow(
    streams: Repository[Stream, StreamEvent], context: WorkContext, observer: Observer
) -> Workflow[Stream, StreamEvent, StreamStep]:
    table = {
        **archive_history.STEPS,
        **create_stream.STEPS,
        **scale_stream.STEPS,
        **truncate_stream.STEPS,
        **seal_stream.STEPS,
        **delete_stream.STEPS,
    }
    steps = {
        step: observed(observer, step, partial(perform, context)) for step, perform in table.items()
    }
    return Workflow(streams, stream_next_step, steps)


def _wake(controller: Controller, subject: str) -> None:
    if subject.split(".")[3] == "scope":
        controller.scope_runner.wake(subject)
    else:
        controller.stream_runner.wake(subject)


def _tell(controller: Controller, subject: str) -> None:
    if controller.exporter is not None:
        controller.exporter.wake(subject)


async def _reply(client: Client, inbox: str, answer: bytes) -> None:
    try:
        await client.publish(inbox, answer)
    except nats.errors.Error as error:
        # The decision is durable; the caller asks again with the same command id.
        _log.warning("an answer could not be sent", error=repr(error))


async def _serve(controller: Controller, lifetime: Lifetime) -> None:
    cluster = controller.cluster
    cluster.members.on_change(partial(_report_members, cluster.members, lifetime))
    for part in ("mirror", "membership", "commands", "queries", "buckets"):
        lifetime.set_ready(part, False, "starting")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(controller.mirror.serve()),
            group.create_task(cluster.members.serve()),
            group.create_task(cluster.leadership.serve()),
            group.create_task(cluster.placements.serve()),
            group.create_task(cluster.balancer.serve()),
            group.create_task(controller.scope_runner.serve()),
            group.create_task(controller.stream_runner.serve()),
        ]
        await _catch_up(controller)
        controller.listener.go_live()
        lifetime.set_ready("mirror", True)
        tasks.append(group.create_task(controller.load.serve()))
        tasks.append(group.create_task(controller.trimmer.serve()))
        tasks.append(group.create_task(controller.heads.serve()))
        tasks.append(group.create_task(controller.queries.serve()))
        tasks.append(group.create_task(_announce(controller)))
        tasks.append(group.create_task(_sweep(controller, lifetime)))
        if controller.exporter is not None:
            report = partial(lifetime.set_ready, "export", True)
            tasks.append(group.create_task(controller.exporter.serve(report)))
        lifetime.set_ready("queries", True)
        await controller.commands.start()
        tasks.append(group.create_task(controller.commands.serve()))
        report = partial(lifetime.set_ready, "buckets", True)
        tasks.append(
            group.create_task(controller.buckets.serve(controller.buckets_changed, report))
        )
        try:
            lifetime.set_ready("commands", True)
            await lifetime.wait_for_stop()
        finally:
            controller.buckets.withdraw()
            await controller.commands.stop()
            await controller.buckets.release()
        for task in tasks:
            task.cancel()


def _report_members(members: Membership, lifetime: Lifetime) -> None:
    """A hold takes nobody out of service: what is served goes on as it was."""
    if not members.complete or not (members.seeing or members.hold):
        return
    hold = members.hold
    reason = ""
    if hold is not None:
        missing = ", ".join(sorted(member.member_id for member in hold.missing))
        reason = "held: own beats are not seen" if hold.blind else f"held: missing {missing}"
    lifetime.set_ready("membership", True, reason)


async def _catch_up(controller: Controller) -> None:
    while True:
        try:
            await controller.mirror.reach_heads()
            return
        except Unavailable as error:
            _log.info("catching up with the event store", state=str(error))
            await controller.clock.sleep(CATCH_UP_PAUSE_S)


async def _announce(controller: Controller) -> None:
    while True:
        notice = await controller.listener.next_notice()
        # Notices are a courtesy: whoever misses one asks for the operation.
        await controller.commands.publish(
            notice.model_dump_json().encode(), subjects.operation_notice(notice.operation)
        )


async def _sweep(controller: Controller, lifetime: Lifetime) -> None:
    while True:
        controller.sweep()
        connected = controller.client.is_connected
        lifetime.set_ready("nats", connected, "" if connected else "reconnecting")
        failing = controller.scope_runner.failures() + controller.stream_runner.failures()
        reason = f"{len(failing)} failing, first: {failing[0].subject}" if failing else ""
        lifetime.set_ready("workflows", True, reason)
        await controller.clock.sleep(SWEEP_S)
