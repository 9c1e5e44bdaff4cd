"""A life that uploads by transient segments, crashed at every disk call.

Some are merged, one of them while a flush is under way, and some are left to the end of their
connection. Whatever the crash: none outlives its life, and what was told to be merged is there.
See `kit.store_crash` for how it is crashed.
"""

import pytest

from anabranch.common.errors import SegmentNotFound
from anabranch.common.wire.messages import NO_DECISION, Stamp
from kit.chunk_faults import PUT_S
from kit.planted_container import transients_survive_a_restart
from kit.rng import seeded
from kit.simdisk import LOSE_ALL
from kit.store_check import check_everything
from kit.store_crash import crash_everywhere, crashed_world, disk_calls, restart_twice
from kit.store_requests import create, flush, info_of, merge, seal
from kit.store_transient import Uploads
from kit.store_world import Client, Life
from kit.store_writer import WriterScript
from kit.thorough import one_in

PARENT = "s/a/1.#epoch.0"
CONTAINER = 1
STATES_MIN = 500
SHARES = 4
ONE_IN = one_in(18)


async def uploading_life(life: Life) -> None:
    """Uploads that end in every way, in a fixed order."""
    await life.opened()
    client, rng, history = Client(life), seeded(12), life.world.history
    await create(client, PARENT, Stamp(1, 1))
    parent = WriterScript(PARENT, bytes([1]) * 16, history, rng)
    mine, lost = Uploads(client), Uploads(client)

    async def upload(uploads: Uploads, number: int) -> str:
        writer_id = bytes([number]) * 16
        name = await uploads.begin(PARENT, writer_id)
        await uploads.write(WriterScript(name, writer_id, history, rng))
        return name

    await mine.write(parent)
    merged, tiered, left = [await upload(mine, number) for number in (2, 3, 4)]
    given_up = await upload(lost, 5)
    await mine.finish(PARENT, merged)
    large = await upload(mine, 7)
    await mine.write(parent)
    await mine.store(parent, large)
    parent.send(client, 1)
    await flush(client, CONTAINER)
    lost.disconnect()
    with pytest.raises(SegmentNotFound):
        await info_of(client, given_up)
    flushing = life.loop.create_task(flush(client, CONTAINER))
    await life.clock.sleep(PUT_S / 2)
    await mine.finish(PARENT, tiered)
    assert await parent.begin(client)
    await mine.store(parent, await upload(mine, 8))
    await flushing
    await mine.write(parent)
    # the last merge and the end of its connection, in one moment
    last = await upload(mine, 6)
    await seal(client, last, NO_DECISION)
    merging = life.loop.create_task(merge(client, PARENT, (last,), NO_DECISION))
    await life.clock.sleep(0)
    mine.disconnect()
    await merging
    with pytest.raises(SegmentNotFound):
        await info_of(client, left)
    await check_everything(life)
    await flush(client, CONTAINER)
    await check_everything(life)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_leaves_no_transient_segment_and_no_gap(share: int) -> None:
    states = crash_everywhere(uploading_life, share * ONE_IN, SHARES * ONE_IN)
    assert states >= STATES_MIN / SHARES / ONE_IN


def test_a_transient_segment_that_survives_is_caught() -> None:
    calls, _ = disk_calls(uploading_life)
    with transients_survive_a_restart(), pytest.raises(AssertionError, match="outlived"):
        crash_from_the_end(calls)


def crash_from_the_end(calls: int) -> None:
    """At each call of the journal's disk, the last one first, which finds the bug soonest."""
    for call in range(calls, 0, -1):
        restart_twice(crashed_world(uploading_life, False, call, "after"), LOSE_ALL)
