"""Runs a controller in a process."""

from functools import partial

import structlog

from anabranch.common.adapters.chunk_transient import shared_location
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.contracts import subjects
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.service import Lifetime
from anabranch.common.workflow.containment import Containment
from anabranch.controller.adapters.metadata_streams import MetadataStreams, Replication
from anabranch.controller.cluster.constants import settle_constants, settle_place
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.settings import Settings
from anabranch.controller.wiring.controller import Controller, build
from anabranch.controller.wiring.patience import patiently
from anabranch.controller.wiring.serving import serve
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.workflows.observed import Observer

_log = structlog.get_logger(__name__)


async def run_controller(settings: Settings, lifetime: Lifetime) -> None:
    """Run until asked to stop.

    Raises Unavailable (no NATS), Unauthorized (NATS refuses the credentials), MetadataNotSynced,
    StreamRewound, InvalidSetting (the cluster was created with other constants).
    """
    clock = SystemClock()
    telemetry = lifetime.telemetry
    observer = Observer(ControllerMetrics(telemetry.metrics, clock), telemetry.tracer)
    if settings.tier2_url:
        shared_location(settings.tier2_url)  # a wrong URL stays wrong, so fail at the start
    place = RedisObjects(settings.objects_url, clock) if settings.objects_url else None
    lifetime.set_ready("nats", False, "waiting for NATS")
    client = None
    async with lifetime.until_stop():
        client = await connect_nats(settings.nats, "controller")
    if client is None:
        return
    rng = system_rng()
    containment = Containment(clock, rng)
    around = Surroundings(settings, client, clock, SystemIds(), rng, observer, containment, place)
    try:
        streams, controller = _metadata_streams(around), None
        async with lifetime.until_stop():
            controller = await _prepared(around, streams)
        if controller is None:
            return
        controller.watch(observer.metrics)
        await serve(controller, lifetime, streams)
        await controller.cluster.members.leave()
    finally:
        if place is not None:
            await place.close()
        await close_nats(client)


async def _prepared(around: Surroundings, streams: MetadataStreams) -> Controller:
    """The controller of a cluster whose metadata is in place. Raises the errors of
    `run_controller`."""
    settings, clock = around.settings, around.clock
    await patiently(streams.prepare, clock)
    in_nats = around.objects_in_nats(subjects.CLUSTER_BUCKET)
    await patiently(partial(settle_place, in_nats, elsewhere=around.place is not None), clock)
    settle = partial(
        settle_constants,
        around.objects(subjects.CLUSTER_BUCKET),
        settings.container_count,
        settings.bucket_count,
    )
    constants = await patiently(settle, clock)
    controller = build(around, constants.buckets)
    await patiently(partial(controller.heads.check, accept=settings.accept_rewound), clock)
    return controller


def _metadata_streams(around: Surroundings) -> MetadataStreams:
    settings = around.settings
    is_checked = settings.nats_sync == "checked"
    if not is_checked:
        _log.warning("the check that the NATS servers keep acknowledged messages is off")
    urls = settings.nats_monitor_url.split(",")
    if around.place is not None and settings.objects_sync != "checked":
        _log.warning("the check that Redis keeps acknowledged objects is off")
    return MetadataStreams(
        around.client,
        around.clock,
        Replication(settings.nats_replicas, urls, is_checked),
        around.place,
        place_is_checked=settings.objects_sync == "checked",
    )
