"""What the workloads ask of a system. Every system and the tests' fake fulfil it.

A system is a server (or a file) with a durability class; a stream is one fresh log in it, open
for one writer. Whatever returns from `write_all`, `append` or `send` is acknowledged with the
durability of the system's class.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from bench.case import Case

Durability = Literal["D1", "D2", "–"]
"""D1: an acknowledged event survives `kill -9`. D2: it is synced to disk before. –: not kept."""

NOT_KEPT: Durability = "–"


@dataclass(frozen=True, slots=True)
class Label:
    """Whom a row is about. `settings` tells apart what runs under one system's name."""

    system: str
    settings: str
    durability: Durability


@runtime_checkable
class Stream(Protocol):
    """A fresh log with one writer."""

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        """Write as fast as it goes; return when all is acknowledged."""
        ...

    async def append(self, event: bytes) -> None:
        """Write one event and wait for its acknowledgement."""
        ...

    def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        """Everything that the system holds now, in its order; then end."""
        ...


@runtime_checkable
class TailedStream(Stream, Protocol):
    """A log that can be read while it grows."""

    sends_in_flight_max: int
    """How many `send` calls may wait at once without mixing up their order."""

    async def send(self, events: Sequence[bytes]) -> None:
        """Write events that became due together; return when all are acknowledged."""
        ...

    def tail(self) -> AbstractAsyncContextManager[AsyncIterator[Sequence[bytes]]]:
        """Inside the block a reader stands at the end and yields what comes."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A log whose system moves accepted bytes on to where they stay; both in `directory`."""

    directory: Path

    async def settle(self) -> None:
        """Return when everything that was accepted has been moved, if it is at all."""
        ...


@runtime_checkable
class KeyedStream(Stream, Protocol):
    """A log of several segments, of which keys choose one."""

    async def write_all_keyed(
        self, batches: Iterable[Sequence[bytes]], keys: Sequence[str]
    ) -> None:
        """As `write_all`; event i of every batch has key i."""
        ...


@runtime_checkable
class SingleWrites(Stream, Protocol):
    """A log with a call for one event that does not wait."""

    async def write_each(self, batches: Iterable[Sequence[bytes]]) -> None:
        """As `write_all`, with one call for each event."""
        ...


ReadingWay = Literal["arrow", "batches", "async for"]


@runtime_checkable
class ReadInWays(Stream, Protocol):
    """A log whose client reads in several ways."""

    async def read_in(self, way: ReadingWay) -> int:
        """Read everything that the system holds now → how many events."""
        ...


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Where events are posted, one to a body, and where one event is got."""

    host: str
    port: int
    post_path: str
    get_path: str


@runtime_checkable
class HttpStream(Protocol):
    """A log, or what stands for one, behind HTTP."""

    http: HttpTarget


@runtime_checkable
class ManyWriters(Stream, Protocol):
    """A log that many writers write to, each of its own."""

    def appenders(
        self, count: int
    ) -> AbstractAsyncContextManager[Sequence[Callable[[bytes], Awaitable[None]]]]:
        """Inside the block, the `append` of each of `count` writers."""
        ...


@runtime_checkable
class Transactional(Stream, Protocol):
    """A log that takes several events wholly or not at all."""

    def transactors(
        self, count: int
    ) -> AbstractAsyncContextManager[Sequence[Callable[[Sequence[bytes]], Awaitable[None]]]]:
        """Inside the block, what stores events as one transaction, for each of `count` callers."""
        ...


class SparkSource(NamedTuple):
    """How Spark reads a stream."""

    format: str
    options: Mapping[str, str]


@runtime_checkable
class SparkStream(Protocol):
    """A log, or what stands for one, that Spark reads."""

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        """As `Stream.write_all`."""
        ...

    async def spark_source(self, source: str) -> SparkSource:
        """All that was written can be read by it; `source`: ``tier2`` or ``stores``."""
        ...


class System(Protocol):
    """One system under one configuration; `run` it before anything else."""

    label: Label

    def run(self, directory: Path) -> AbstractAsyncContextManager[None]:
        """Keep the servers up, with their data in `directory`, for as long as the block lasts."""
        ...

    def pids(self) -> list[int]:
        """The server processes, for their processor time."""
        ...

    def stream(self, case: Case) -> AbstractAsyncContextManager[Stream | HttpStream | SparkStream]:
        """A fresh stream, deleted after the block."""
        ...
