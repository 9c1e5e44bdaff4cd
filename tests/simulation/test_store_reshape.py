"""A life that truncates, merges, counts in attributes and appends if, crashed at every disk call.

What is merged is in tier 2, half in it, or in the journal only; one merge happens while a flush
is under way. See `kit.store_crash` for how it is crashed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import Stamp
from kit.chunk_faults import PUT_S
from kit.planted_container import (
    attributes_twice_at_replay,
    truncation_lost_at_replay,
)
from kit.rng import seeded
from kit.simdisk import LOSE_ALL
from kit.store_check import check_everything
from kit.store_crash import crash_everywhere, crashed_world, disk_calls, restart_twice
from kit.store_requests import Counter, create, delete, flush, merge, seal, truncate
from kit.store_world import Client, Life
from kit.store_writer import WriterScript
from kit.thorough import one_in

TARGET, TIERED, HALF, FRESH, GONE = (f"s/a/{number}.#epoch.0" for number in (1, 2, 3, 4, 8))
SEGMENTS = (TARGET, TIERED, HALF, FRESH, GONE)
CONTAINER = 1
"""Theirs, by their names."""
STATES_MIN = 1000
SHARES = 4
ONE_IN = one_in(18)


async def reshaping_life(life: Life) -> None:
    """Everything that changes more than one append, in a fixed order."""
    await life.opened()
    client, rng, history = Client(life), seeded(11), life.world.history
    for segment in SEGMENTS:
        await create(client, segment, Stamp(1, 1))
    writers = {
        segment: WriterScript(segment, bytes([number]) * 16, history, rng)
        for number, segment in enumerate(SEGMENTS, 1)
    }
    counters = [Counter(TARGET, bytes([n]) * 16, appends=n == 8) for n in (8, 9)]
    life.world.counters.extend(counters)

    async def write(*segments: str) -> None:
        for segment in segments:
            assert await writers[segment].begin(client)
            for count in (1, 2):
                writers[segment].send(client, count)

    async def count(revision: int) -> None:
        for counter in counters:
            await counter.count(client, Stamp(1, revision))

    await write(TARGET, TIERED, HALF, GONE)
    await count(1)
    await flush(client, CONTAINER)
    await write(TARGET, HALF, FRESH)
    await seal(client, TIERED, Stamp(1, 2))
    await merge(client, TARGET, (TIERED,), Stamp(1, 3))
    await count(3)
    await seal(client, HALF, Stamp(1, 4))
    await seal(client, FRESH, Stamp(1, 4))
    flushing = life.loop.create_task(flush(client, CONTAINER))
    await life.clock.sleep(PUT_S / 2)
    await merge(client, TARGET, (HALF, FRESH), Stamp(1, 5))
    await flushing
    await count(5)
    await truncate(client, TARGET, 0.3, Stamp(1, 6))
    await truncate(client, GONE, 1.0, Stamp(1, 6))
    await write(TARGET)
    await delete(client, GONE, Stamp(1, 7))
    await check_everything(life)
    await flush(client, CONTAINER)
    await merge(client, TARGET, (TIERED, HALF, FRESH), Stamp(1, 8))
    await check_everything(life)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_leaves_segments_as_they_were_told(share: int) -> None:
    states = crash_everywhere(reshaping_life, share * ONE_IN, SHARES * ONE_IN)
    assert states >= STATES_MIN / SHARES / ONE_IN


@pytest.mark.parametrize("plant", [truncation_lost_at_replay, attributes_twice_at_replay])
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[object]]) -> None:
    calls, _ = disk_calls(reshaping_life)
    with plant(), pytest.raises((AssertionError, AnabranchError, TimeoutError)):
        crash_from_the_end(calls)


def crash_from_the_end(calls: int) -> None:
    """At each call of the journal's disk, the last one first, which finds a bug soonest."""
    for call in range(calls, 0, -1):
        restart_twice(crashed_world(reshaping_life, False, call, "after"), LOSE_ALL)
