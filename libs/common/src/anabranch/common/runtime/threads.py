"""Bounded pools of threads for calls that block, one per device.

The event loop's default executor is one pool for everything and is joined when the process ends: a
directory that hangs would take all of its threads, hold up calls to other devices, and hold up the
end. A `ThreadPool` belongs to one device. Its threads are daemons, which the end of a process does
not wait for; every write that they may be in survives being cut off, as it survives a kill.

At most `count_max` calls run at a time. Callers beyond it wait in the event loop, where a deadline
ends their wait and nothing is left behind. A call whose caller stopped waiting keeps its thread
until it returns, so what hangs holds a bounded number of threads and of buffers.
"""

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

Work = Callable[[], None]


class ThreadPool:
    """Threads for one device, started when they are needed; used by one event loop."""

    def __init__(self, name: str, count_max: int) -> None:
        assert count_max > 0
        self._name = name
        self._free = asyncio.Semaphore(count_max)
        self._running = 0
        self._started = 0
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, in a thread. Cancelled: the thread works on to its end."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def deliver(result: T | None, error: BaseException | None) -> None:
            self._running -= 1
            self._free.release()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def perform() -> None:
            result, error = None, None
            try:
                result = context.run(work)
            except BaseException as raised:  # noqa: BLE001 - it is the caller's, and raised there
                error = raised
            with suppress(RuntimeError):  # the loop is closed: the caller has gone
                loop.call_soon_threadsafe(deliver, result, error)

        self._running += 1
        if self._running > self._started:
            self._start_thread()
        self._queue.put(perform)
        return await answer

    def _start_thread(self) -> None:
        self._started += 1
        threading.Thread(
            target=_work_off, args=(self._queue,), name=f"{self._name}-{self._started}", daemon=True
        ).start()
        weakref.finalize(self, self._queue.put, None).atexit = False


async def run_in_daemon(name: str, work: Callable[[], T]) -> T:
    """As `ThreadPool.run`, for a call that is made once."""
    return await ThreadPool(name, 1).run(work)


def _work_off(queue: "SimpleQueue[Work | None]") -> None:
    while (work := queue.get()) is not None:
        work()
        del work  # it holds the caller's buffers
