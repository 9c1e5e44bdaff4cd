"""The workflow of one election: the freeze, promises, the decision, the placement; and repeats."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Conflict, OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import (
    REPLICATED,
    Abandonment,
    LogCopy,
    Placement,
    PlacementState,
)
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.elections import Elected, Elections
from anabranch.controller.domain.cluster.election import Promised
from kit.candidates import KnownCopies, refusing

NODES = ("a", "b", "c")


@dataclass
class Sessions:
    """Whose session is over, as a controller knows it."""

    over: set[str] = field(default_factory=lambda: {"a"})
    before: Callable[[], Awaitable[None]] | None = None
    """Happens before the answer."""

    def is_down(self, store: str) -> bool:
        return store in self.over

    async def is_still_over(self, store: str) -> bool:
        if self.before is not None:
            await self.before()
        return store in self.over


class World:
    """Container 0, led by `a` and followed by `b` and `c`, whose copies are all in sync."""

    def __init__(self) -> None:
        self.objects = InMemoryObjectStore()
        self.sessions = Sessions()
        self.copies = KnownCopies(refusing("a"))
        isr = [
            self.copies.put(node, 0, epoch=7, number=number)
            for node, number in zip(NODES, (9, 5, 6), strict=True)
        ]
        self.led = Placement(
            0, NODES, 7, "log", PlacementState.OPEN, log_home=REPLICATED, isr=tuple(isr), isr_min=2
        )
        self.elections = Elections(self.objects, self.sessions, self.copies, SystemClock())

    async def put(self, found: Placement) -> Placement:
        stored = await self.objects.get(placement_key(0))
        value = placement_to_bytes(found)
        if stored is None:
            await self.objects.create(placement_key(0), value)
        else:
            await self.objects.update(placement_key(0), value, stored.revision)
        return found

    async def stored(self) -> Placement:
        found = await self.objects.get(placement_key(0))
        assert found is not None
        return placement_from_bytes(found.value)

    async def revision(self) -> int:
        found = await self.objects.get(placement_key(0))
        assert found is not None
        return found.revision


@pytest.fixture
def world() -> World:
    return World()


async def test_the_live_member_with_most_messages_leads_after_one_freeze(world: World) -> None:
    found = await world.put(world.led)
    assert await world.elections.hold(found) == Elected(0, "c", "a")
    after = await world.stored()
    assert after == replace(
        found, container_epoch=8, replicas=("c", "a", "b"), state=PlacementState.ASSIGNED
    )
    assert sorted(world.copies.asked) == [("b", 0, 8), ("c", 0, 8)], "the dead one costs no time"
    assert {world.copies.copies[node, 0].promised for node in "bc"} == {8}


async def test_the_freeze_comes_before_any_question(world: World) -> None:
    found = await world.put(world.led)

    def is_frozen(_node: str) -> None:
        now = placement_from_bytes(world.objects._objects["0"].value)
        assert (now.state, now.container_epoch) == (PlacementState.ELECTING, 8)

    world.copies.check = is_frozen
    await world.elections.hold(found)
    assert len(world.copies.asked) == 2


async def test_an_owner_that_began_another_session_keeps_its_container(world: World) -> None:
    found = await world.put(world.led)
    world.sessions.over.clear()
    assert await world.elections.hold(found) is None
    assert await world.stored() == found
    assert not world.copies.asked


async def test_an_owner_that_took_an_epoch_meanwhile_keeps_its_container(world: World) -> None:
    found = await world.put(world.led)
    opened = replace(found, container_epoch=8)

    async def open_again() -> None:
        await world.put(opened)

    world.sessions.before = open_again
    assert await world.elections.hold(found) is None
    assert await world.stored() == opened
    assert not world.copies.asked


async def test_a_container_that_its_store_closed_needs_no_session_to_be_over(
    world: World,
) -> None:
    world.sessions.over.clear()
    world.copies.check = refusing()
    failed = replace(world.led, state=PlacementState.FAILED, restarts=2, reason="disk-failed")
    found = await world.put(failed)
    assert await world.elections.hold(found) == Elected(0, "c", "a"), "a has more, and failed"
    assert (await world.stored()).restarts == 2, "failures are counted over stores"


async def test_without_an_answer_the_container_has_no_leader_and_says_why_once(
    world: World,
) -> None:
    world.copies.check = refusing(*NODES)
    found = await world.put(world.led)
    assert await world.elections.hold(found) is None
    electing = await world.stored()
    assert electing.state is PlacementState.ELECTING
    assert electing.reason.startswith("leader-offline: a does not promise (unavailable), b")
    assert {node for node, _, _ in world.copies.asked} == set(NODES), "the dead one is asked, too"
    revision = await world.revision()
    assert await world.elections.hold(electing) is None
    assert await world.revision() == revision
    # a member returns
    world.copies.check = refusing("a", "c")
    assert await world.elections.hold(electing) == Elected(0, "b", "a")
    after = await world.stored()
    assert (after.container_epoch, after.reason) == (8, "")


async def test_a_dead_member_leads_if_it_answers_and_no_live_one_can(world: World) -> None:
    world.sessions.over = {"a", "b", "c"}
    world.copies.check = refusing("a", "c")
    assert await world.elections.hold(await world.put(world.led)) == Elected(0, "b", "a")


async def test_a_wiped_copy_wins_nothing(world: World) -> None:
    world.copies.put("c", 0, epoch=7, number=99, life=2)
    assert await world.elections.hold(await world.put(world.led)) == Elected(0, "b", "a")


async def test_another_controller_continues_an_election_that_was_left(world: World) -> None:
    """It crashed after the freeze, or after the promises."""
    promise, asked = world.copies.promise, asyncio.Event()

    async def be_killed(
        node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        await promise(node_id, container, log_id, container_epoch)
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    found = await world.put(world.led)
    world.copies.promise = be_killed  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        holding = group.create_task(world.elections.hold(found))
        await asked.wait()
        holding.cancel()
    world.copies.promise = promise  # type: ignore[method-assign]
    assert await world.elections.hold(found) is None, "the plan is old"
    electing = await world.stored()
    assert electing.state is PlacementState.ELECTING
    assert await world.elections.hold(electing) == Elected(0, "c", "a")
    assert await world.elections.hold(electing) is None, "it is over"
    assert (await world.stored()).container_epoch == 8


async def both(
    *elections: Coroutine[None, None, Elected | None],
) -> list[bool]:
    """Whether each of several elections at once has a winner, sorted."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in elections]
    return sorted(task.result() is not None for task in tasks)


