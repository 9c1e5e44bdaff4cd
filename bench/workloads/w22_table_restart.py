"""W22: a store that serves a table of 5,000,000 entries (QUICK: 1,000,000) starts again.

    fill, once ──► stop the store ──► first get answered            `open s`
                ──► kill it, delete the index ──► the same again    the rate of the rebuild

Seconds count from the start of the new process until it has answered a get of 1,000 keys, which all
partitions share: so they include the imports, the reading of the journal, and the client's finding
the store. After the deletion each partition answers when its index is complete. The store flushes
as it does by default. `MiB`: the store's memory after that.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from anabranch.client import Table, TableSettings
from bench.case import MIB, Case, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.systems.anabranch import APART, SCOPE, Anabranch, AnabranchApart
from bench.systems.port import Label, System
from bench.workloads.tables import BLOCK_ENTRIES, block_keys, block_values, key_of

TABLE = f"{SCOPE}/large"
FILLERS = 8
PATIENCE_SECONDS = 600.0
LOOK_SECONDS = 0.005
INDEXES = "segstore/tables"
"""Where the store keeps the indexes of its tables, below the cluster's directory."""


class TableRestart:
    """To be entered: its cluster stays up from the warm-up, which fills the table, to the end."""

    name = "W22"
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._filled: _Filled | None = None

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

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        entries = effort.table_entries
        if warm_up:
            cluster = await self._stack.enter_async_context(system.cluster({}))
            await cluster.client.tables.create(TABLE)
            patient = TableSettings(retry_timeout_s=PATIENCE_SECONDS)
            table = await self._stack.enter_async_context(cluster.client.table(TABLE, patient))
            self._filled = _Filled(cluster, table, case, entries // BLOCK_ENTRIES, clock)
            began = clock.now()
            await self._filled.fill()
            return Sample(entries, clock.now() - began, None, verified=True)
        filled = self._filled
        assert filled is not None, "not warmed up"
        opened_s = await filled.restart(signal.SIGTERM, keep_index=True)
        rebuilt_s = await filled.restart(signal.SIGKILL, keep_index=False)
        memory = resident_bytes(filled.cluster.pids_of("segstore"))
        notes = {"open s": opened_s, "rebuild s": rebuilt_s, "MiB": memory / MIB}
        return Sample(entries, rebuilt_s, None, await filled.is_right(), notes=notes)


class _Filled:
    """A table of so many blocks, and the cluster that it lies in."""

    def __init__(
        self,
        cluster: Anabranch,
        table: Table[bytes, bytes],
        case: Case,
        blocks: int,
        clock: Stopwatch,
    ) -> None:
        self.cluster = cluster
        self._table = table
        self._case = case
        self._blocks = blocks
        self._clock = clock
        self._probes = [number * blocks for number in range(BLOCK_ENTRIES)]

    async def fill(self) -> None:
        """Put all entries."""
        turns = iter(range(self._blocks))

        async def put(turns: Iterator[int]) -> None:
            for block in turns:
                values = block_values(self._case, 0)
                await self._table.put_many(zip(block_keys(block), values, strict=True))

        async with asyncio.TaskGroup() as group:
            for _ in range(FILLERS):
                group.create_task(put(turns))

    async def restart(self, how: signal.Signals, *, keep_index: bool) -> float:
        """End the store → seconds from the start of the next one until all partitions answer."""
        before = self.cluster.pids_of("segstore")
        for pid in before:
            os.kill(pid, how)
        if not keep_index:
            # The next process takes longer to load than this takes, and opens indexes when asked.
            shutil.rmtree(self.cluster.data_dir / INDEXES)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.cluster.pids_of("segstore") in ([], before):  # noqa: ASYNC110  no event for it
                await asyncio.sleep(LOOK_SECONDS)
            began = self._clock.now()
            await self._table.get_many([key_of(number) for number in self._probes])
        return self._clock.now() - began

    async def is_right(self) -> bool:
        """Whether the values of a thousand entries, and the number of all, are what was put."""
        found = await self._table.get_many([key_of(number) for number in self._probes])
        values = block_values(self._case, 0)
        expected = [values[number % BLOCK_ENTRIES] for number in self._probes]
        if [None if each is None else each.value for each in found] != expected:
            return False
        count = 0
        async for batch in self._table.scan_arrow():
            count += batch.num_rows
        return count == self._blocks * BLOCK_ENTRIES
