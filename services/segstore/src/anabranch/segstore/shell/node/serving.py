"""Serves an open container: runs its loops until it ends, or is closed to leave the store."""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.node.closing import close_container
from anabranch.segstore.shell.node.leftovers import end_leftovers
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
    asked: asyncio.Event,
    around: Surroundings,
    also: Callable[[], Coroutine[None, None, None]] | None = None,
) -> bool:
    """Run the loops of a container until it ends, and `also`. Raises the error that ended
    it.

    Returns True if it was `asked` to leave and is closed.
    """
    ended: AnabranchError | OSError | None = None
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(_close_when_asked(opened, asked, around))
        beside = [
            group.create_task(opened.collector.run()),
            group.create_task(load(opened.container)),
            group.create_task(
                end_leftovers(opened.container, opened.tier_two, around.clock, around.back_off_s)
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
    if closing.done() and not closing.cancelled() and closing.result():
        return True
    if ended is not None:
        raise ended
    return False


async def _close_when_asked(
    opened: OpenContainer, asked: asyncio.Event, around: Surroundings
) -> bool:
    """Close and end the container. False if closing failed, which also ended the container."""
    container = opened.container
    await asked.wait()
    _log.info("the container is closing, to leave this store", container=container.container)
    try:
        await close_container(opened, around.clock, around.back_off_s)
    except (AnabranchError, OSError) as error:
        container.fail(named_error(error))
        return False
    container.fail(Unavailable("the container moves to another store"))
    return True
