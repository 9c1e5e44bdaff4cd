"""The copies of a store: the messages that they store and report, rewinds, resets, failures."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from anabranch.common.errors import (
    CorruptJournal,
    Deposed,
    LogNotHere,
    ObjectExists,
    Unavailable,
)
from anabranch.segstore.adapters.memory_log import MemoryLog
from anabranch.segstore.adapters.replicated_log.follower import WINDOW_COUNT
from anabranch.segstore.domain.log.replica.history import position_of
from anabranch.segstore.domain.log.stream.messages import (
    HEADER_SIZE_BYTES,
    NOTHING,
    Link,
)
from kit.copies_world import (
    CONTAINER,
    LOG,
    FedStore,
    Leader,
    Listening,
)
from kit.virtual_time import run_virtual

T = TypeVar("T")


async def test_a_copy_is_created_by_its_leader_and_reports_what_it_synced() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    assert copy.history.end == world.leader.history.end
    assert copy.synced == world.leader.position
    assert world.caller.reports[-1] == world.leader.position
    assert world.caller.refusals == []


async def test_the_messages_of_one_group_commit_are_reported_together() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.caller.reports.clear()
    for _ in range(10):
        world.store.append(world.leader.frame(), world.caller, 5)
    await world.store.settled()
    assert world.caller.reports == [world.leader.position]


async def test_a_message_is_not_reported_before_it_is_synced() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.caller.reports.clear()
    before = world.leader.position
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    world.store.append(world.leader.messages[-1], world.caller, 5)
    await world.store.settled()
    assert (copy.synced, world.caller.reports) == (before, [])
    world.gate.open()
    await world.store.settled()
    assert world.caller.reports[-1] == world.leader.position


async def test_a_copy_is_the_same_after_a_restart() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    await world.store.copies.promise(CONTAINER, LOG, 8, None)
    world.restart()
    again = await world.store.copy()
    assert (again.copy_id, again.history.marks()) == (copy.copy_id, copy.history.marks())
    assert (again.promised, again.synced) == (8, world.leader.position)


async def test_a_store_has_no_copy_of_another_log() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    assert await world.store.copies.find(CONTAINER, "log-2") is None
    assert (await world.store.copies.promise(CONTAINER, "log-2", 6, None)).copy_id == ""


async def test_a_log_that_was_created_but_never_begun_is_no_copy() -> None:
    world = FedStore()
    await world.store.local.create_log(CONTAINER, f"{LOG}.unbegun")
    assert await world.store.copies.find(CONTAINER, LOG) is None
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    assert copy.copy_id != "unbegun"


# --- messages -------------------------------------------------------------------------------------


async def test_a_message_after_a_gap_ends_the_hold() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    end = copy.history.end
    missing, next_one = world.leader.frame(), world.leader.frame()
    world.store.append(next_one, world.caller, 5)
    world.store.append(missing, world.caller, 5)
    await world.store.settled()
    assert len(world.caller.refusals) == 2, "the hold ended with the first one"
    assert copy.history.end == end


@pytest.mark.parametrize("at", [0, 30, HEADER_SIZE_BYTES + 2])
async def test_a_damaged_message_is_refused(at: int) -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    damaged = bytearray(world.leader.frame())
    damaged[at] ^= 1
    world.store.append(bytes(damaged), world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [CorruptJournal]
    assert copy.history.end != world.leader.history.end


async def test_a_message_of_another_log_or_container_is_refused() -> None:
    world = FedStore()
    for stranger in (Leader(log_id="log-2"), Leader(container=CONTAINER + 1)):
        await world.store.fed_copy(world.leader, world.caller, 5)
        world.store.append(stranger.open(6), world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [CorruptJournal] * 2


async def test_messages_beyond_the_window_are_refused() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    for _ in range(WINDOW_COUNT):
        world.store.append(world.leader.frame(), world.caller, 5)
    assert world.caller.refusals == []
    world.store.append(world.leader.frame(), world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [Unavailable]


async def test_a_message_to_a_store_without_a_copy_is_refused() -> None:
    world = FedStore()
    await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
    world.store.append(world.leader.messages[0], world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [LogNotHere]


async def test_a_copy_catches_up_with_messages_of_older_epochs() -> None:
    world = FedStore()
    world.leader.open(6)
    world.leader.frame()
    copy = await world.store.fed_copy(world.leader, world.caller, 9)
    world.store.append(world.leader.open(9), world.caller, 9)
    await world.store.settled()
    assert copy.history.end == world.leader.history.end


async def test_a_message_is_read_again_while_it_is_written_and_afterwards() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    data = world.leader.frame(content=b"the last one")
    world.store.append(data, world.caller, 5)
    counted = copy.history.at(world.leader.position)
    assert counted is not None
    assert await copy.read(counted) == data
    world.gate.open()
    await world.store.settled()
    assert await copy.read(counted) == data
    assert await copy.read_payload(counted) == b"the last one"
    other = replace(counted, link=replace(counted.link, crc=counted.link.crc ^ 1))
    with pytest.raises(CorruptJournal):
        await copy.read(other)


# --- rewind and reset -----------------------------------------------------------------------------


async def test_a_rewound_part_is_void_after_a_restart_too() -> None:
    world = FedStore()
    shared = world.leader.twin()
    common = shared.history.end
    world.leader.frame()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    newer = Listening()
    await world.store.copies.promise(CONTAINER, LOG, 6, newer)
    await world.store.copies.rewind(CONTAINER, 6, common, newer)
    assert (copy.history.end, copy.synced) == (common, position_of(common))
    world.store.append(shared.open(6), newer, 6)
    await world.store.settled()
    world.restart()
    again = await world.store.copy()
    assert again.history.end == shared.history.end
    assert again.promised == 6


async def test_a_rewind_to_a_message_that_the_copy_lacks_is_refused() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    with pytest.raises(CorruptJournal):
        await world.store.copies.rewind(CONTAINER, 5, Link(5, 1, 12345, 1), world.caller)
    assert copy.history.end == world.leader.history.end


async def test_a_rewind_waits_for_messages_that_are_being_written() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    end = copy.history.end
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    rewind = _task(world.store.copies.rewind(CONTAINER, 5, end, world.caller))
    await world.store.settled()
    assert copy.history.end != end
    world.gate.open()
    await rewind
    assert (copy.history.end, copy.synced) == (end, position_of(end))


async def test_a_rewind_that_a_higher_promise_overtakes_does_nothing() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    end = copy.history.end
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    rewind = _task(world.store.copies.rewind(CONTAINER, 5, end, world.caller))
    await world.store.settled()
    promise = _task(copy.promise(6))
    await world.store.settled()
    world.gate.open()
    await promise
    with pytest.raises(Deposed):
        await rewind
    assert copy.history.end == world.leader.history.end


async def test_a_reset_copy_is_another_one() -> None:
    world = FedStore()
    first = await world.store.fed_copy(world.leader, world.caller, 5)
    base = world.leader.history.end
    state = await world.store.copies.reset(CONTAINER, LOG, 5, base, world.caller)
    assert state.copy_id not in ("", first.copy_id)
    assert (state.end, state.marks) == (base, (base,))
    world.store.append(world.leader.frame(), world.caller, 5)
    await world.store.settled()
    assert world.caller.reports[-1] == world.leader.position
    world.restart()
    again = await world.store.copy()
    assert (again.copy_id, again.history.base) == (state.copy_id, base)
    assert again.history.end == world.leader.history.end
    assert again.promised == 5


async def test_a_log_that_is_not_replicated_is_never_removed() -> None:
    world = FedStore()
    await world.store.local.create_log(CONTAINER, "own-log")
    await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
    with pytest.raises(ObjectExists):
        await world.store.copies.reset(CONTAINER, LOG, 5, NOTHING, world.caller)
    assert dict(world.store.local.logs()) == {CONTAINER: "own-log"}


# --- failures -------------------------------------------------------------------------------------


def _waits(work: Callable[[FedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        world = FedStore()
        await world.store.fed_copy(world.leader, world.caller, 5)
        world.gate.held = True
        await work(world)

    run_virtual(main())


def test_a_promise_that_is_not_durable_in_time_is_not_given() -> None:
    async def work(world: FedStore) -> None:
        with pytest.raises(Unavailable):
            await world.store.copies.promise(CONTAINER, LOG, 6, world.caller)
        world.gate.open()
        with pytest.raises(Deposed):
            await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
        await world.store.copies.promise(CONTAINER, LOG, 6, world.caller)
        assert (await world.store.copy()).promised == 6

    _waits(work)


def test_a_copy_that_is_not_begun_in_time_can_be_created_again() -> None:
    async def work(world: FedStore) -> None:
        with pytest.raises(Unavailable):
            await world.store.copies.create(CONTAINER, LOG, 6, NOTHING)
        world.gate.open()
        copy = await world.store.copies.create(CONTAINER, LOG, 6, NOTHING)
        assert await world.store.copies.find(CONTAINER, LOG) is copy

    _waits(work)


def test_a_reset_does_not_wait_for_the_messages_of_the_older_life() -> None:
    async def work(world: FedStore) -> None:
        world.store.append(world.leader.frame(), world.caller, 5)
        reset = _task(
            world.store.copies.reset(CONTAINER, LOG, 5, world.leader.history.base, world.caller)
        )
        await world.store.settled()
        world.gate.open()
        state = await reset
        assert state.marks == (NOTHING,)

    _waits(work)


async def test_a_failed_local_log_ends_the_leader_here_and_the_store_once() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    ended: list[Exception] = []
    copy.lead(5, ended.append)
    await world.store.local.create_log(CONTAINER + 1, "log-2.x")
    await world.store.copies.create(CONTAINER + 1, "log-2", 1, NOTHING)
    failure = Unavailable("the log was closed")
    world.store.local.close()
    assert [str(error) for error in ended] == [str(failure)]
    assert len(world.store.failures) == 1
    assert copy.failure is not None
    with pytest.raises(Unavailable):
        await world.store.copies.find(CONTAINER, LOG)
    with pytest.raises(Unavailable):
        await world.store.copies.promise(CONTAINER, LOG, 9, None)


async def test_a_wait_ends_when_the_local_log_fails() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    promise = _task(world.store.copies.promise(CONTAINER, LOG, 6, None))
    await world.store.settled()
    MemoryLog(world.frames, world.gate)
    world.gate.open()
    with pytest.raises(Deposed):
        await promise


def _task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)
