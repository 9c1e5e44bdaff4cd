"""Serves an open container: runs its loops until it ends, or is closed to leave the store."""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.node.closing import (
    Leave,
    LeaveRequest,
    close_container,
    stop_container,
)
from anabranch.segstore.shell.node.leftovers import end_leftovers
from anabranch.segstore.shell.node.live import complete_partitions
from anabranch.segstore.shell.node.store import OpenContainer
from anabranch.segstore.shell.tiering.eviction import evict

_log = structlog.get_logger(__name__)


def named_error(error: BaseException) -> AnabranchError:
    """The error with a code and a remedy, also for errors of the operating system and a
    cancellation."""
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, OSError):
        return DiskFailed("a read of stored bytes failed", cause=str(error))
    return Unavailable("the container is closing")


async def load(container: Container) -> None:
    """Load segments for waiting requests. Damage in tier 2 ends the container."""
    try:
        await container.loading.run(lambda: evict(container))
    except AnabranchError as error:
        container.fail(error)


async def serve_until_end(
    opened: OpenContainer,
    request: LeaveRequest,
    around: Surroundings,
    also: Callable[[], Coroutine[None, None, None]] | None = None,
) -> Leave | None:
    """Run the loops of a container until it ends, and `also`. Raises the error that ended
    it.

    Returns how it left, if it was asked to leave and is closed; else None.
    """
    ended: AnabranchError | OSError | None = None
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(_close_when_asked(opened, request, around))
        beside = [
            group.create_task(opened.collector.run()),
            group.create_task(load(opened.container)),
            group.create_task(
                end_leftovers(opened.container, opened.tier_two, around.clock, around.back_off_s)
            ),
            group.create_task(
                complete_partitions(
                    opened.container, opened.tier_two, around.clock, around.back_off_s
                )
            ),
            group.create_task(opened.tier_two.leave_receipts()),
            group.create_task(opened.table_loops.run()),
            closing,
        ]
        if also is not None:
            beside.append(group.create_task(also()))
        try:
            await opened.flusher.run()
        except (AnabranchError, OSError) as error:
            ended = error
            # This also ends loops that missed their cancellation.
            opened.container.fail(named_error(error))
        finally:
            for task in beside:
                task.cancel()
    left = closing.result() if closing.done() and not closing.cancelled() else None
    if left is None and ended is not None:
        raise ended
    return left


async def _close_when_asked(
    opened: OpenContainer, request: LeaveRequest, around: Surroundings
) -> Leave | None:
    """Close and end the container. None if closing failed, which also ended the container."""
    container = opened.container
    await request.asked.wait()
    leave = request.leave
    _log.info(
        "the container is closing, to leave this store",
        container=container.container, how=leave.name.lower(),
    )  # fmt: skip
    try:
        if leave is Leave.HANDED_OVER:
            await stop_container(opened, around.clock)
        else:
            await close_container(opened, around.clock, around.back_off_s)
    except (AnabranchError, OSError) as error:
        container.fail(named_error(error))
        return None
    container.fail(Unavailable("the container moves to another store"))
    return leave
