"""Chunk storages that misbehave as real ones do, and a scheduler that interleaves owners."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.storage.ports import Buffer, ChunkStorage

T = TypeVar("T")
PUT_S = 0.01


class UnhurriedStorage(LocalChunkStorage):
    """Takes a moment for each object, so that clients are served while a flush is under way."""

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        """See `ports.ChunkStorage`."""
        await asyncio.sleep(PUT_S)
        await super().put_new(name, parts)


class UnknownOutcomes:
    """Puts whose outcome is unknown: of the numbered puts, performed or not."""

    def __init__(
        self, storage: ChunkStorage, *, performed: Sequence[int] = (), lost: Sequence[int] = ()
    ) -> None:
        self._storage = storage
        self._performed = performed
        self._lost = lost
        self.puts: list[str] = []

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.puts.append(name)
        number = len(self.puts)
        if number not in self._lost:
            await self._storage.put_new(name, parts)
        if number in self._lost or number in self._performed:
            raise OutcomeUnknown("the connection broke", name=name)

    async def get(self, name: str) -> bytes:
        return await self._storage.get(name)

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        return await self._storage.get_range(name, offset, length)

    async def size(self, name: str) -> int:
        return await self._storage.size(name)

    async def list(self, prefix: str) -> Sequence[str]:
        return await self._storage.list(prefix)

    async def delete(self, name: str) -> None:
        await self._storage.delete(name)


class _Pause:
    """Awaited, it hands control to whoever drives the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class PausingStorage:
    """Pauses before every call, so that a driver decides whose call comes next."""

    def __init__(self, storage: ChunkStorage) -> None:
        self._storage = storage

    async def _after_pause(self, call: Callable[[], Awaitable[T]]) -> T:
        await _Pause()
        return await call()

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        await self._after_pause(lambda: self._storage.put_new(name, parts))

    async def get(self, name: str) -> bytes:
        return await self._after_pause(lambda: self._storage.get(name))

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        return await self._after_pause(lambda: self._storage.get_range(name, offset, length))

    async def size(self, name: str) -> int:
        return await self._after_pause(lambda: self._storage.size(name))

    async def list(self, prefix: str) -> Sequence[str]:
        return await self._after_pause(lambda: self._storage.list(prefix))

    async def delete(self, name: str) -> None:
        await self._after_pause(lambda: self._storage.delete(name))


def run_schedule(owners: Sequence[Coroutine[Any, Any, None]], schedule: Sequence[int]) -> list[int]:
    """Run coroutines pause by pause: first as `schedule` says, then in order of their numbers.

    Returns, per step taken, how many owners could have been chosen. Owner numbers in the
    schedule index the list of those still running.
    """
    running = list(owners)
    choices: list[int] = []
    while running:
        step = len(choices)
        choices.append(len(running))
        chosen = running[schedule[step] if step < len(schedule) else 0]
        try:
            chosen.send(None)
        except StopIteration:
            running.remove(chosen)
    return choices


def all_schedules(run: Callable[[Sequence[int]], list[int]], stride: int = 1) -> int:
    """Call `run(schedule)` for every interleaving there is; how many there were.

    With a `stride`, only for those that turn to another one at a step that is a multiple of it,
    counted from the last turn.

    `run` performs one interleaving from scratch and returns what `run_schedule` returned.
    """
    count = 0
    pending: list[tuple[int, ...]] = [()]
    while pending:
        prefix = pending.pop()
        choices = run(prefix)
        count += 1
        for step in range(len(prefix), len(choices), stride):
            filler = (0,) * (step - len(prefix))
            pending += [(*prefix, *filler, other) for other in range(1, choices[step])]
    return count
