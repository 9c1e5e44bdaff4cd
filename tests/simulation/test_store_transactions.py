"""A life that commits transactions, crashed at every disk call.

Nothing seals a transaction's segment before its merge: appends race with that, some segments are
in tier 2 by then, one merge comes while a flush is under way, and what a crash left unanswered is
asked again, the same. Whatever the crash: a merge is there as a whole or not at all, and has what
was acknowledged before. See `kit.store_crash` for how it is crashed.
"""

import pytest

from anabranch.common.errors import StaleRequest
from anabranch.common.model.names import transaction_segment_name
from anabranch.common.wire.messages import Stamp
from kit.chunk_faults import PUT_S
from kit.rng import seeded
from kit.store_check import check_everything
from kit.store_crash import crash_everywhere
from kit.store_requests import create, delete, flush, merge
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

PARENT, DUPLICATE = "s/a/1.#epoch.0", "s/a/1.#epoch.3"
CONTAINER = 1
CREATED, ABORTED = Stamp(1, 1), Stamp(1, 2)
STATES_MIN = 50


def transaction(number: int) -> str:
    return transaction_segment_name(PARENT, f"{number:032x}")


async def committing_life(life: Life) -> None:
    """Batches of transactions in every state of tiering, in a fixed order."""
    await life.opened()
    client, rng, history = Client(life), seeded(5), life.world.history
    await create(client, PARENT, CREATED)
    parent = WriterScript(PARENT, bytes([99]) * 16, history, rng)

    async def begin(number: int) -> WriterScript:
        name = transaction(number)
        await create(client, name, CREATED)
        writer = WriterScript(name, bytes([number]) * 16, history, rng)
        assert await writer.begin(client)
        for count in (1, 2):
            writer.send(client, count)
        return writer

    async def append(writer: WriterScript) -> None:
        assert await writer.begin(client)
        writer.send(client, 1)

    await append(parent)
    tiered = [await begin(number) for number in (1, 2, 3)]
    await flush(client, CONTAINER)
    fresh = [await begin(number) for number in (4, 5)]
    # the first batch: appends that are in flight when its merge comes, and late ones
    racing = [tiered[0], fresh[0]]
    for writer in racing:
        await append(writer)
    names = tuple(writer.segment for writer in (*tiered, *fresh))
    merging = life.loop.create_task(merge(client, PARENT, names, Stamp(1, 4)))
    await life.clock.sleep(0)
    for writer in racing:
        writer.send(client, 1)
    await merging
    await append(parent)
    # the second one: merged while its bytes are being flushed, into a duplicate of the parent
    second = [await begin(number) for number in (6, 7)]
    await create(client, DUPLICATE, Stamp(1, 5))
    flushing = life.loop.create_task(flush(client, CONTAINER))
    await life.clock.sleep(PUT_S / 2)
    names = tuple(writer.segment for writer in second)
    await merge(client, DUPLICATE, names, Stamp(1, 5))
    await flushing
    # one that is aborted, and a deletion that comes too late
    await begin(8)
    await delete(client, transaction(8), ABORTED)
    with pytest.raises(StaleRequest):
        await delete(client, transaction(6), ABORTED)
    history.deleting.discard(transaction(6))
    await merge(client, DUPLICATE, names, Stamp(1, 5))
    await flush(client, CONTAINER)
    await begin(9)
    await check_everything(life)


@pytest.mark.parametrize("share", [0, 7])
def test_a_crash_at_any_disk_call_leaves_a_merge_whole_or_undone(share: int) -> None:
    assert crash_everywhere(committing_life, share, 24) >= STATES_MIN


def test_a_life_that_is_not_crashed_merges_all_and_reads_it() -> None:
    world = World()
    assert world.run(committing_life)
    assert set(world.history.merged) == {transaction(number) for number in range(1, 8)}
