"""Places of logs for the conformance suite: each opens a `DurableDataLog` and drives it.

A log in the process runs on a queue of callbacks, without an event loop. A log on servers needs a
loop of its own: virtual for simulated servers, real for a NATS server.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.journal.journal import Journal
from anabranch.segstore.adapters.memory_log import MemoryLog
from anabranch.segstore.adapters.replicated_log.log import ReplicatedLog
from anabranch.segstore.ports import ContainerLog, DurableDataLog
from kit.log_driver import Callbacks, replay_of
from kit.replica_world import ReplicaWorld
from kit.virtual_time import VirtualTimeLoop

T = TypeVar("T")
L = TypeVar("L", bound=DurableDataLog, covariant=True)
SETTLE_S_MAX = 10.0


class Place(Protocol[L]):
    """A place where logs are kept, and the way to open it."""

    def open(self) -> L:
        """Open it once more, as another process would."""
        ...

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work to its end."""
        ...

    def settle(self) -> None:
        """Let everything happen that was begun."""
        ...

    def replayed(self, log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
        """What the log replays: first sequence → payload."""
        ...

    def close(self) -> None: ...


AnyPlace = Place[DurableDataLog]


@dataclass
class OwnPlace:
    """A place in the process."""

    start: Callable[[Callbacks], "Journal | MemoryLog"]
    callbacks: Callbacks = field(default_factory=Callbacks)
    opened: list["Journal | MemoryLog"] = field(default_factory=list)

    def open(self) -> "Journal | MemoryLog":
        log = self.start(self.callbacks)
        self.opened.append(log)
        return log

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    def settle(self) -> None:
        self.callbacks.run()

    def replayed(self, log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
        return asyncio.run(replay_of(log, after_sequence))

    def close(self) -> None:
        for log in self.opened:
            log.close()


class ServerPlace:
    """A place on servers. `start` gets the function that runs a task; `end` closes the rest."""

    def __init__(
        self,
        runner: asyncio.Runner,
        start: Callable[[Callable[[Coroutine[None, None, None]], object]], StreamLog],
        end: Callable[[], Coroutine[None, None, None]] | None = None,
    ) -> None:
        self._runner = runner
        self._start = start
        self._end = end
        self._opened: list[StreamLog] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> StreamLog:
        log = self._start(self._spawn)
        self._opened.append(log)
        return log

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._runner.get_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def settle(self) -> None:
        self._runner.run(self._settled())

    async def _settled(self) -> None:
        async with asyncio.timeout(SETTLE_S_MAX):
            await asyncio.sleep(0)
            while self._tasks or not all(log.idle for log in self._opened):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def replayed(self, log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
        return self.call(replay_of(log, after_sequence))

    def close(self) -> None:
        for log in self._opened:
            log.close()
        if self._end is not None:
            self._runner.run(self._end())
        self._runner.close()


class ReplicaPlace:
    """The first of some stores that replicate logs to each other."""

    def __init__(self, *nodes: str, journal_file_size: int = 0) -> None:
        loop = VirtualTimeLoop()
        self._runner = asyncio.Runner(loop_factory=lambda: loop)
        self._runner.get_loop()
        self._world = ReplicaWorld(loop, nodes, journal_file_size=journal_file_size)
        self._store = self._world.stores[nodes[0]]
        self._opened = False

    def open(self) -> ReplicatedLog:
        if self._opened:
            self._store.restart()
        self._opened = True
        return self._store.log

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def settle(self) -> None:
        self._runner.run(asyncio.sleep(0.5))

    def replayed(self, log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
        return self.call(replay_of(log, after_sequence))

    def close(self) -> None:
        self._world.end()
        self._runner.close()
