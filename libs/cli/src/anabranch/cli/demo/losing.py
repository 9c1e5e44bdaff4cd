"""Kills a store of the demo's cluster and wipes its disk, while the stream is written.

The logs of the containers are on JetStream, or have copies on the other stores, so other stores
open the containers. The lost store stays down until they have, and then comes back under its name
with an empty disk. The writer gets no notice. If the stores replicate the logs, the leaders make
its copies anew, and the demo waits for them.
"""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from anabranch.cli.demo.outcome import Loss
from anabranch.cli.figures import counted
from anabranch.cli.up import EmbeddedCluster
from anabranch.cli.up.held import HeldParts, store_at
from anabranch.client import Client
from anabranch.common.contracts.queries import ContainerDescription
from anabranch.common.errors import Retry, Unavailable
from anabranch.common.runtime.clock import Clock

LOSS_PART = 0.6
"""The share of the rows after which the store is lost; a reader is killed earlier."""
MOVED_S_MAX = 60.0
IN_SYNC_S_MAX = 120.0
LOOK_S = 0.02


class StoreLoss:
    """Owns the loss of one store. `remark` takes lines for people."""

    def __init__(
        self,
        client: Client,
        cluster: EmbeddedCluster,
        held: HeldParts,
        *,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        remark: Callable[[str], None],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._held = held
        self._tasks = tasks
        self._clock = clock
        self._remark = remark
        self._losing: asyncio.Task[Loss] | None = None

    def look(self, rows: int, lose_at: int) -> None:
        """Begin the loss, once, if it is due after `rows` written rows."""
        if rows >= lose_at and self._losing is None:
            self._losing = self._tasks.create_task(self._lose())

    async def finish(self) -> Loss:
        """Wait until the containers of the lost store are open on other stores."""
        assert self._losing is not None, "the rows were written"
        return await self._losing

    async def _lose(self) -> Loss:
        """Lose the store with the most containers."""
        containers = await self._containers()
        owned = Counter(map(self._owner, containers))
        [(store, count)] = owned.most_common(1)
        at_s = self._clock.monotonic()
        seconds = await self._lose_store(store, count)
        if not any(each.replicas for each in containers):
            return Loss(store, count, seconds)
        async with self._deadline("the copies of the logs are not in sync again", IN_SYNC_S_MAX):
            while not await self._in_sync():
                await self._clock.sleep(LOOK_S)
        in_sync_s = self._clock.monotonic() - at_s
        self._remark(f"all copies of the logs were in sync again after {in_sync_s:.1f} s")
        return Loss(store, count, seconds, in_sync_s)

    async def _lose_store(self, store: str, count: int) -> float:
        """→ the seconds until other stores have opened its `count` containers."""
        pids = self._cluster.pids(store)
        self._held.hold(store)
        try:
            at_s = self._clock.monotonic()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            async with self._deadline(f"{store} did not end"):
                while self._cluster.pids(store) == pids:
                    await self._clock.sleep(LOOK_S)
            await asyncio.to_thread(shutil.rmtree, self._cluster.data_dir / store)
            self._remark(f"killed {store}, which had {counted(count, 'container')}, and wiped it")
            late = "the containers of the lost store were not opened elsewhere"
            async with self._deadline(late):
                while not await self._moved_from(store):
                    await self._clock.sleep(LOOK_S)
            seconds = self._clock.monotonic() - at_s
            self._remark(f"other stores opened its containers after {seconds:.1f} s")
        finally:
            self._held.release(store)
        return seconds

    async def _containers(self) -> list[ContainerDescription]:
        return [container async for container in self._client.containers.list()]

    def _owner(self, container: ContainerDescription) -> str:
        """The store of a container; empty while none is known to run."""
        if not container.host:
            return ""
        return store_at(self._cluster, f"{container.host}:{container.port}")

    async def _moved_from(self, store: str) -> bool:
        try:
            containers = await self._containers()
        except Retry:  # the controller is behind
            return False
        return all(each.state == "open" and self._owner(each) != store for each in containers)

    async def _in_sync(self) -> bool:
        """Whether every copy of every log is in sync."""
        try:
            containers = await self._containers()
        except Retry:  # the controller is behind
            return False
        return all(len(each.isr) == len(each.replicas) for each in containers)

    @asynccontextmanager
    async def _deadline(self, late: str, seconds: float = MOVED_S_MAX) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            logs = self._cluster.data_dir / "logs"
            raise Unavailable(late, remedy=f"read the logs in {logs}") from error


class Pauses:
    """The longest time in which the writer made no progress."""

    def __init__(self, now_s: float) -> None:
        self._last_s = now_s
        self.longest_s = 0.0

    def progressed(self, now_s: float) -> None:
        """The writer had room for further rows, or a day's rows were acknowledged."""
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
