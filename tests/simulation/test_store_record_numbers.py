"""A life of partitions that are written, flushed and truncated, crashed at every disk call.

After every crash each record has the number that it had before, every number is found, and none was
given twice. See `kit.store_crash` for how the life is crashed.
"""

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import Stamp
from kit.chunk_faults import PUT_S
from kit.planted_numbers import PLANTS, Plant
from kit.rng import seeded
from kit.simdisk import LOSE_ALL
from kit.store_check import check_everything
from kit.store_crash import crash_everywhere, crashed_world, disk_calls, restart_twice
from kit.store_requests import create, flush, truncate
from kit.store_world import Client, Life
from kit.store_writer import WriterScript
from kit.thorough import one_in
from kit.topic_parts import partition

CONTAINER = 1
"""Theirs, by their numbers; the world has no containers of topics."""
KEPT, EMPTIED = (partition(ordinal, CONTAINER) for ordinal in (0, 1))
SHARES = 2
ONE_IN = one_in(18)


async def numbered_life(life: Life) -> None:
    """Two partitions, one of which is truncated to nothing, in a fixed order."""
    await life.opened()
    client, rng, history = Client(life), seeded(21), life.world.history
    writers = {}
    for at, segment in enumerate((KEPT, EMPTIED), 1):
        await create(client, segment, Stamp(1, 1))
        writers[segment] = WriterScript(segment, bytes([at]) * 16, history, rng)

    async def write(*segments: str) -> None:
        for segment in segments:
            assert await writers[segment].begin(client)
            for count in (2, 1, 3):
                writers[segment].send(client, count)

    await write(KEPT, EMPTIED)
    await flush(client, CONTAINER)
    await write(KEPT)
    await truncate(client, KEPT, 0.2, Stamp(1, 2))
    flushing = life.loop.create_task(flush(client, CONTAINER))
    await life.clock.sleep(PUT_S / 2)
    await write(KEPT)
    await truncate(client, EMPTIED, 1.0, Stamp(1, 2))
    await flushing
    await flush(client, CONTAINER)
    await write(EMPTIED)
    await truncate(client, KEPT, 0.6, Stamp(1, 3))
    await check_everything(life)
    await flush(client, CONTAINER)
    await check_everything(life)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_changes_no_records_number(share: int) -> None:
    assert crash_everywhere(numbered_life, share * ONE_IN, SHARES * ONE_IN) > 0


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: Plant) -> None:
    calls, _ = disk_calls(numbered_life)
    with plant(), pytest.raises((AssertionError, AnabranchError, TimeoutError)):
        crash_from_the_end(calls)


def crash_from_the_end(calls: int) -> None:
    """At each call of the journal's disk, the last one first, which finds a bug soonest."""
    for call in range(calls, 0, -1):
        restart_twice(crashed_world(numbered_life, False, call, "after"), LOSE_ALL)
