"""The thread that runs the event loop of a blocking client, from its start to its end.

State: the thread, its loop, and the pending calls. A call is pending from before the loop receives
it until its wait ends; when the loop ends, the thread settles the remaining calls. Every call
therefore reaches the loop, or is refused, or is settled: no thread waits for ever.

The thread is a daemon. It ends with `close`, or when its `Background` is collected, and at the
latest with the process. A forked child has the objects and not the thread: there they raise Closed.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import Any, Protocol

from anabranch.client.blocking.calls import Call, Outcome, outcome_of
from anabranch.common.errors import Closed, InvalidRequest
from anabranch.common.runtime.clock import Clock

ENDING_TIMEOUT_S = 10.0
THREAD_NAME = "anabranch-client"

Reason = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class LoopThread:
    """A thread with an event loop. See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._calls: set[Call] = set()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._main: asyncio.Task[None] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._live, name=THREAD_NAME, daemon=True)
        self._thread.start()
        self._ready.wait()

    # --- the thread -----------------------------------------------------------------------

    def _live(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._serve())
        finally:
            self._is_closed = True
            self._ready.set()
            for call in tuple(self._calls):
                call.settle(Outcome(error=asyncio.CancelledError()))

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._main = asyncio.current_task()
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._loop.create_future()  # until it is cancelled, and with it all tasks

    def _end(self) -> None:
        assert self._main is not None
        self._is_closed = True
        self._main.cancel()

    def _begin(self, call: Call) -> None:
        if self._is_closed:
            call.settle(Outcome(error=asyncio.CancelledError()))
        else:
            assert self._tasks is not None
            call.begin(self._tasks)

    # --- from other threads ---------------------------------------------------------------

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """The loop's task group, for work that outlives the call that starts it."""
        assert self._tasks is not None
        return self._tasks

    def perform(self, work: Callable[[], object], timeout_s: float | None = None) -> object:
        """Run `work` on the loop, and await its result if it is awaitable.

        Raises the error of the work, TimedOut, Closed.
        """
        return self.wait(self.new_call(work), timeout_s)

    def new_call(self, work: Callable[[], object]) -> Call:
        """A call for `wait`."""
        return Call(work, self._clock)

    def wait(self, call: Call, timeout_s: float | None) -> object:
        """See `Call.wait`; once for each call."""
        self._refuse_unless_usable()
        self._calls.add(call)
        try:
            return call.wait(timeout_s, submit=self._submit, revoke=self._revoke)
        finally:
            self._calls.discard(call)

    def _submit(self, call: Call) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._begin, call, context=copy_context())
        except RuntimeError:
            call.settle(Outcome(error=asyncio.CancelledError()))  # the loop has ended

    def _revoke(self, call: Call) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # a loop that has ended has cancelled it
            self._loop.call_soon_threadsafe(call.cancel)

    def _refuse_unless_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Closed(
                "another process opened the client",
                remedy="connect in each process, after the fork", opened_by=self._pid,
            )  # fmt: skip
        if self._is_closed:
            raise Closed("the client is closed")
        if threading.get_ident() == self._thread.ident:
            raise InvalidRequest(
                "a blocking call was made in the client's own thread",
                remedy="use the asynchronous client in callbacks of the client",
            )

    def ask_to_end(self) -> None:
        """Cancel all work and end the thread, without waiting. Repeatable."""
        if os.getpid() != self._pid:
            return
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end)

    def close(self) -> None:
        """End the thread and wait for its end. Repeatable; does nothing in a forked child."""
        self.ask_to_end()
        if os.getpid() == self._pid and threading.get_ident() != self._thread.ident:
            self._thread.join(ENDING_TIMEOUT_S)


class Background:
    """Owns a LoopThread, and asks it to end when this object is collected."""

    def __init__(self, clock: Clock) -> None:
        self.thread = LoopThread(clock)
        self.kinds: dict[type, bool] = {}
        """The types returned so far, and whether they have anything to await."""
        weakref.finalize(self, self.thread.ask_to_end)


class Entering(Protocol):
    """An asynchronous context manager."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None: ...


class Stay:
    """A context manager that one task enters and leaves, as task groups and time limits inside it
    demand, while a thread is in its `with` block. All methods belong to the loop."""

    def __init__(self, manager: Entering, tasks: asyncio.TaskGroup) -> None:
        self._manager = manager
        self._tasks = tasks
        self._reason: asyncio.Future[Reason] | None = None
        self._task: asyncio.Task[Outcome] | None = None

    async def enter(self) -> object:
        """The value of entering. Raises the error of entering."""
        loop = asyncio.get_running_loop()
        self._reason = loop.create_future()
        entered: asyncio.Future[object] = loop.create_future()
        self._task = self._tasks.create_task(outcome_of(self._live(entered, self._reason)))
        await self._or_cancel(entered)
        return entered.result() if entered.done() else self._task.result().result()

    async def leave(self, reason: Reason) -> object:
        """Whether leaving swallows the error. Raises the error of leaving."""
        assert self._task is not None
        assert self._reason is not None
        if not self._reason.done():
            self._reason.set_result(reason)
        await self._or_cancel()
        return self._task.result().result()

    async def _or_cancel(self, *signals: "asyncio.Future[object]") -> None:
        """Wait for the task or a signal. If this wait is cancelled, it cancels the task."""
        assert self._task is not None
        waited: set[asyncio.Future[Any]] = {self._task, *signals}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise

    async def _live(
        self, entered: "asyncio.Future[object]", reason: "asyncio.Future[Reason]"
    ) -> object:
        entered.set_result(await self._manager.__aenter__())
        try:
            why = await reason
        except asyncio.CancelledError as cancelled:
            await self._manager.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
            raise
        return await self._manager.__aexit__(*why)
