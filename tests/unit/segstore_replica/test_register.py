"""The placements as the register of ISRs, and what a store reports of a replicated container."""

from dataclasses import replace

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Deposed, WrongHost
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import (
    REPLICATED,
    Abandonment,
    LogCopy,
    Placement,
    PlacementState,
)
from anabranch.segstore.ports_replica import Replicas
from anabranch.segstore.shell.node.placements import Placements, hands_over

A, B, C = LogCopy("a", "1"), LogCopy("b", "2"), LogCopy("c", "3")
OPEN = Placement(
    3, ("a", "b", "c"), 7, "log", PlacementState.OPEN, log_home=REPLICATED, isr=(A, B), isr_min=2
)


class Register:
    """The placements of the store `a`."""

    def __init__(self) -> None:
        self.objects = InMemoryObjectStore()
        self.placements = Placements(self.objects, "a")

    async def put(self, found: Placement) -> None:
        await self.objects.create(placement_key(found.container), placement_to_bytes(found))

    async def stored(self) -> Placement:
        return placement_from_bytes((await self._object()).value)

    async def revision(self) -> int:
        return (await self._object()).revision

    async def _object(self) -> StoredObject:
        found = await self.objects.get(placement_key(3))
        assert found is not None
        return found


@pytest.fixture
def register() -> Register:
    return Register()


async def test_the_isr_is_read_and_written_under_the_epoch_of_its_owner(
    register: Register,
) -> None:
    await register.put(OPEN)
    placements = register.placements
    assert await placements.read(3, 7) == Replicas(("a", "b", "c"), (A, B), 2)
    assert await placements.change(3, 7, (A, B, C)) == Replicas(("a", "b", "c"), (A, B, C), 2)
    assert await register.stored() == replace(OPEN, isr=(A, B, C))


async def test_a_change_to_the_same_isr_is_written_all_the_same(register: Register) -> None:
    await register.put(OPEN)
    before = await register.revision()
    await register.placements.change(3, 7, OPEN.isr)
    assert await register.revision() > before, "an earlier change can no longer take effect"


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (replace(OPEN, container_epoch=8), Deposed),
        (replace(OPEN, replicas=("b", "a")), WrongHost),
        (replace(OPEN, container_epoch=8, state=PlacementState.ELECTING), WrongHost),
        (replace(OPEN, state=PlacementState.ELECTING), WrongHost),
    ],
)
async def test_only_the_owner_of_the_epoch_uses_the_register(
    register: Register, found: Placement, error: type[Exception]
) -> None:
    await register.put(found)
    with pytest.raises(error):
        await register.placements.read(3, 7)
    with pytest.raises(error):
        await register.placements.change(3, 7, (A,))
    assert await register.stored() == found


async def test_no_store_takes_an_epoch_during_an_election(register: Register) -> None:
    electing = replace(OPEN, state=PlacementState.ELECTING)
    assert not register.placements.is_mine(electing)
    await register.put(electing)
    with pytest.raises(WrongHost):
        await register.placements.take_epoch(3)


async def test_an_opening_keeps_the_isr_of_a_log_that_served_and_of_no_other(
    register: Register,
) -> None:
    await register.put(replace(OPEN, state=PlacementState.FAILED))
    taken = await register.placements.take_epoch(3)
    assert (taken.isr, taken.container_epoch) == ((A, B), 8)
    await register.placements.report_open(taken, "log", REPLICATED)
    assert (await register.stored()).isr == (A, B)


async def test_the_isr_of_a_log_that_never_served_begins_anew(register: Register) -> None:
    await register.put(replace(OPEN, log_id="", log_home="", isr=(A,)))
    assert (await register.placements.take_epoch(3)).isr == ()


async def test_a_recorded_loss_stays_until_a_later_one_is_known(register: Register) -> None:
    lost, later = Abandonment("log", 40, 1000), Abandonment("log", 60, 2000)
    await register.put(replace(OPEN, abandoned=lost))
    await register.placements.report_open(OPEN, "log", REPLICATED, None)
    assert (await register.stored()).abandoned == lost
    await register.placements.report_open(OPEN, "log", REPLICATED, replace(lost, time_ms=5))
    assert (await register.stored()).abandoned == lost
    await register.placements.report_open(OPEN, "log", REPLICATED, later)
    assert (await register.stored()).abandoned == later


def _targets(target: str) -> Placement:
    return replace(OPEN, target=target)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (_targets("b"), True),
        (_targets("c"), False),
        (_targets(""), False),
        (replace(_targets("b"), log_home=""), False),
        (replace(_targets("b"), log_id=""), False),
    ],
)
def test_a_log_is_handed_over_to_a_store_with_an_in_sync_copy(
    found: Placement, *, expected: bool
) -> None:
    assert hands_over(found) is expected


async def test_a_hand_over_keeps_the_log_and_puts_the_target_first(register: Register) -> None:
    await register.put(_targets("b"))
    handed = await register.placements.hand_over(OPEN)
    assert handed == replace(OPEN, replicas=("b", "a", "c"), state=PlacementState.ASSIGNED)
    assert handed.log_id == "log"


async def test_a_target_that_left_the_isr_meanwhile_gets_nothing(register: Register) -> None:
    await register.put(replace(_targets("b"), isr=(A, C)))
    kept = await register.placements.hand_over(OPEN)
    assert (kept.owner, kept.target, kept.log_id) == ("a", "", "log")
    assert register.placements.is_mine(kept)


async def test_a_released_container_has_no_replicas_yet(register: Register) -> None:
    await register.put(replace(OPEN, target="j", wanted=("a",)))
    released = await register.placements.release(OPEN)
    assert (released.replicas, released.log_id, released.log_home) == (("j",), "", "")
    assert (released.isr, released.isr_min, released.wanted) == ((), 0, ())


async def test_a_store_that_asks_for_an_election_raises_the_epoch(register: Register) -> None:
    await register.put(OPEN)

    async def report(state: PlacementState) -> None:
        await register.placements.report_failed(OPEN, restarts=1, reason="x", state=state)

    await report(PlacementState.FAILED)
    assert (await register.stored()).container_epoch == 7
    await report(PlacementState.ELECTING)
    found = await register.stored()
    assert (found.state, found.container_epoch, found.isr) == (
        PlacementState.ELECTING, 8, (A, B),
    )  # fmt: skip
    with pytest.raises(WrongHost):
        await report(PlacementState.FAILED)