async def test_two_controllers_at_once_place_one_winner(world: World) -> None:
    found = await world.put(world.led)
    other = Elections(world.objects, world.sessions, world.copies, SystemClock())
    assert await both(world.elections.hold(found), other.hold(found)) == [False, True]
    electing = replace(await world.stored(), state=PlacementState.ELECTING)
    await world.put(electing)
    assert await both(world.elections.hold(electing), other.hold(electing)) == [False, True]


async def test_a_lost_answer_to_the_freeze_is_repeated_from_the_stored_placement(
    world: World,
) -> None:
    update = world.objects.update

    async def store_without_an_answer(key: str, value: bytes, revision: int) -> int:
        await update(key, value, revision)
        raise OutcomeUnknown("no answer")

    found = await world.put(world.led)
    world.objects.update = store_without_an_answer  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await world.elections.hold(found)
    world.objects.update = update  # type: ignore[method-assign]
    assert await world.elections.hold(await world.stored()) == Elected(0, "c", "a")


# --- unclean ----------------------------------------------------------------------------------


def leaderless(world: World) -> Placement:
    return replace(
        world.led, container_epoch=8, state=PlacementState.ELECTING, reason="leader-offline: x"
    )


async def test_an_unclean_election_makes_the_longest_copy_the_only_one_in_sync(
    world: World,
) -> None:
    """Only `c` was in sync, and its disk is lost."""
    await world.put(replace(leaderless(world), isr=(LogCopy("c", "c-1"),)))
    world.copies.put("c", 0, epoch=9, number=0, life=2)
    del world.copies.copies["c", 0]
    world.copies.check = refusing()
    after = await world.elections.hold_unclean(0, "")
    assert after == await world.stored()
    assert (after.owner, after.isr) == ("a", (LogCopy("a", "a-1"),))
    assert after.abandoned is not None
    assert replace(after.abandoned, time_ms=0) == Abandonment("log", 90, 0)
    assert (after.state, after.container_epoch, after.reason) == (PlacementState.ASSIGNED, 8, "")


async def test_an_operator_may_choose_the_store_of_an_unclean_election(world: World) -> None:
    await world.put(replace(leaderless(world), isr=(LogCopy("c", "c-9"),)))
    world.copies.check = refusing()
    after = await world.elections.hold_unclean(0, "b")
    assert (after.owner, after.isr) == ("b", (LogCopy("b", "b-1"),))
    assert [node for node, _, _ in world.copies.asked] == ["b"]


async def test_an_unclean_election_loses_nothing_if_an_in_sync_copy_answers(
    world: World,
) -> None:
    await world.put(leaderless(world))
    world.copies.check = refusing("a", "c")
    after = await world.elections.hold_unclean(0, "")
    assert (after.owner, after.isr, after.abandoned) == ("b", world.led.isr, None)


@pytest.mark.parametrize(
    "state", [PlacementState.OPEN, PlacementState.ASSIGNED, PlacementState.FAILED]
)
async def test_a_container_with_a_leader_gets_no_unclean_election(
    world: World, state: PlacementState
) -> None:
    found = await world.put(replace(world.led, state=state))
    with pytest.raises(Conflict):
        await world.elections.hold_unclean(0, "")
    assert await world.stored() == found


@pytest.mark.parametrize("state", [PlacementState.DISABLED, PlacementState.OFFLINE])
async def test_a_container_that_waits_for_an_operator_may_have_an_unclean_election(
    world: World, state: PlacementState
) -> None:
    await world.put(replace(world.led, state=state, restarts=5))
    world.copies.check = refusing()
    after = await world.elections.hold_unclean(0, "b")
    assert (after.owner, after.container_epoch, after.restarts) == ("b", 8, 0)


async def test_an_unclean_election_without_any_copy_names_what_is_left_to_do(
    world: World,
) -> None:
    found = await world.put(leaderless(world))
    world.copies.check = refusing("a", "b")
    del world.copies.copies["c", 0]
    with pytest.raises(Conflict) as refused:
        await world.elections.hold_unclean(0, "")
    assert "abandon-tail" in refused.value.remedy
    assert refused.value.fields["answers"] == "a: unavailable, b: unavailable, c: no copy"
    assert await world.stored() == found


async def test_only_replicated_logs_have_elections(world: World) -> None:
    with pytest.raises(Unavailable):
        await world.elections.hold_unclean(0, "")
    await world.put(Placement(0, ("a",), 3, "log", PlacementState.OFFLINE))
    with pytest.raises(Conflict):
        await world.elections.hold_unclean(0, "")
