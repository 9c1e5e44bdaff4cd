"""W22: a store that serves a table of 5,000,000 entries (QUICK: 1,000,000) starts again.

    fill, once ──► stop the store ──► all partitions answer             `open s`
                   kill it, delete the index ──► all partitions answer  `rebuild s`, and the rate

Seconds count from the start of the new process until it has answered a get of 1,000 keys, which lie
in all partitions. They include the process's imports, the reading of the journal, and the time in
which the client finds the store. Without an index, a partition answers when its index is complete.
The store flushes as it does by default. `MiB`: the store's memory at the end of a round.
"""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from anabranch.client import TableSettings
from bench.case import MIB, Case, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.systems.anabranch import AnabranchApart
from bench.systems.port import System
from bench.systems.table import ArrowTable
from bench.workloads.port import WithClusterApart
from bench.workloads.tables import BLOCK_ENTRIES, block_keys, block_values, key_of

STORE = "segstore"
INDEXES = Path("segstore/tables")
"""Where the store keeps the indexes of its tables, below the cluster's directory."""
FILLERS = 8
PATIENCE_SECONDS = 600.0
LOOK_SECONDS = 0.005


class TableRestart(WithClusterApart):
    """The warm-up starts the cluster and fills its table, for all rounds."""

    name = "W22"
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self) -> None:
        super().__init__()
        self._filled: FilledTable | None = None

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        if warm_up:
            cluster = await self._stack.enter_async_context(system.cluster({}))
            settings = TableSettings(retry_timeout_s=PATIENCE_SECONDS)
            table = await self._stack.enter_async_context(cluster.table(settings))
            blocks = effort.table_entries // BLOCK_ENTRIES
            self._filled = FilledTable(cluster, table, case, blocks, clock)
            await self._filled.fill()
        filled = self._filled
        assert filled is not None, "not warmed up"
        opened_s = await filled.restart(signal.SIGTERM, keep_index=True)
        rebuilt_s = opened_s
        if not warm_up:
            rebuilt_s = await filled.restart(signal.SIGKILL, keep_index=False)
        memory = resident_bytes(filled.cluster.pids_of(STORE))
        notes = {"open s": opened_s, "rebuild s": rebuilt_s, "MiB": memory / MIB}
        return Sample(filled.entries, rebuilt_s, None, await filled.is_right(), notes=notes)


class Cluster(Protocol):
    """A cluster that starts its parts again when they end."""

    @property
    def data_dir(self) -> Path: ...

    def pids_of(self, part: str) -> list[int]: ...

    def signal(self, part: str, how: signal.Signals) -> None: ...


class FilledTable:
    """A table of so many blocks, and the cluster that it lies in."""

    def __init__(
        self, cluster: Cluster, table: ArrowTable, case: Case, blocks: int, clock: Stopwatch
    ) -> None:
        assert blocks > 0, "there is a block at least"
        self.cluster = cluster
        self.entries = blocks * BLOCK_ENTRIES
        self._table = table
        self._values = block_values(case, 0)
        self._clock = clock
        self._probes = [number * blocks for number in range(BLOCK_ENTRIES)]

    async def fill(self) -> None:
        """Put all entries."""
        turns = iter(range(self.entries // BLOCK_ENTRIES))

        async def put(turns: Iterator[int]) -> None:
            for block in turns:
                await self._table.put_many(dict(zip(block_keys(block), self._values, strict=True)))

        async with asyncio.TaskGroup() as group:
            for _ in range(FILLERS):
                group.create_task(put(turns))

    async def restart(self, how: signal.Signals, *, keep_index: bool) -> float:
        """End the store → seconds from the start of the next one until all partitions answer."""
        before = self.cluster.pids_of(STORE)
        self.cluster.signal(STORE, how)
        if not keep_index:
            # The next process takes longer to load than this takes, and opens an index when asked.
            shutil.rmtree(self.cluster.data_dir / INDEXES)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.cluster.pids_of(STORE) in ([], before):  # noqa: ASYNC110  the cluster tells nobody
                await asyncio.sleep(LOOK_SECONDS)
            began = self._clock.now()
            await self._probe()
        return self._clock.now() - began

    async def is_right(self) -> bool:
        """Whether the number of entries, and the values of a thousand, are those that were put."""
        expected = [self._values[number % BLOCK_ENTRIES] for number in self._probes]
        return await self._probe() == expected and await self._table.scan_arrow() == self.entries

    async def _probe(self) -> list[bytes]:
        return list(await self._table.get_many([key_of(number) for number in self._probes]))
