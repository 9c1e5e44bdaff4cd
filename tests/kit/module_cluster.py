"""A cluster that the tests of a module share: each uses names of its own, and none hurts it.

It runs in a thread with its own event loop, because the event loop of a test ends with the test.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster


@contextmanager
def running_cluster(settings: UpSettings) -> Iterator[EmbeddedCluster]:
    """A cluster that is ready; its addresses may be read in any thread."""
    found: Future[EmbeddedCluster] = Future()
    runner, stop = asyncio.Runner(loop_factory=asyncio.new_event_loop), asyncio.Event()

    async def serve() -> None:
        async with embedded_cluster(settings) as cluster:
            await cluster.wait_ready()
            found.set_result(cluster)
            await stop.wait()

    with runner, ThreadPoolExecutor(1) as thread:  # the runner leaves no task and no socket open
        loop = runner.get_loop()
        running = thread.submit(runner.run, serve())
        either: tuple[Future[Any], ...] = (found, running)
        wait(either, return_when=FIRST_COMPLETED)
        try:
            if found.done():
                yield found.result()
        finally:
            loop.call_soon_threadsafe(stop.set)
            running.result()
