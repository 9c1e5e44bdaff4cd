"""A client whose event loop has a thread of its own: pings and sends go on while a task waits.

Spark's iterator of rows blocks the thread of the task for as long as the rows take to compute.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from anabranch.client import connect
from anabranch.client.client import Client
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.places.opening import CLIENT_NAME

T = TypeVar("T")


class BackgroundClient:
    """A client, and the loop that it belongs to; made by `client_in_background`."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self._loop = loop
        self.ended = asyncio.Event()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or its error; from another thread. The work limits its own
        time."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        """Let the thread close the client. From another thread."""
        self._loop.call_soon_threadsafe(self.ended.set)


@contextmanager
def client_in_background(place: NatsTarget) -> Iterator[BackgroundClient]:
    """The client during the block. Raises the errors of connecting."""
    opened: Future[BackgroundClient] = Future()

    async def serve() -> None:
        async with connect(place, name=CLIENT_NAME) as client:
            found = BackgroundClient(client, asyncio.get_running_loop())
            opened.set_result(found)
            await found.ended.wait()

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, serve())
        either: list[Future[Any]] = [opened, running]
        wait(either, return_when=FIRST_COMPLETED)
        if not opened.done():
            running.result()
        found = opened.result()
        try:
            yield found
        finally:
            found.end()
