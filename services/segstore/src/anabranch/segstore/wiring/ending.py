"""The steps of a shutdown in order. Draining and closing the NATS door have time limits."""

import asyncio

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.server.nats_door import NatsDoor
from anabranch.segstore.server.tcp import TcpServer
from anabranch.segstore.shell.node.store import Store

DRAIN_S_MAX = 5.0
DOOR_CLOSE_S_MAX = 1.0
_DRAIN_POLL_S = 0.01
_CANCEL_AGAIN_S = 0.1


async def drain(store: Store, server: TcpServer, clock: Clock) -> None:
    """Refuse new requests, then wait until accepted operations are in the journal and answered."""
    store.stopping = True
    server.stop_accepting()
    containers = [opened.container for opened in store.open_containers()]
    for container in containers:
        container.stop_accepting()
    deadline = clock.monotonic() + DRAIN_S_MAX
    while clock.monotonic() < deadline and not all(found.idle for found in containers):
        await clock.sleep(_DRAIN_POLL_S)
    server.close()


async def close_door(door: NatsDoor, clock: Clock) -> None:
    """Fail the waiting reads, then wait until the replies in progress have been sent."""
    door.stop_reads(Unavailable("the store is stopping"))
    deadline = clock.monotonic() + DOOR_CLOSE_S_MAX
    while clock.monotonic() < deadline and not door.idle:
        await clock.sleep(_DRAIN_POLL_S)


async def end_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel until all have ended, however long that takes.

    One cancellation is not enough: a wait with a timeout swallows it if its answer arrives at the
    same moment (CPython before 3.12).
    """
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)
