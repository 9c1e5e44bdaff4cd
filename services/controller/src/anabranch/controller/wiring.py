"""Builds the controller from its settings and runs its parts until it is asked to stop."""

import asyncio
from dataclasses import dataclass
from functools import partial

import nats.errors
import structlog
from nats.aio.client import Client

from anabranch.common.adapters.chunk_transient import shared_location, transient_chunk_storage
from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.nats_connection import connect_nats, server_id
from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.leases.ports import Leases
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import IdSource, Rng, SystemIds, system_rng
from anabranch.common.runtime.service import Lifetime
from anabranch.common.workflow.runner import Runner, Workflow
from anabranch.controller.adapters.command_queue import CommandQueue
from anabranch.controller.adapters.load_reports import LoadReportListener
from anabranch.controller.adapters.nats_monitor import jetstream_status
from anabranch.controller.adapters.parked_commands import (
    JetStreamParkedCommands,
    create_parked_stream,
)
from anabranch.controller.adapters.query_server import QueryServer
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.cluster.buckets import LEASE_S, Buckets, Neighbourhood
from anabranch.controller.cluster.constants import settle_constants
from anabranch.controller.cluster.heads import HeadWatch
from anabranch.controller.cluster.placement_changes import PlacementChanges
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.cluster.rates import Rates
from anabranch.controller.domain.durability import check_synced
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeEvent, ScopeStep
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.handlers.commands import CommandDesk, handle_command
from anabranch.controller.handlers.queries import QUERIES, QueryDesk, answer_query
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.export_streams import StreamExporter
from anabranch.controller.periodic.trim_events import EventTrimmer
from anabranch.controller.projections.load_reports import LoadReports
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.settings import Settings
from anabranch.controller.workflows import (
    create_stream,
    delete_scope,
    delete_stream,
    scale_stream,
    seal_stream,
    truncate_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer, observed

SWEEP_S = 5.0
CATCH_UP_PAUSE_S = 0.2
LEASE_PREFIX = "anabranch"
TIER_TWO_CALL_S_MAX = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Controller:
    """The parts of a running controller."""

    client: Client
    clock: Clock
    mirror: Mirror
    listener: FoldListener
    scope_runner: Runner[Scope, ScopeEvent, ScopeStep]
    stream_runner: Runner[Stream, StreamEvent, StreamStep]
    placements: Placements
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


async def run_controller(
    settings: Settings, lifetime: Lifetime, neighbourhood: Neighbourhood | None = None
) -> None:
    """Run until asked to stop.

    `neighbourhood`: who else there is; this controller alone if it is not given. Raises
    Unavailable (no NATS), MetadataNotSynced, StreamRewound, InvalidSetting (other constants).
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
        for bucket in (subjects.NODES_BUCKET, subjects.PLACEMENTS_BUCKET, subjects.CLUSTER_BUCKET):
            await create_bucket(client, bucket)
        constants = JetStreamObjectStore(client, clock, subjects.CLUSTER_BUCKET)
        await settle_constants(constants, settings.container_count)
        controller = build(
            settings,
            client,
            clock,
            ids,
            rng,
            observer=observer,
            buckets=Buckets(neighbourhood or _alone(ids), _leases(settings), clock=clock, rng=rng),
        )
        _watch(controller, observer.metrics)
        await controller.heads.check(accept=settings.accept_rewound)
        await _serve(controller, lifetime)
    finally:
        await client.close()


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


def _alone(ids: IdSource) -> Neighbourhood:
    me = ids.new_id()
    return Neighbourhood(me, lambda: frozenset({me}))


def build(
    settings: Settings,
    client: Client,
    clock: Clock,
    ids: IdSource,
    rng: Rng,
    *,
    observer: Observer,
    buckets: Buckets,
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
    stores = NatsSegmentStores(client, settings.container_count)
    context = WorkContext(stores, scopes, mirror, Gates(store, ids))
    objects = partial(JetStreamObjectStore, client, clock)
    nodes, placed = objects(subjects.NODES_BUCKET), objects(subjects.PLACEMENTS_BUCKET)
    placements = Placements(nodes, placed, settings.container_count, clock)
    changes = PlacementChanges(placed, placements, settings.container_count, clock)
    command_desk = CommandDesk(scopes, streams, clock, partial(_reply, client), observer)
    reports = LoadReports(clock)
    rates = Rates(placements, reports, settings.container_count)
    query_desk = QueryDesk(
        mirror,
        placements.locate,
        placements.list_containers,
        observer,
        rates.rate,
        placements.list_nodes,
        changes.perform,
        parked,
    )
    owns = buckets.owns_aggregate
    controller = Controller(
        client=client,
        clock=clock,
        mirror=mirror,
        listener=listener,
        scope_runner=Runner(_scope_workflow(scopes, context, observer), clock, rng, owns),
        stream_runner=Runner(_stream_workflow(streams, context, observer), clock, rng, owns),
        placements=placements,
        exporter=_exporter(settings, mirror, clock, ids, rng),
        trimmer=_trimmer(settings, store, mirror, clock),
        heads=_head_watch(client, store, mirror, clock),
        load=LoadReportListener(client, reports.learn, observer.metrics),
        queries=QueryServer(client, QUERIES, partial(answer_query, query_desk)),
        commands=CommandQueue(
            settings.nats_url, partial(handle_command, command_desk), parked.park, clock
        ),
        buckets=buckets,
    )
    return controller


def _leases(settings: Settings) -> Leases | None:
    if not settings.redis_url:
        return None
    return RedisLeases(settings.redis_url, LEASE_PREFIX, SHARD_COUNT, LEASE_S)


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
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in delete_scope.STEPS.items()
    }
    return Workflow(scopes, scope_next_step, steps)


def _stream_workflow(
    streams: Repository[Stream, StreamEvent], context: WorkContext, observer: Observer
) -> Workflow[Stream, StreamEvent, StreamStep]:
    table = {
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
    for part in ("mirror", "commands", "queries", "buckets"):
        lifetime.set_ready(part, False, "starting")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(controller.mirror.serve()),
            group.create_task(controller.placements.serve()),
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
