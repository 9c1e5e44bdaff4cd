"""The life of a controller: its parts start, serve, and stop in order."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from anabranch.common.contracts import subjects
from anabranch.common.errors import ProcessReplaced, StreamRewound, Unavailable
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.adapters.metadata_streams import MetadataStreams
from anabranch.controller.periodic.job import Job, repeat
from anabranch.controller.wiring.controller import Controller
from anabranch.controller.wiring.provisioning import provision

SWEEP_S = 5.0
CATCH_UP_PAUSE_S = 0.2
PARTS = ("mirror", "membership", "commands", "queries", "buckets")

_log = structlog.get_logger(__name__)


async def serve(controller: Controller, lifetime: Lifetime, streams: MetadataStreams) -> None:
    """Run until asked to stop, and finish the commands in hand first."""
    cluster = controller.cluster
    cluster.members.on_change(partial(cluster.report, lifetime))
    for part in PARTS:
        lifetime.set_ready(part, False, "starting")
    lifetime.set_ready("mirror", False, "reads the domain events")
    lifetime.set_ready("nats", True)
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []

        def keep(job: str, work: Callable[[], Awaitable[None]]) -> None:
            """Keep a job running after any error, except those that must end this process."""
            kept = controller.around.containment.keep(job, work, StreamRewound, ProcessReplaced)
            tasks.append(group.create_task(kept))

        keep("mirror", controller.mirror.serve)
        keep("membership", cluster.members.serve)
        keep("leadership", cluster.leadership.serve)
        keep("placements", cluster.placements.serve)
        keep("drains", cluster.drains.serve)
        keep("topic containers", cluster.topic_containers.serve)
        for job, work in controller.topics.jobs():
            keep(job, work)
        keep("balancer", cluster.balancer.serve)
        if controller.around.settings.provisioner == "kubernetes":
            keep("provisioner", partial(_provision, controller))
        for job, work in controller.runners.jobs():
            keep(job, work)
        await _catch_up(controller)
        controller.listener.go_live()
        controller.topics.go_live()
        lifetime.set_ready("mirror", True)
        keep("load reports", controller.load.serve)
        for periodic in controller.jobs.all:
            keep(periodic.name, partial(_repeat, controller, lifetime, periodic))
        keep("heads of shards", controller.heads.serve)
        keep("replicas", streams.serve)
        keep("queries", controller.queries.serve)
        keep("notices", partial(_announce, controller))
        keep("sweep", partial(_sweep, controller, lifetime))
        lifetime.set_ready("queries", True)
        await controller.commands.start()
        keep("commands", controller.commands.serve)
        report = partial(lifetime.set_ready, "buckets", True)
        keep("buckets", partial(cluster.buckets.serve, controller.buckets_changed, report))
        try:
            lifetime.set_ready("commands", True)
            await lifetime.wait_for_stop()
        finally:
            cluster.buckets.withdraw()
            await controller.commands.stop()
            await cluster.buckets.release()
            if controller.writer_times is not None:
                await controller.writer_times.close()
            await controller.jobs.close()
        for task in tasks:
            task.cancel()


async def _provision(controller: Controller) -> None:
    await provision(controller.around, controller.cluster, controller.topics.dispatchers)


async def _catch_up(controller: Controller) -> None:
    while True:
        try:
            await controller.mirror.reach_heads()
            return
        except Unavailable as error:
            _log.info("catching up with the event store", state=str(error))
            await controller.around.clock.sleep(CATCH_UP_PAUSE_S)


async def _repeat(controller: Controller, lifetime: Lifetime, job: Job) -> None:
    def report(reason: str) -> None:
        if job.part:
            lifetime.set_ready(job.part, True, reason)

    around = controller.around
    measure = around.observer.metrics.job_ended
    await repeat(job, around.clock, around.rng, measure=measure, report=report)


async def _announce(controller: Controller) -> None:
    """Publish a notice for each operation that ended in an owned bucket.

    Notices are best effort. While a bucket changes its owner, a notice may be missing; the caller
    then queries the operation.
    """
    buckets = controller.cluster.buckets
    while True:
        notice = await controller.listener.next_notice()
        if notice.read_token is None or buckets.owns_shard(notice.read_token.shard):
            await controller.commands.publish(
                notice.model_dump_json().encode(), subjects.operation_notice(notice.operation)
            )


async def _sweep(controller: Controller, lifetime: Lifetime) -> None:
    while True:
        controller.sweep()
        connected = controller.around.client.is_connected
        lifetime.set_ready("nats", connected, "" if connected else "reconnecting")
        controller.cluster.report(lifetime)
        failing = controller.runners.failures()
        reason = f"{len(failing)} failing, first: {failing[0].subject}" if failing else ""
        lifetime.set_ready("workflows", True, reason)
        lifetime.set_ready("defects", True, controller.around.containment.summary())
        await controller.around.clock.sleep(SWEEP_S)
