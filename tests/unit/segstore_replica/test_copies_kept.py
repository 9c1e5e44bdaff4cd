"""What the copies of a store release, and which copies the store keeps."""

import pytest

from anabranch.common.errors import ObjectNotFound, Unavailable
from anabranch.common.model.cluster import LogCopy, Placement
from anabranch.segstore.domain.log.stream.messages import NOTHING
from kit.copies_world import CONTAINER, LOG, NODE, FedStore

# --- releasing ------------------------------------------------------------------------------------


async def test_released_messages_go_except_the_last_one() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    first, last = copy.history.frames_after(0)
    world.store.copies.release(CONTAINER, 5, 1, world.caller)
    await world.store.settled()
    with pytest.raises(ObjectNotFound):
        await copy.read(first)
    assert await copy.read(last) == world.leader.messages[-1]
    world.store.copies.release(CONTAINER, 5, 4, world.caller)
    await world.store.settled()
    assert len(world.frames.entries[CONTAINER]) == 1
    world.restart()
    again = await world.store.copy()
    assert again.history.end == world.leader.history.end
    assert again.promised == 5


async def test_the_promise_outlives_the_release_of_its_record() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 9)
    world.store.copies.release(CONTAINER, 9, 1, world.caller)
    await world.store.settled()
    world.restart()
    assert (await world.store.copy()).promised == 9, "the messages are of epoch 5"


async def test_nothing_is_released_before_what_replaces_it_is_synced() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    kept = len(world.frames.entries[CONTAINER])
    world.store.copies.release(CONTAINER, 5, 5, world.caller)
    await world.store.settled()
    assert len(world.frames.entries[CONTAINER]) == kept
    world.gate.open()
    await world.store.settled()
    assert len(world.frames.entries[CONTAINER]) == 1


async def test_unpinning_releases_the_last_message_and_keeps_its_position() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    assert not await copy.unpin(), "tier 2 has nothing"
    copy.release(3)
    assert not await copy.unpin(), "tier 2 lacks the last operation"
    copy.release(4)
    assert await copy.unpin()
    await world.store.settled()
    assert copy.history.end == world.leader.history.end
    assert len(world.frames.entries[CONTAINER]) == 1
    world.restart()
    again = await world.store.copy()
    assert again.history.marks() == (world.leader.history.end,)
    assert (again.promised, again.synced) == (5, world.leader.position)
    await world.store.copies.promise(CONTAINER, LOG, 6, world.caller)
    world.store.append(world.leader.open(6), world.caller, 6)
    await world.store.settled()
    assert again.history.end == world.leader.history.end


# --- housekeeping ---------------------------------------------------------------------------------


def placement(**changes: object) -> Placement:
    given = {"container": CONTAINER, "replicas": ("other", NODE), "container_epoch": 5}
    return Placement(**{**given, "log_id": LOG, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"replicas": ("other",)}, False),
        ({"log_id": "log-2"}, False),
        ({"log_id": ""}, True),
        ({"replicas": ("other",), "container_epoch": 4}, True),
    ],
)
async def test_a_copy_stays_while_its_placement_needs_it(
    changes: dict[str, object], stays: bool
) -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    await world.store.copies.tidy([placement(**changes)])
    assert (CONTAINER in world.store.local.logs()) is stays


async def test_a_member_of_the_isr_always_stays() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    isr = (LogCopy(NODE, copy.copy_id),)
    await world.store.copies.tidy([placement(replicas=("other",), log_id="log-2", isr=isr)])
    assert CONTAINER in world.store.local.logs()
    isr = (LogCopy(NODE, "another life"),)
    await world.store.copies.tidy([placement(replicas=("other",), isr=isr)])
    assert CONTAINER not in world.store.local.logs()
    assert await world.store.copies.find(CONTAINER, LOG) is None


async def test_a_log_that_is_not_replicated_is_not_tidied() -> None:
    world = FedStore()
    await world.store.local.create_log(CONTAINER, "own-log")
    await world.store.copies.tidy([placement(replicas=("other",), log_id="x")])
    assert dict(world.store.local.logs()) == {CONTAINER: "own-log"}


async def test_a_copy_that_pins_the_journal_is_unpinned_or_asks_for_a_flush() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    assert not await world.store.copies.unpin(CONTAINER)
    assert world.caller.flushes == 1
    world.store.copies.release(CONTAINER, 5, 4, world.caller)
    assert await world.store.copies.unpin(CONTAINER)
    assert world.caller.flushes == 1


async def test_a_dropped_copy_leaves_its_leader_and_goes_once_it_left_the_isr() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.store.copies.drop(CONTAINER)
    assert [type(error) for error in world.caller.refusals] == [Unavailable]
    with pytest.raises(Unavailable):
        await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
    await world.store.copies.tidy([placement(isr=(LogCopy(NODE, copy.copy_id),))])
    assert CONTAINER in world.store.local.logs()
    await world.store.copies.tidy([placement()])
    assert CONTAINER not in world.store.local.logs()
    assert world.store.copies.dropped == []
    await world.store.fed_copy(world.leader, world.caller, 5)


async def test_dropped_copies_may_be_kept_when_the_journal_is_small_again() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.store.copies.drop(CONTAINER)
    assert world.store.copies.dropped == [CONTAINER]
    world.store.copies.keep_dropped()
    await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
    await world.store.copies.tidy([placement()])
    assert CONTAINER in world.store.local.logs()


async def test_a_copy_that_this_store_leads_is_neither_dropped_nor_removed() -> None:
    world = FedStore()
    copy = await world.store.copies.create(CONTAINER, LOG, 5, NOTHING)
    copy.lead(5, lambda _: None)
    world.store.copies.drop(CONTAINER)
    assert world.store.copies.dropped == []
    await world.store.copies.tidy([placement(replicas=("other",))])
    assert CONTAINER in world.store.local.logs()
    copy.stop_leading(5)
    await world.store.copies.tidy([placement(replicas=("other",))])
    assert CONTAINER not in world.store.local.logs()


async def test_a_dropped_copy_still_answers_an_election() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.store.copies.drop(CONTAINER)
    assert (await world.store.copies.promise(CONTAINER, LOG, 6, None)).copy_id == copy.copy_id
