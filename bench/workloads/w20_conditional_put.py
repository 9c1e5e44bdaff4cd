"""W20: updates of a key-value table that hold only if the entry has the version that was seen.

put        64 callers of one client, each with 16 keys of its own in turn, whose versions it knows
contended  64 callers count up 8 entries: read, and replace if the version is still the same, or
           else again from the start

Values have 100 B. Every caller makes one update at a time. `conflicts/put`: the updates that were
refused, for each that was not.
"""

from itertools import count

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import System
from bench.systems.table import Table, Version
from bench.workloads.port import Meter
from bench.workloads.tables import (
    CALLERS,
    OnTables,
    fresh_table,
    holds_exactly,
    keep_calling,
    key_of,
)

KEYS_EACH = 16
SHARED_KEYS = 8
_COUNT_BYTES = 8


class DistinctKeys(OnTables):
    name = "W20 put"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with fresh_table(system) as table:
            run = _Owners(table, case)
            await keep_calling(run.create, clock, 0, CALLERS)
            meter = Meter(system, clock)
            seconds_max = effort.warm_up_s if warm_up else effort.awaited_s
            times_ms = await keep_calling(run.replace, clock, seconds_max, CALLERS)
            seconds, cpu_seconds = meter.read()
            verified = run.refused == 0 and await holds_exactly(table, run.values)
        return Sample(
            len(times_ms), seconds, cpu_seconds, verified,
            p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
        )  # fmt: skip


class _Owners:
    """Callers that replace the values of their own keys in turn. `values`: the latest of each."""

    def __init__(self, table: Table, case: Case) -> None:
        self._table = table
        self._case = case
        self._versions: dict[bytes, Version] = {}
        self._keys = [
            [key_of(caller * KEYS_EACH + own) for own in range(KEYS_EACH)]
            for caller in range(CALLERS)
        ]
        self._turns = [count() for _ in range(CALLERS)]
        self.values: dict[bytes, bytes] = {}
        self.refused = 0

    async def create(self, caller: int) -> None:
        """Create all keys of the caller."""
        for key in self._keys[caller]:
            value = self._case.events[caller]
            self._versions[key] = await self._table.create(key, value)
            self.values[key] = value

    async def replace(self, caller: int) -> None:
        """Replace the value of the caller's next key."""
        turn = next(self._turns[caller])
        key = self._keys[caller][turn % KEYS_EACH]
        value = self._case.events[(caller + CALLERS * turn + 1) % len(self._case.events)]
        version = await self._table.replace(key, value, self._versions[key])
        if version is None:
            self.refused += 1
        else:
            self._versions[key], self.values[key] = version, value


class SharedKeys(OnTables):
    name = "W20 contended"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with fresh_table(system) as table:
            run = _Counters(table, case)
            await run.create()
            meter = Meter(system, clock)
            seconds_max = effort.warm_up_s if warm_up else effort.awaited_s
            times_ms = await keep_calling(run.count_up, clock, seconds_max, CALLERS)
            seconds, cpu_seconds = meter.read()
            verified = await run.counted() == len(times_ms)
        return Sample(
            len(times_ms), seconds, cpu_seconds, verified,
            p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
            notes={"conflicts/put": run.conflicts / len(times_ms)},
        )  # fmt: skip


class _Counters:
    """Entries whose values begin with a number, which callers count up."""

    def __init__(self, table: Table, case: Case) -> None:
        self._table = table
        self._rest = case.events[0][_COUNT_BYTES:]
        self._keys = [key_of(number) for number in range(SHARED_KEYS)]
        self.conflicts = 0

    async def create(self) -> None:
        for key in self._keys:
            await self._table.create(key, self._value(0))

    async def count_up(self, caller: int) -> None:
        """Add one to the entry of the caller."""
        key = self._keys[caller % SHARED_KEYS]
        while True:
            value, version = await self._table.get(key)
            following = self._value(_number_in(value) + 1)
            if await self._table.replace(key, following, version) is not None:
                return
            self.conflicts += 1

    async def counted(self) -> int:
        """The sum of all entries."""
        return sum([_number_in((await self._table.get(key)).value) for key in self._keys])

    def _value(self, number: int) -> bytes:
        return number.to_bytes(_COUNT_BYTES, "big") + self._rest


def _number_in(value: bytes) -> int:
    return int.from_bytes(value[:_COUNT_BYTES], "big")
