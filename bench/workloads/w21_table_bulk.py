"""W21: many entries of a key-value table, and reads of few.

put_many    16 callers put 1,000 entries a call, over 96,000 keys again and again
get         64 callers get the same 1,000 keys in turn, one a call
get_many    16 callers get 1,000 keys a call, the same 16,000 again and again; `first/s`: the rate
            of the first time that any of 96,000 keys is read
scan        one caller iterates over 96,000 entries, one by one
scan arrow  the same in batches of Arrow

Values have 100 B. Every value that is read is compared with the one that was put.
"""

from dataclasses import replace
from itertools import count

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import System
from bench.systems.table import ArrowTable, BulkTable, Table
from bench.workloads.port import Meter
from bench.workloads.tables import (
    BLOCK_ENTRIES,
    CALLERS,
    OnTables,
    block_keys,
    block_values,
    fresh_table,
    holds_exactly,
    keep_calling,
)

BULK_CALLERS = 16
BLOCKS = 96
"""A multiple of the callers, so that each has blocks of its own."""
SECONDS_MIN = 0.5
"""Of a round: some calls take a hundredth of it."""


class PutMany(OnTables):
    name = "W21 put_many"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        blocks = _Blocks(case, BLOCKS)
        async with fresh_table(system) as table:
            meter = Meter(system, clock)

            async def put(caller: int) -> None:
                await blocks.put_next(table, caller)

            times_ms = await keep_calling(put, clock, _seconds(effort, warm_up), BULK_CALLERS)
            seconds, cpu_seconds = meter.read()
            verified = await blocks.are_in(table)
        return _sample(times_ms, BLOCK_ENTRIES, seconds, cpu_seconds, verified)


class GetHot(OnTables):
    name = "W21 get"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        blocks, turns, wrong = _Blocks(case, 1), count(), 0
        async with fresh_table(system) as table:
            await blocks.put_next(table, 0)
            keys, values = blocks.keys[0], case.events
            meter = Meter(system, clock)

            async def get(_: int) -> None:
                nonlocal wrong
                place = next(turns) % BLOCK_ENTRIES
                wrong += (await table.get(keys[place])).value != values[place]

            times_ms = await keep_calling(get, clock, _seconds(effort, warm_up), CALLERS)
            seconds, cpu_seconds = meter.read()
        return _sample(times_ms, 1, seconds, cpu_seconds, wrong == 0)


class GetMany(OnTables):
    name = "W21 get_many"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        blocks, wrong, turns = _Blocks(case, BLOCKS), 0, count()
        async with fresh_table(system) as table:
            assert isinstance(table, BulkTable), "the system has no call for many keys"
            await blocks.put_all(table)

            async def get(block: int) -> None:
                nonlocal wrong
                found = await table.get_many(blocks.keys[block])
                wrong += list(found) != list(block_values(case, blocks.turns[block]))

            async def get_next(_: int) -> None:
                for block in turns:
                    if block >= BLOCKS:
                        return
                    await get(block)

            began = clock.now()
            await keep_calling(get_next, clock, 0, BULK_CALLERS)
            first_per_s = BLOCKS * BLOCK_ENTRIES / (clock.now() - began)
            meter = Meter(system, clock)
            times_ms = await keep_calling(get, clock, _seconds(effort, warm_up), BULK_CALLERS)
            seconds, cpu_seconds = meter.read()
        sample = _sample(times_ms, BLOCK_ENTRIES, seconds, cpu_seconds, wrong == 0)
        return replace(sample, notes={"first/s": first_per_s})


class ScanAll(OnTables):
    name = "W21 scan"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        blocks, found = _Blocks(case, BLOCKS), set[int]()
        async with fresh_table(system) as table:
            await blocks.put_all(table)
            verified = await blocks.are_in(table)

            async def scan(_: int) -> None:
                found.add(await self._scan(table))

            meter = Meter(system, clock)
            times_ms = await keep_calling(scan, clock, _seconds(effort, warm_up), 1)
            seconds, cpu_seconds = meter.read()
        entries = BLOCKS * BLOCK_ENTRIES
        return _sample(times_ms, entries, seconds, cpu_seconds, verified and found == {entries})

    async def _scan(self, table: Table) -> int:
        assert isinstance(table, BulkTable), "the system has no scans"
        return await table.scan()


class ScanArrow(ScanAll):
    name = "W21 scan arrow"

    async def _scan(self, table: Table) -> int:
        assert isinstance(table, ArrowTable), "the system knows nothing of Arrow"
        return await table.scan_arrow()


class _Blocks:
    """Blocks of entries: their keys, and how far the pool was turned when each was last put."""

    def __init__(self, case: Case, blocks: int) -> None:
        self._case = case
        self.keys = [block_keys(block) for block in range(blocks)]
        self.turns = [-1] * blocks
        self._calls = [count() for _ in range(BULK_CALLERS)]

    async def put_next(self, table: Table, caller: int) -> None:
        """Put the caller's next block."""
        turn = next(self._calls[caller])
        await self._put(table, (caller + BULK_CALLERS * turn) % len(self.keys), turn)

    async def put_all(self, table: Table) -> None:
        """Put every block once."""
        for block in range(len(self.keys)):
            await self._put(table, block, block)

    async def _put(self, table: Table, block: int, turn: int) -> None:
        values = block_values(self._case, turn)
        await table.put_many(dict(zip(self.keys[block], values, strict=True)))
        self.turns[block] = turn

    async def are_in(self, table: Table) -> bool:
        """Whether the table has the blocks that were put, and nothing else."""
        expected: dict[bytes, bytes] = {}
        for keys, turn in zip(self.keys, self.turns, strict=True):
            if turn >= 0:
                expected.update(zip(keys, block_values(self._case, turn), strict=True))
        return await holds_exactly(table, expected)


def _seconds(effort: Effort, warm_up: bool) -> float:
    return effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.awaited_s)


def _sample(
    times_ms: list[float], entries: int, seconds: float, cpu_seconds: float, verified: bool
) -> Sample:
    """Of so many entries a call."""
    return Sample(
        len(times_ms) * entries, seconds, cpu_seconds, verified,
        p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
    )  # fmt: skip
