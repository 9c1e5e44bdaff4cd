"""Runs a controller in a process."""

import structlog

from anabranch.common.adapters.chunk_transient import shared_location
from anabranch.common.adapters.jetstream_events import create_streams
from anabranch.common.adapters.jetstream_objects import create_bucket
from anabranch.common.adapters.nats_connection import close_nats, connect_nats, server_id
from anabranch.common.contracts import subjects
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.service import Lifetime
from anabranch.common.workflow.containment import Containment
from anabranch.controller.adapters.nats_monitor import jetstream_status
from anabranch.controller.adapters.parked_commands import create_parked_stream
from anabranch.controller.cluster.constants import settle_constants
from anabranch.controller.domain.durability import check_synced
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.settings import Settings
from anabranch.controller.wiring.controller import build
from anabranch.controller.wiring.serving import serve
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.workflows.observed import Observer

BUCKETS = (
    subjects.NODES_BUCKET,
    subjects.CONTROLLERS_BUCKET,
    subjects.PLACEMENTS_BUCKET,
    subjects.CLUSTER_BUCKET,
)

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
    lifetime.set_ready("nats", False, "waiting for NATS")
    client = None
    async with lifetime.until_stop():
        client = await connect_nats(settings.nats, "controller")
    if client is None:
        return
    rng = system_rng()
    containment = Containment(clock, rng)
    around = Surroundings(settings, client, clock, SystemIds(), rng, observer, containment)
    try:
        await _require_durable_metadata(around)
        await create_streams(client)
        await create_parked_stream(client)
        for bucket in BUCKETS:
            await create_bucket(client, bucket)
        constants = await settle_constants(
            around.objects(subjects.CLUSTER_BUCKET),
            settings.container_count,
            settings.bucket_count,
        )
        controller = build(around, constants.buckets)
        controller.watch(observer.metrics)
        await controller.heads.check(accept=settings.accept_rewound)
        await serve(controller, lifetime)
        await controller.cluster.members.leave()
    finally:
        await close_nats(client)


async def _require_durable_metadata(around: Surroundings) -> None:
    if around.settings.nats_sync == "unchecked":
        _log.warning("the check that the NATS server keeps acknowledged messages is off")
        return
    status = await jetstream_status(around.settings.nats_monitor_url, around.clock)
    check_synced(status, await server_id(around.client))
