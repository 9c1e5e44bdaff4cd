"""An event loop in a thread of its own, so that pings and sends go on while a task waits for rows.

Spark's iterator of rows blocks the thread of the task for as long as the rows take to compute.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Made by `background_loop`. `run` is for the thread that entered it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or its error. The work limits its own time."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def background_loop() -> Iterator[BackgroundLoop]:
    """The loop during the block; what still runs at its end is cancelled."""
    begun, ended = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        begun.set()
        await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    begun.wait()
    try:
        yield BackgroundLoop(loops[0])
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()
