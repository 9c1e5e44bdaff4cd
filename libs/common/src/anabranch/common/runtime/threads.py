"""Bounded pools of threads for calls that block, one per device.

The event loop's default executor is one pool for everything and is joined when the process ends: a
directory that hangs would take all of its threads, delay calls to other devices, and delay the
end. A `ThreadPool` belongs to one device. Its threads are daemons, and a process exits without
waiting for them; every write survives this interruption as it survives a kill.

At most `count_max` calls run at a time. Further callers wait in the event loop, where a deadline
ends their wait without a trace. A call whose caller stopped waiting keeps its thread until it
returns, so hanging calls hold a bounded number of threads and of buffers.
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
        """Run `work` in a thread; return its result or raise its error.

        If the caller is cancelled, the thread still runs `work` to its end.
        """
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
            except BaseException as raised:  # noqa: BLE001 - raised in the caller
                error = raised
            with suppress(RuntimeError):  # The loop is closed, so the caller has gone.
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
    """Do as `ThreadPool.run`, for a single call."""
    return await ThreadPool(name, 1).run(work)


def _work_off(queue: "SimpleQueue[Work | None]") -> None:
    while (work := queue.get()) is not None:
        work()
        del work  # It refers to the caller's buffers.
