"""Processes of a view are killed and frozen at any moment; rows are the plain fold of events.

The stream is written and scaled meanwhile, and its store is killed once. A frozen process wakes
when others have taken its segments, and continues with an update that it had begun.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import (
    BufferFull,
    Client,
    GroupStream,
    JsonSerializer,
    ReaderGroupConfig,
    connect,
)
from anabranch.common.model.names import stream_ref
from kit.rng import seeded
from kit.scaling_traffic import scale_to
from kit.view_process import GROUP, STREAM, TABLE, plain_fold, view

KEYS = 40
LEASE_MS = 1_000
BLOWS = 8
PROGRESS_S_MAX = 30.0
CAUGHT_UP_S_MAX = 60.0


async def write_until(client: Client, done: asyncio.Event) -> int:
    """Events of all keys in turn; how many."""
    number = 0
    async with client.writer(STREAM) as writer:
        while not done.is_set():
            for key in range(KEYS):
                try:
                    writer.write(str(number), f"key-{key}")
                except BufferFull:
                    await writer.drain()
                    writer.write(str(number), f"key-{key}")
            number += 1
            await asyncio.sleep(0.005)
    return number * KEYS


async def folded(client: Client) -> int:
    """How many events the shared rows have."""
    async with client.table(TABLE, value=JsonSerializer()) as table:
        return sum([entry.value["count"] async for entry in table.entries(prefix="shared")])


async def more_folded(client: Client) -> None:
    """Wait until the view has made progress."""
    before = await folded(client)
    async with asyncio.timeout(PROGRESS_S_MAX):
        while await folded(client) == before:  # noqa: ASYNC110  other processes fold
            await asyncio.sleep(0.02)


class Fleet:
    """The processes that run the view: two, and those that are frozen."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.running: list[Process] = []
        self.frozen: list[Process] = []

    async def start(self) -> None:
        program = (sys.executable, "-P", "-m", "kit.view_process", self._cluster)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.running.append(await asyncio.create_subprocess_exec(*program, env=environment))

    async def kill(self, process: Process) -> None:
        process.kill()
        await process.wait()

    def freeze(self, process: Process) -> None:
        process.send_signal(signal.SIGSTOP)
        self.frozen.append(process)

    def thaw(self) -> None:
        """They wake as zombies, and work on."""
        for process in self.frozen:
            process.send_signal(signal.SIGCONT)
            self.running.append(process)
        self.frozen.clear()


@asynccontextmanager
async def fleet_of(cluster: EmbeddedCluster, data_dir: Path) -> AsyncIterator[Fleet]:
    """Two processes at first; none is left."""
    fleet = Fleet(str(data_dir))
    try:
        await fleet.start()
        await fleet.start()
        yield fleet
    finally:
        for process in (*fleet.running, *fleet.frozen):
            if process.returncode is None:
                await fleet.kill(process)


async def strike(client: Client, fleet: Fleet, store: int) -> None:
    """Kill and freeze processes at any moment after some progress; scale the stream meanwhile."""
    rng = seeded(LEASE_MS)
    for blow in range(BLOWS):
        await more_folded(client)
        await asyncio.sleep(rng.random() * 0.5)
        victim = fleet.running.pop(rng.randrange(len(fleet.running)))
        if blow % 4 == 1:
            fleet.freeze(victim)
        else:
            await fleet.kill(victim)
        if blow == BLOWS // 2:
            os.kill(store, signal.SIGKILL)
        if blow % 4 == 3:
            fleet.thaw()
        while len(fleet.running) < 2:
            await fleet.start()
        if blow % 3 == 0:
            await scale_to(client, stream_ref(STREAM), 1 + rng.randrange(4))
    await more_folded(client)


async def test_a_view_is_the_plain_fold_of_its_events_whenever_its_processes_are_killed(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    async with (
        embedded_cluster(UpSettings(data_dir)) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create("kills")
        await client.streams.create(STREAM, segments=2)
        await client.tables.create(TABLE)
        config = ReaderGroupConfig((GroupStream(STREAM),), lease_ms=LEASE_MS)
        await client.reader_groups.create(GROUP, config)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as tasks, fleet_of(cluster, data_dir) as fleet:
            writing = tasks.create_task(write_until(client, done))
            await strike(client, fleet, cluster.segstore_pids()[0])
            done.set()
            written = await writing
        async with view(client) as running, asyncio.timeout(CAUGHT_UP_S_MAX):
            await running.run(until_caught_up=True)
        async with client.reader(STREAM, until_tail=True) as reader:
            events = [event async for event in reader]
        async with client.table(TABLE, value=JsonSerializer()) as table:
            found: dict[str, Any] = {e.key.decode(): e.value async for e in table.entries()}
    assert len(events) == written
    assert found == plain_fold(events)
