"""The life of a controller: its parts start, serve, and end in order."""

import asyncio
from functools import partial

import structlog

from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.wiring.controller import Controller

SWEEP_S = 5.0
CATCH_UP_PAUSE_S = 0.2
PARTS = ("mirror", "membership", "commands", "queries", "buckets")

_log = structlog.get_logger(__name__)


async def serve(controller: Controller, lifetime: Lifetime) -> None:
    """Run until asked to stop; commands in hand come to their ends."""
    cluster = controller.cluster
    cluster.members.on_change(partial(cluster.report, lifetime))
    for part in PARTS:
        lifetime.set_ready(part, False, "starting")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(controller.mirror.serve()),
            group.create_task(cluster.members.serve()),
            group.create_task(cluster.leadership.serve()),
            group.create_task(cluster.placements.serve()),
            group.create_task(cluster.balancer.serve()),
            group.create_task(controller.runners.scopes.serve()),
            group.create_task(controller.runners.streams.serve()),
            group.create_task(controller.runners.groups.serve()),
            group.create_task(controller.runners.transactions.serve()),
        ]
        await _catch_up(controller)
        controller.listener.go_live()
        lifetime.set_ready("mirror", True)
        tasks += [
            group.create_task(controller.load.serve()),
            group.create_task(controller.trimmer.serve()),
            group.create_task(controller.endings.expirer.serve()),
            group.create_task(controller.endings.purger.serve()),
            group.create_task(controller.heads.serve()),
            group.create_task(controller.queries.serve()),
            group.create_task(_announce(controller)),
            group.create_task(_sweep(controller, lifetime)),
        ]
        if controller.exporter is not None:
            report = partial(lifetime.set_ready, "export", True)
            tasks.append(group.create_task(controller.exporter.serve(report)))
        lifetime.set_ready("queries", True)
        await controller.commands.start()
        tasks.append(group.create_task(controller.commands.serve()))
        report = partial(lifetime.set_ready, "buckets", True)
        owning = cluster.buckets.serve(controller.buckets_changed, report)
        tasks.append(group.create_task(owning))
        try:
            lifetime.set_ready("commands", True)
            await lifetime.wait_for_stop()
        finally:
            cluster.buckets.withdraw()
            await controller.commands.stop()
            await cluster.buckets.release()
            if controller.writer_times is not None:
                await controller.writer_times.close()
            await controller.endings.close()
        for task in tasks:
            task.cancel()


async def _catch_up(controller: Controller) -> None:
    while True:
        try:
            await controller.mirror.reach_heads()
            return
        except Unavailable as error:
            _log.info("catching up with the event store", state=str(error))
            await controller.around.clock.sleep(CATCH_UP_PAUSE_S)


async def _announce(controller: Controller) -> None:
    """Tell of operations that ended in the buckets that are owned.

    Notices are a courtesy: whoever misses one, because nobody or somebody else owned the bucket,
    asks for the operation.
    """
    while True:
        notice = await controller.listener.next_notice()
        if notice.read_token is None or controller.cluster.buckets.owns(notice.read_token.shard):
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
        await controller.around.clock.sleep(SWEEP_S)
