"""The open writers: one per stream that was written to lately, at most so many.

A writer is opened by the first request for its stream, shared by all that follow, and closed
when it failed, when nobody used it for a while, or when room is needed for another stream's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from anabranch.client import EventWriter
from anabranch.common.errors import AnabranchError, Overloaded
from anabranch.common.runtime.clock import Clock

SWEEP_S = 5.0


@dataclass(eq=False, slots=True)
class _Slot:
    opening: asyncio.Task[EventWriter | AnabranchError]
    used_s: float
    users: int = field(default=0)


class OpenWriters:
    """See the module. `serve` closes writers; `open_writer` makes one, not yet entered."""

    def __init__(
        self,
        open_writer: Callable[[str], EventWriter],
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
    async def lease(self, stream: str) -> AsyncIterator[EventWriter]:
        """The stream's open writer. Raises what opening it raises, and Overloaded."""
        slot = self._slots.get(stream) or self._new_slot(stream)
        slot.users += 1
        writer: EventWriter | AnabranchError | None = None
        try:
            writer = await asyncio.shield(slot.opening)
            if isinstance(writer, AnabranchError):
                raise writer.copy()
            yield writer
        finally:
            slot.users -= 1
            slot.used_s = self._clock.monotonic()
            if isinstance(writer, AnabranchError) or (writer is not None and writer.failed):
                self._drop(stream, slot)

    def forget(self, stream: str) -> None:
        """Close the stream's writer, if there is one: the stream is being ended."""
        slot = self._slots.get(stream)
        if slot is not None:
            self._drop(stream, slot)

    async def serve(self) -> None:
        """Close what is to be closed, until cancelled."""
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
                if isinstance(writer, EventWriter):
                    await writer.close()

    def _drop_idle(self) -> None:
        oldest_s = self._clock.monotonic() - self._idle_s
        for stream, slot in list(self._slots.items()):
            if not slot.users and slot.used_s <= oldest_s:
                self._drop(stream, slot)

    def _new_slot(self, stream: str) -> _Slot:
        if len(self._slots) + len(self._leaving) >= self._writers_max:
            self._make_room()
        slot = _Slot(self._tasks.create_task(self._opened(stream)), self._clock.monotonic())
        self._slots[stream] = slot
        return slot

    def _make_room(self) -> None:
        """Drop the writer that was unused for longest. Raises Overloaded if all are in use."""
        idle = [(slot.used_s, name) for name, slot in self._slots.items() if not slot.users]
        if not idle or len(self._leaving) >= self._writers_max:
            raise Overloaded("too many streams are being written to", limit=self._writers_max)
        stream = min(idle)[1]
        self._drop(stream, self._slots[stream])

    def _drop(self, stream: str, slot: _Slot) -> None:
        if self._slots.get(stream) is slot:
            del self._slots[stream]
            self._leaving.append(slot)
            self._sweep.set()

    async def _opened(self, stream: str) -> EventWriter | AnabranchError:
        try:
            return await self._open_writer(stream).__aenter__()
        except AnabranchError as error:
            return error
