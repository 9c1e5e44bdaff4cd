"""Parts that requests share while they are open: one per name, up to a maximum.

The first request of a name opens its part, and later requests share it. The gateway closes a part
after it failed, after it was idle for a while, when it has reached its age, or to make room for
another one; in each case after the requests that use it have ended.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from anabranch.common.errors import AnabranchError, Overloaded
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import naming_defects, tell_defect

SWEEP_S = 5.0


class OpenPart(Protocol):
    """An open part; one that has `failed` serves no later request."""

    @property
    def failed(self) -> bool: ...

    async def close(self) -> None: ...


P = TypeVar("P", bound=OpenPart)


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """`things`: the kind of the parts, for errors. `age_s_max`: after this time, later requests
    open another part."""

    things: str
    open_max: int
    idle_s: float
    age_s_max: float = math.inf


@dataclass(eq=False, slots=True)
class _Slot(Generic[P]):
    opening: asyncio.Task[P | AnabranchError]
    opened_s: float
    used_s: float
    users: int = field(default=0)


class Leases(Generic[P]):
    """The open parts. `open_part` opens one; `serve` closes them."""

    def __init__(
        self,
        open_part: Callable[[str], Awaitable[P]],
        clock: Clock,
        tasks: asyncio.TaskGroup,
        limits: LeaseLimits,
    ) -> None:
        self._open_part = open_part
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._slots: dict[str, _Slot[P]] = {}
        self._leaving: list[_Slot[P]] = []
        self._sweep = asyncio.Event()

    def __len__(self) -> int:
        return len(self._slots)

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[P]:
        """The open part of the name. Raises the errors of opening it, and Overloaded."""
        slot = self._current(name) or self._new_slot(name)
        slot.users += 1
        part: P | AnabranchError | None = None
        try:
            part = await asyncio.shield(slot.opening)
            if isinstance(part, AnabranchError):
                raise part.copy()
            yield part
        finally:
            self._release(name, slot, part)

    def lease_now(self, name: str) -> tuple[P, Callable[[], None]] | None:
        """The part of the name if it is open, and the call that ends this lease; else None."""
        slot = self._current(name)
        if slot is None or not slot.opening.done():
            return None
        part = slot.opening.result()
        if isinstance(part, AnabranchError) or part.failed:
            return None
        slot.users += 1
        return part, partial(self._release, name, slot, part)

    def _release(self, name: str, slot: _Slot[P], part: P | AnabranchError | None) -> None:
        slot.users -= 1
        slot.used_s = self._clock.monotonic()
        if isinstance(part, AnabranchError) or (part is not None and part.failed):
            self._drop(name, slot)

    def forget_where(self, is_meant: Callable[[str], bool]) -> None:
        """Close the parts of these names; later requests open others."""
        for name in [name for name in self._slots if is_meant(name)]:
            self._drop(name, self._slots[name])

    async def serve(self) -> None:
        """Close dropped and idle parts until cancelled."""
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
                part = await asyncio.shield(slot.opening)
                if not isinstance(part, AnabranchError):
                    await part.close()

    def _drop_idle(self) -> None:
        oldest_s = self._clock.monotonic() - self._limits.idle_s
        for name, slot in list(self._slots.items()):
            if not slot.users and slot.used_s <= oldest_s:
                self._drop(name, slot)

    def _current(self, name: str) -> _Slot[P] | None:
        """The slot of the name, unless it has reached its age."""
        slot = self._slots.get(name)
        if slot is None or self._clock.monotonic() < slot.opened_s + self._limits.age_s_max:
            return slot
        self._drop(name, slot)
        return None

    def _new_slot(self, name: str) -> _Slot[P]:
        if len(self._slots) + len(self._leaving) >= self._limits.open_max:
            self._make_room()
        now_s = self._clock.monotonic()
        slot = _Slot(self._tasks.create_task(self._opened(name)), now_s, now_s)
        self._slots[name] = slot
        return slot

    def _make_room(self) -> None:
        """Drop the least recently used idle part. Raises Overloaded if all are in use."""
        idle = [(slot.used_s, name) for name, slot in self._slots.items() if not slot.users]
        if not idle or len(self._leaving) >= self._limits.open_max:
            raise Overloaded(f"too many open {self._limits.things}", limit=self._limits.open_max)
        name = min(idle)[1]
        self._drop(name, self._slots[name])

    def _drop(self, name: str, slot: _Slot[P]) -> None:
        if self._slots.get(name) is slot:
            del self._slots[name]
            self._leaving.append(slot)
            self._sweep.set()

    async def _opened(self, name: str) -> P | AnabranchError:
        try:
            with naming_defects(f"opening one of the {self._limits.things}"):
                return await self._open_part(name)
        except AnabranchError as error:
            tell_defect(error)
            return error
