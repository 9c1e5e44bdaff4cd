"""Reads that equal requests share.

    request ──is an equal read due?──yes──► waits for it
                    │ no
                    └──► due, until the event loop's next turn ──► begun ──► its answer for all

Many callers that follow a stream ask for the same events at the same time. A request joins a read
only before it begins, so an answer contains everything that was stored when its request arrived. A
read continues when a caller goes, because others may wait for it; it has its own deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from anabranch.common.errors import AnabranchError
from anabranch.common.workflow.containment import naming_defects, tell_defect

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class SharedReads(Generic[K, R]):
    """The reads of one kind. `perform` has a deadline. Callers leave the shared result unchanged.

    `tasks` outlives all requests.
    """

    def __init__(self, perform: Callable[[K], Awaitable[R]], tasks: asyncio.TaskGroup) -> None:
        self._perform = perform
        self._tasks = tasks
        self._due: dict[K, list[asyncio.Future[R]]] = {}

    async def read(self, key: K) -> R:
        """The result of a read that begins after this call. Raises the errors of `perform`."""
        waiting = self._due.get(key)
        if waiting is None:
            waiting = self._due[key] = []
            self._tasks.create_task(self._read_for(key, waiting))
        mine: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        return await mine

    async def _read_for(self, key: K, waiting: list[asyncio.Future[R]]) -> None:
        del self._due[key]
        try:
            with naming_defects("reading for several callers"):
                result = await self._perform(key)
        except AnabranchError as error:
            tell_defect(error)
            for each in waiting:
                if not each.done():
                    each.set_exception(error.copy())
        else:
            for each in waiting:
                if not each.done():
                    each.set_result(result)
        finally:
            for each in waiting:
                each.cancel()  # The gateway is stopping; no effect on what is done.
