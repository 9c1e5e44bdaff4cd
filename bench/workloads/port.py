"""What a workload is: sizes of events, which systems it suits, and one round on one of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

from bench.case import Case, Digest, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import cpu_seconds
from bench.systems.anabranch import APART
from bench.systems.port import Label, Stream, System


class Workload(Protocol):
    name: str
    event_bytes: tuple[int, ...]

    def suits(self, label: Label) -> bool:
        """Whether a row for this system says something."""
        ...

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        """One round on a fresh stream; a warm-up is shorter, and nobody keeps its figures."""
        ...


class WithClusterApart:
    """A workload on a cluster of its own, which one round starts for all later ones.

    It is entered as a context. `_stack` holds what the rounds share, until the end.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def suits(self, label: Label) -> bool:
        return label.settings == APART


class Meter:
    """Time on the clock, and on the processor by the client and all of a system's servers."""

    def __init__(self, system: System, clock: Stopwatch) -> None:
        self._system = system
        self._clock = clock
        self._cpu_before = self._cpu()
        self._started = clock.now()

    def read(self) -> tuple[float, float]:
        """Seconds, and processor seconds, since this was made."""
        return self._clock.now() - self._started, self._cpu() - self._cpu_before

    def _cpu(self) -> float:
        return self._clock.own_cpu() + cpu_seconds(self._system.pids())


@asynccontextmanager
async def plain_stream(system: System, case: Case) -> AsyncIterator[Stream]:
    """A fresh stream of a system that keeps what is written."""
    async with system.stream(case) as stream:
        assert isinstance(stream, Stream), "the system keeps nothing"
        yield stream


async def holds_exactly(stream: Stream, case: Case, events: int) -> bool:
    """Whether the system holds the first `events` events of the repeated pool and no more."""
    expected, found = Digest(), Digest()
    expected.add_pool(case, events)
    async for batch in stream.read_back():
        found.add(batch)
    return found == expected
