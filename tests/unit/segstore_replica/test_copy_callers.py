"""Which promises the copies of a store give, and which callers they obey."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from anabranch.common.errors import (
    Deposed,
    Unavailable,
)
from anabranch.segstore.domain.log.replica.history import Counted
from anabranch.segstore.domain.log.stream.messages import (
    NOTHING,
)
from kit.copies_world import (
    CONTAINER,
    LOG,
    FedStore,
    Listening,
    append_own,
)

T = TypeVar("T")


async def test_a_lower_epoch_than_the_promised_one_is_refused() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    newer = Listening()
    state = await world.store.copies.promise(CONTAINER, LOG, 7, newer)
    assert state.end == world.leader.history.end
    with pytest.raises(Deposed):
        await world.store.copies.promise(CONTAINER, LOG, 6, Listening())
    with pytest.raises(Deposed):
        await world.store.copies.promise(CONTAINER, LOG, 6, None)
    world.store.append(world.leader.frame(), world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [Deposed]
    with pytest.raises(Deposed):
        await world.store.copies.rewind(CONTAINER, 5, world.leader.history.base, world.caller)
    with pytest.raises(Deposed):
        await world.store.copies.reset(CONTAINER, LOG, 5, NOTHING, world.caller)


async def test_a_promise_without_a_copy_is_remembered() -> None:
    world = FedStore()
    await world.store.copies.promise(CONTAINER, LOG, 7, None)
    with pytest.raises(Deposed):
        await world.store.copies.promise(CONTAINER, LOG, 6, world.caller)


async def test_no_report_of_an_older_epoch_leaves_after_a_promise() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.caller.reports.clear()
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    promise = _task(world.store.copies.promise(CONTAINER, LOG, 7, None))
    await world.store.settled()
    world.gate.open()
    state = await promise
    await world.store.settled()
    assert state.end == world.leader.history.end, "the group commit under way counts"
    assert world.caller.reports == []


async def test_no_report_of_an_older_epoch_leaves_after_the_promise_of_a_leader_here() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.caller.reports.clear()
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    promise = _task(copy.promise(7))
    await world.store.settled()
    world.gate.open()
    await promise
    await world.store.settled()
    assert world.caller.reports == []


async def test_a_caller_that_is_being_replaced_may_not_go_on() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    world.store.append(world.leader.frame(), world.caller, 5)
    promise = _task(world.store.copies.promise(CONTAINER, LOG, 5, Listening()))
    await world.store.settled()
    world.store.append(world.leader.frame(), world.caller, 5)
    assert [type(error) for error in world.caller.refusals] == [Unavailable]
    world.gate.open()
    assert (await promise).end.number == world.leader.history.end.number - 1


async def test_the_promise_outlives_the_removal_of_the_copy() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    await world.store.copies.remove(CONTAINER)
    with pytest.raises(Deposed):
        await world.store.copies.promise(CONTAINER, LOG, 4, None)


async def test_a_promise_repeated_by_a_controller_is_answered_again() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    first = await world.store.copies.promise(CONTAINER, LOG, 7, None)
    assert await world.store.copies.promise(CONTAINER, LOG, 7, None) == first


async def test_messages_after_a_promise_without_a_caller_are_refused() -> None:
    world = FedStore()
    await world.store.fed_copy(world.leader, world.caller, 5)
    await world.store.copies.promise(CONTAINER, LOG, 7, None)
    world.store.append(world.leader.open(7), world.caller, 7)
    assert [type(error) for error in world.caller.refusals] == [Unavailable]


async def test_a_leader_that_connects_again_replaces_its_older_connection() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    again = Listening()
    await world.store.copies.promise(CONTAINER, LOG, 5, again)
    world.store.append(world.leader.frame(), again, 5)
    await world.store.settled()
    with pytest.raises(Unavailable):
        await world.store.copies.rewind(CONTAINER, 5, copy.history.marks()[0], world.caller)
    world.store.append(world.leader.messages[-1], world.caller, 5)
    world.store.copies.release(CONTAINER, 5, 99, world.caller)
    assert [type(error) for error in world.caller.refusals] == [Unavailable, Unavailable]
    assert again.reports == [world.leader.position]
    assert copy.synced == world.leader.position


async def test_a_caller_that_is_lost_holds_no_copy_and_hears_nothing() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.caller.reports.clear()
    world.store.append(world.leader.frame(), world.caller, 5)
    world.store.copies.lost(world.caller)
    await world.store.settled()
    assert world.caller.reports == []
    assert (copy.promised, copy.synced) == (5, world.leader.position)


async def test_a_leader_of_this_store_ends_when_a_higher_epoch_is_promised() -> None:
    world = FedStore()
    copy = await world.store.copies.create(CONTAINER, LOG, 4, NOTHING)
    await copy.promise(5)
    ended: list[Exception] = []
    copy.lead(5, ended.append)
    synced: list[Counted] = []
    for data in world.leader.messages:
        append_own(copy, world.leader, data, synced.append, 5)
    await world.store.copies.promise(CONTAINER, LOG, 6, world.caller)
    assert [counted.link for counted in synced][-1] == world.leader.history.end
    assert [type(error) for error in ended] == [Deposed]
    with pytest.raises(Deposed):
        append_own(copy, world.leader, world.leader.frame(), synced.append, 5)


async def test_a_remote_leader_cannot_have_the_epoch_of_a_leader_here() -> None:
    world = FedStore()
    copy = await world.store.copies.create(CONTAINER, LOG, 5, NOTHING)
    copy.lead(5, lambda _: None)
    with pytest.raises(Deposed):
        await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)


async def test_a_promise_that_a_higher_one_overtakes_is_not_given() -> None:
    world = FedStore()
    copy = await world.store.fed_copy(world.leader, world.caller, 5)
    world.gate.held = True
    lower = _task(world.store.copies.promise(CONTAINER, LOG, 6, None))
    await world.store.settled()
    higher = _task(copy.promise(7))
    await world.store.settled()
    world.gate.open()
    await higher
    with pytest.raises(Deposed):
        await lower


async def test_changes_of_one_copy_wait_for_each_other() -> None:
    world = FedStore()
    await world.store.copies.promise(CONTAINER, LOG, 5, world.caller)
    world.gate.held = True
    reset = _task(world.store.copies.reset(CONTAINER, LOG, 5, NOTHING, world.caller))
    find = _task(world.store.copies.find(CONTAINER, LOG))
    promise = _task(world.store.copies.promise(CONTAINER, LOG, 6, None))
    await world.store.settled()
    world.gate.open()
    copy = await find
    assert copy is not None
    assert copy.copy_id == (await reset).copy_id == (await promise).copy_id
    assert copy.promised == 6


def _task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)
