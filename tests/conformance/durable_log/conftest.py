"""The places of logs: journals by both writers, memory, and streams of servers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from kit.deferred_commits import DeferredCommits
from kit.log_places import AnyPlace, OwnPlace, ServerPlace
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


@pytest.fixture(params=list(OWN))
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnPlace]:
    """A place in the process."""
    place = OWN[request.param](tmp_path)
    yield place
    place.close()


@pytest.fixture(params=[*OWN, "stream-simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyPlace]:
    """Any place."""
    own = OWN.get(request.param)
    place = own(tmp_path) if own is not None else _on_simulated_servers()
    yield place
    place.close()
