"""Processes that share state through a real cluster, whose store is killed meanwhile."""

import asyncio
import os
import signal
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, StateSynchronizer, connect
from kit.shared_state import CountCodec

STREAM = "shared/count"
SYNCHRONIZERS = 8
COUNTED = 400
COMPACT_AT = 40
COUNTED_S_MAX = 120.0


async def count(client: Client, killed: asyncio.Event) -> tuple[int, int | None]:
    """Count to `COUNTED` together with the others → (what was counted here, the state in the end).

    Half of it is left for the time after the store was killed.
    """
    counted = 0
    async with client.state_synchronizer(STREAM, CountCodec()) as shared:
        await shared.initialize(0)
        while await shared.update(lambda state: [1] if state < COUNTED else []):
            counted += 1
            if (shared.state or 0) >= COUNTED // 2:
                await killed.wait()
            if shared.entries_since_init >= COMPACT_AT:
                await shared.compact()
        await shared.fetch()
        return counted, shared.state


async def kill_the_store(cluster: EmbeddedCluster, client: Client, killed: asyncio.Event) -> None:
    async with client.state_synchronizer(STREAM, CountCodec()) as shared:
        while (shared.state or 0) < COUNTED // 4:
            await shared.fetch(wait_s=5.0)
    (pid,) = cluster.pids("segstore")
    os.kill(pid, signal.SIGKILL)
    killed.set()


async def stand_of(shared: StateSynchronizer[int, int]) -> tuple[int | None, int]:
    await shared.fetch()
    return shared.state, shared.entries_since_init


async def test_synchronizers_count_together_while_their_store_is_killed(tmp_path: Path) -> None:
    async with (
        embedded_cluster(UpSettings(data_dir=tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await client.scopes.create("shared")
        await client.streams.create(STREAM)
        killed = asyncio.Event()
        async with asyncio.timeout(COUNTED_S_MAX), asyncio.TaskGroup() as group:
            counting = [group.create_task(count(client, killed)) for _ in range(SYNCHRONIZERS)]
            group.create_task(kill_the_store(cluster, client, killed))
        counted, states = zip(*(task.result() for task in counting), strict=True)
        assert states == (COUNTED,) * SYNCHRONIZERS
        assert sum(counted) == COUNTED
        async with (
            client.revisioned_stream(STREAM) as log,
            client.state_synchronizer(STREAM, CountCodec()) as fresh,
        ):
            assert await log.head() > 0, "no compaction has truncated"
            state, since_init = await stand_of(fresh)
            assert state == COUNTED
            assert since_init < COUNTED // 2
