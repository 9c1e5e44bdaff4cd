"""The open writers: one per recently used destination, up to a maximum.

A destination is a stream, a transaction or a part of one, by its name (see `destinations`). The
first request opens its writer, and later requests share it. The gateway closes a writer after it
failed, after it was idle for a while, or to make room for another destination's writer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import AnabranchError, Overloaded
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import naming_defects, tell_defect
from anabranch.gateway.events.destinations import Writer, is_within

SWEEP_S = 5.0


@dataclass(eq=False, slots=True)
class _Slot:
    opening: asyncio.Task[Writer | AnabranchError]
    used_s: float
    users: int = field(default=0)


class OpenWriters:
    """The open writers. `open_writer` opens one; `serve` closes them."""

    def __init__(
        self,
        open_writer: Callable[[str], Awaitable[Writer]],
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        writers_max: int,
        idle_s: float,
    ) -> None:
        self._open_writer = open_writer
        self._clock = clock
        self._tasks = tasks
        self._writers_max = writers_max
        self._idle_s = idle_s
        self._slots: dict[str, _Slot] = {}
        self._leaving: list[_Slot] = []
        self._sweep = asyncio.Event()

    def __len__(self) -> int:
        return len(self._slots)

    @asynccontextmanager
    async def lease(self, destination: str) -> AsyncIterator[Writer]:
        """The destination's open writer. Raises the errors of opening it, and Overloaded."""
        slot = self._slots.get(destination) or self._new_slot(destination)
        slot.users += 1
        writer: Writer | AnabranchError | None = None
        try:
            writer = await asyncio.shield(slot.opening)
            if isinstance(writer, AnabranchError):
                raise writer.copy()
            yield writer
        finally:
            slot.users -= 1
            slot.used_s = self._clock.monotonic()
            if isinstance(writer, AnabranchError) or (writer is not None and writer.failed):
                self._drop(destination, slot)

    def forget(self, destination: str) -> None:
        """Close the writers to the destination, or within it, because it is ending."""
        for name in [name for name in self._slots if is_within(name, destination)]:
            self._drop(name, self._slots[name])

    async def serve(self) -> None:
        """Close dropped and idle writers until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._sweep.wait()
            self._sweep.clear()
            self._drop_idle()
            waiting = [slot for slot in self._leaving if slot.users]
            leaving = [slot for slot in self._leaving if not slot.users]
            self._leaving = waiting
            for slot in leaving:
                writer = await asyncio.shield(slot.opening)
                if isinstance(writer, LaneWriter):
                    await writer.close()

    def _drop_idle(self) -> None:
        oldest_s = self._clock.monotonic() - self._idle_s
        for destination, slot in list(self._slots.items()):
            if not slot.users and slot.used_s <= oldest_s:
                self._drop(destination, slot)

    def _new_slot(self, destination: str) -> _Slot:
        if len(self._slots) + len(self._leaving) >= self._writers_max:
            self._make_room()
        slot = _Slot(self._tasks.create_task(self._opened(destination)), self._clock.monotonic())
        self._slots[destination] = slot
        return slot

    def _make_room(self) -> None:
        """Drop the least recently used idle writer. Raises Overloaded if all are in use."""
        idle = [(slot.used_s, name) for name, slot in self._slots.items() if not slot.users]
        if not idle or len(self._leaving) >= self._writers_max:
            raise Overloaded(
                "too many open writers of streams and transactions", limit=self._writers_max
            )
        destination = min(idle)[1]
        self._drop(destination, self._slots[destination])

    def _drop(self, destination: str, slot: _Slot) -> None:
        if self._slots.get(destination) is slot:
            del self._slots[destination]
            self._leaving.append(slot)
            self._sweep.set()

    async def _opened(self, destination: str) -> Writer | AnabranchError:
        try:
            with naming_defects("opening a writer"):
                return await self._open_writer(destination)
        except AnabranchError as error:
            tell_defect(error)
            return error
