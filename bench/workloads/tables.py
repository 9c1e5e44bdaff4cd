"""What the workloads on key-value tables share: which systems, the callers, keys, and the check."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from bench.case import Case, Multiset
from bench.clock import Stopwatch
from bench.systems.port import Label, System
from bench.systems.table import Entry, Table, TableSystem

CALLERS = 64
SYSTEMS = ("anabranch", "jetstream", "redis")
BLOCK_ENTRIES = 1_000
"""What a call for many entries has."""


class OnTables:
    """A workload on a fresh table of each system that syncs before it acknowledges."""

    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, settings_left_out: frozenset[str], left_out: frozenset[str] = frozenset()):
        """Without the settings that are left out, and without the systems."""
        self._settings_left_out = settings_left_out
        self._left_out = left_out

    def suits(self, label: Label) -> bool:
        has_tables = label.system in SYSTEMS and label.system not in self._left_out
        is_synced = label.durability == "D2"
        return has_tables and is_synced and label.settings not in self._settings_left_out


@asynccontextmanager
async def fresh_table(system: System) -> AsyncIterator[Table]:
    """A fresh table of a system that has tables."""
    assert isinstance(system, TableSystem), "the system has no tables"
    async with system.table() as table:
        yield table


async def keep_calling(
    call: Callable[[int], Awaitable[None]], clock: Stopwatch, seconds: float, callers: int
) -> list[float]:
    """Make calls for so long → the milliseconds of each.

    Each of `callers` tasks calls with its own number, again as soon as a call returns, and at least
    once.
    """
    times_ms: list[float] = []
    ends_at = clock.now() + seconds

    async def repeat(caller: int) -> None:
        started = clock.now()
        while True:
            await call(caller)
            started, before = clock.now(), started
            times_ms.append((started - before) * 1000)
            if started >= ends_at:
                return

    async with asyncio.TaskGroup() as group:
        for caller in range(callers):
            group.create_task(repeat(caller))
    return times_ms


def key_of(number: int) -> bytes:
    return b"key-%08d" % number


def block_keys(block: int) -> Sequence[bytes]:
    """The keys of the table's block number `block`."""
    return [key_of(block * BLOCK_ENTRIES + place) for place in range(BLOCK_ENTRIES)]


def block_values(case: Case, turn: int) -> Sequence[bytes]:
    """The pool, which has as many payloads as a block, turned so far."""
    at = turn % len(case.events)
    return case.events[at:] + case.events[:at]


async def holds_exactly(table: Table, expected: Mapping[bytes, bytes]) -> bool:
    """Whether the table has these entries and no others."""
    wanted, found = Multiset(), Multiset()
    wanted.add([_joined(entry) for entry in expected.items()])
    async for entries in table.read_back():
        found.add([_joined(entry) for entry in entries])
    return found == wanted


def _joined(entry: Entry) -> bytes:
    return b"=".join(entry)
