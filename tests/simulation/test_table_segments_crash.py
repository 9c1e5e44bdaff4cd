"""A store with tables, crashed at every disk call of its life.

One life updates two tables with and without conditions, reads, flushes, compacts, and evicts. It is
repeated with a crash at its disk calls; every crash then ends in several ways, and the machine is
started twice more each time. The index is what it was, or older, or gone.
"""

import asyncio

import pytest

from anabranch.common.wire.messages import CreateSegment, Stamp
from kit.rng import seeded
from kit.simdisk import LOSE_ALL, RandomSurvival, When
from kit.store_requests import flush
from kit.store_world import Life
from kit.table_clients import TableClient
from kit.table_parts import DIRECTORY
from kit.table_scenario import TABLES, check_tables
from kit.table_world import TableCaller, TableWorld
from kit.thorough import one_in

SHARES = 3
ONE_IN = one_in(24)


def a_world() -> TableWorld:
    return TableWorld(segments_in_memory=1, flush_bytes=2048)


async def table_life(life: Life) -> None:
    """Everything that a store does to tables, in a fixed order."""
    world = life.world
    assert isinstance(world, TableWorld)
    await life.opened()
    caller = TableCaller(life)
    for segment in TABLES[:2]:
        await caller.control(CreateSegment(segment=segment, stamp=Stamp(1, 1)))
    clients = [TableClient(world, bytes([65 + one]) * 16, seeded(one), 3000) for one in range(2)]
    for round_number in range(12):
        for client in clients:
            segment = TABLES[round_number % 2]
            await client.update(life, caller, segment)
            await client.get(life, caller, segment)
        if round_number % 4 == 3:
            await flush(caller, 0)
            await asyncio.sleep(2.5)  # a compaction
    await check_tables(life)


def restart_twice(world: TableWorld, ending: int) -> None:
    """End the machine in one of several ways, and start it twice."""
    for _ in range(2):
        if ending == 0:
            world.kill()
        elif ending == 1:
            world.power_loss(LOSE_ALL)
            world.indexes.destroy(DIRECTORY / "0")
        else:
            world.power_loss(RandomSurvival(seeded(ending)))
        assert world.run(opened_and_right)


async def opened_and_right(life: Life) -> None:
    await life.opened()
    await check_tables(life)


def test_the_life_compacts_flushes_and_evicts() -> None:
    world = a_world()
    assert world.run(table_life)
    counts = world.referee.counts
    assert counts["compactions of tables"] > 3
    assert counts["updates of tables"] > 10
    manifests = [call for call in world.tier_disk.trace if "/m/" in call.path]
    assert len(manifests) > 3


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_loses_no_update(share: int) -> None:
    whole = a_world()
    assert whole.run(table_life)
    whens: tuple[When, ...] = ("before", "during", "after")
    states = 0
    for on_tier_disk, calls in enumerate((whole.journal_disk.calls, whole.tier_disk.calls)):
        for call in range(1 + share * ONE_IN, calls + 1, SHARES * ONE_IN):
            for ending, when in enumerate(whens):
                world = a_world()
                disk = world.tier_disk if on_tier_disk else world.journal_disk
                disk.crash_at(call, when)
                assert not world.run(table_life), "the life did not reach the call"
                for other in {ending, (ending + 1) % 3}:
                    twin = world.fork()
                    assert isinstance(twin, TableWorld)
                    restart_twice(twin, other)
                    states += 2
    assert states > 300 / SHARES / ONE_IN
