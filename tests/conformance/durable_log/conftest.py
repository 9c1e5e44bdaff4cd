"""The places of logs: journals by both writers, memory, replicas, and streams of servers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import SeededIds, SystemIds
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.jetstream_log.nats_stream import (
    CheckSynced,
    NatsStream,
    NatsStreams,
)
from anabranch.segstore.adapters.jetstream_log.sync_check import unchecked
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from kit.deferred_commits import DeferredCommits
from kit.log_places import AnyPlace, OwnPlace, ReplicaPlace, ServerPlace
from kit.rng import seeded
from kit.sim_stream import SimClient, SimServers
from kit.simdisk import SimDisk
from kit.stream_log import around_of
from kit.virtual_time import VirtualTimeLoop
from kit.writer_child import ChildCallbacks

FILE_SIZE = 4096


def _journal(disk: Disk, *, in_threads: bool = False) -> OwnPlace:
    ids = SeededIds(1)
    return OwnPlace(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, in_threads=in_threads
        )
    )


def _deferred(disk: Disk) -> OwnPlace:
    ids = SeededIds(1)
    return OwnPlace(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, commits=DeferredCommits(run)
        )
    )


def _process(disk: Disk) -> OwnPlace:
    ids, callbacks = SeededIds(1), ChildCallbacks()
    return OwnPlace(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, commits=callbacks.start()
        ),
        callbacks,
    )


def _memory(_: Path) -> OwnPlace:
    frames = MemoryFrames("ab" * 16)
    return OwnPlace(lambda run: MemoryLog(frames, run))


OWN: dict[str, Callable[[Path], OwnPlace]] = {
    "journal-simulated": lambda _: _journal(SimDisk()),
    "journal-local": lambda path: _journal(LocalDisk(path)),
    "journal-simulated-deferred": lambda _: _deferred(SimDisk()),
    "journal-local-process": lambda path: _process(LocalDisk(path)),
    "journal-local-in-threads": lambda path: _journal(LocalDisk(path), in_threads=True),
    "memory": _memory,
}


def _on_simulated_servers() -> ServerPlace:
    runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
    servers, ids = SimServers(seeded(1)), SeededIds(1)
    loop = runner.get_loop()
    return ServerPlace(
        runner, lambda spawn: StreamLog(SimClient(servers), around_of(loop, spawn), ids)
    )


def _on_nats(url: str) -> ServerPlace:
    """Streams of a NATS server, which the tests of a session share: a name may be taken already."""
    runner = asyncio.Runner()
    loop, clock = runner.get_loop(), SystemClock()
    client = runner.run(connect_nats(nats_target(url), "test"))
    streams = OwnStreams(client, clock, replicas=1, check_synced=unchecked)
    runner.run(streams.listen())
    sender = loop.create_task(streams.run())

    async def end() -> None:
        sender.cancel()
        await close_nats(client)

    return ServerPlace(
        runner, lambda spawn: StreamLog(streams, around_of(loop, spawn), SystemIds()), end
    )


class OwnStreams(NatsStreams):
    """Streams whose names no other test uses."""

    def __init__(
        self, client: Client, clock: Clock, *, replicas: int, check_synced: CheckSynced
    ) -> None:
        super().__init__(client, clock, replicas=replicas, check_synced=check_synced)
        self._run = SystemIds().new_id()

    def stream(self, log_id: str) -> NatsStream:
        return super().stream(f"{log_id}-{self._run}")

    async def create(self, log_id: str) -> None:
        await super().create(f"{log_id}-{self._run}")

    async def delete(self, log_id: str) -> None:
        await super().delete(f"{log_id}-{self._run}")


@pytest.fixture(params=list(OWN))
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnPlace]:
    """A place in the process."""
    place = OWN[request.param](tmp_path)
    yield place
    place.close()


REPLICATED: dict[str, Callable[[], ReplicaPlace]] = {
    "replicated-alone": lambda: ReplicaPlace("a"),
    "replicated-three": lambda: ReplicaPlace("a", "b", "c"),
    "replicated-journals": lambda: ReplicaPlace("a", "b", "c", journal_file_size=16 * FILE_SIZE),
}


@pytest.fixture(params=[*OWN, *REPLICATED, "stream-simulated", "stream-nats"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyPlace]:
    """Any place."""
    place: AnyPlace
    if request.param == "stream-nats":
        place = _on_nats(request.getfixturevalue("nats_server").url)
    elif request.param == "stream-simulated":
        place = _on_simulated_servers()
    elif request.param in REPLICATED:
        place = REPLICATED[request.param]()
    else:
        place = OWN[request.param](tmp_path)
    yield place
    place.close()
