"""Runs a store in a process: opens its resources in order and closes them in reverse order."""

from functools import partial

import structlog
from nats.aio.client import Client

from anabranch.common.adapters.chunk_url import open_chunk_storage
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.join_token import read_join_token
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.common.runtime.service import Lifetime
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.container.pauses import BackOff, drawn_from
from anabranch.segstore.shell.container.tracing import Commits, StoreTracing
from anabranch.segstore.wiring.log import kept_node_id, locked_directory, opened_log
from anabranch.segstore.wiring.parts import Parts
from anabranch.segstore.wiring.process import Process
from anabranch.segstore.wiring.settings_check import check_settings

TIER_TWO_CALL_S_MAX = 30.0

_log = structlog.get_logger(__name__)


async def serve(settings: SegstoreSettings, lifetime: Lifetime) -> None:
    """Run the store until `lifetime` requests a stop.

    Raises DirectoryInUse, DirectoryUnusable, FormatTooNew, InvalidSetting, PortInUse, Corrupt
    errors, and the error that ended the journal while the store was serving.
    """
    check_settings(settings)  # first: a URL with a secret must not be logged
    _log.info("settings", **settings.describe())
    join_token = read_join_token(settings.join_token_file)
    with locked_directory(settings) as former_may_run:
        await _serve(settings, lifetime, join_token, former_may_run=former_may_run)


async def _serve(
    settings: SegstoreSettings, lifetime: Lifetime, join_token: str, *, former_may_run: bool
) -> None:
    clock, ids, back_off_s = SystemClock(), SystemIds(), drawn_from(system_rng())
    metrics = StoreMetrics(lifetime.telemetry.metrics)
    commits = Commits(metrics, clock, clock.now_ns)
    lifetime.set_ready("journal", False, "the store reads it")
    connect = partial(_connect, settings.nats, clock, back_off_s, lifetime)
    async with opened_log(settings, clock, ids, commits, connect) as log:
        if log is None:
            return
        lifetime.set_ready("journal", False, "starting")
        keeps = settings.journal != "memory"
        node_id = settings.node_id or ids.new_id()
        if keeps:
            node_id = kept_node_id(settings.data_dir, ids, log, wanted=settings.node_id)
        storage = await open_chunk_storage(
            settings.tier2,
            ids,
            node_id,
            limit_s=TIER_TWO_CALL_S_MAX,
            options=settings.tier2_options,
            on_network=settings.tier2_network,
        )
        place = RedisObjects(settings.objects_url, clock) if settings.objects_url else None
        client = await connect()
        if client is None:
            return
        try:
            lifetime.set_ready("nats", True)
            parts = Parts(
                settings=settings,
                lifetime=lifetime,
                clock=clock,
                back_off_s=back_off_s,
                ids=ids,
                log=log,
                node_id=node_id,
                session=ids.new_id(),
                former_may_run=former_may_run,
                join_token=join_token,
                client=client,
                storage=storage,
                metrics=metrics,
                commits=commits,
                tracing=_tracing(lifetime, commits),
                place=place,
            )
            await Process(parts).run()
        finally:
            if place is not None:
                await place.close()
            await close_nats(client)


def _tracing(lifetime: Lifetime, commits: Commits) -> StoreTracing | None:
    tracer = lifetime.telemetry.tracer
    return StoreTracing(tracer, commits) if tracer is not None else None


async def _connect(
    target: NatsTarget, clock: Clock, back_off_s: BackOff, lifetime: Lifetime
) -> Client | None:
    """Connect to NATS, retrying until a server answers; None if a stop is requested first.

    Raises Unauthorized at once, because the same credentials would be refused again.
    """
    failures = 0
    lifetime.set_ready("nats", False, "waiting for NATS")
    while not lifetime.stopping:
        try:
            async with lifetime.until_stop():
                return await connect_nats(target, "segstore")
        except Unavailable as error:
            failures += 1
            remedy = error.remedy_for("command")
            _log.warning("NATS does not answer yet", error=str(error), remedy=remedy)
            lifetime.set_ready("nats", False, str(error))
            await clock.sleep(min(2.0, back_off_s(failures)))
    return None
