"""Containers move from one store to another: nothing acknowledged is lost, whoever dies where.

The store that is left is crashed before, in the middle of and after every disk call from the wish
to the release, the store that is moved to at every call of its open; each crash ends in several
ways. A process that slept at such a call, while its successor finished the move and the other
store worked, wakes: nothing that it still does may count.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from anabranch.common.errors import Fenced, Retry
from anabranch.segstore.domain.storage import fence
from anabranch.segstore.shell.node import closing
from kit.history import HistoryViolation
from kit.rng import seeded
from kit.simdisk import LOSE_ALL, RandomSurvival, SimDisk, When
from kit.store_check import check_everything
from kit.store_crash import Ending
from kit.store_world import NODE, Life, World
from kit.thorough import one_in, some_of
from kit.two_stores import OTHER, TwoStores

WHENS: tuple[When, ...] = ("before", "during", "after")


def journal_disk(world: World) -> SimDisk:
    return world.journal_disk


def tier_disk(world: World) -> SimDisk:
    return world.tier_disk


ENDINGS: tuple[Ending, ...] = (None, LOSE_ALL, RandomSurvival(seeded(1)))
DISKS = (journal_disk, tier_disk)
ONE_IN = 7
"""No multiple of 2 or 3, so that a call's moment and ending vary with its number."""
DiskOf = Callable[[World], SimDisk]


def end(world: World, ending: Ending) -> None:
    if ending is None:
        world.kill()
    else:
        world.power_loss(ending)


def move_back_and_forth(stores: TwoStores) -> None:
    """From wherever the containers are released to now: work, move back, work."""
    assert stores.second.run(stores.working_life)
    assert stores.second.run(stores.leaving_life(NODE))
    assert stores.first.run(stores.working_life)


def test_containers_move_back_and_forth_and_lose_nothing() -> None:
    stores = TwoStores.new()
    for _ in range(3):
        assert stores.first.run(stores.leaving_life(OTHER))
        move_back_and_forth(stores)
        stores.first.power_loss(LOSE_ALL)
    assert stores.first.run(check_everything)
    assert min(writer.acknowledged for writer in stores.writers) >= 20


class Counted:
    """A leaving life that notes the disk calls made before the wish."""

    def __init__(self) -> None:
        self.stores = TwoStores.new()
        self.before: dict[DiskOf, int] = {}
        stores = self.stores
        ask = stores.ask_to_leave

        async def noted(life: Life, target: str) -> None:
            self.before = {disk_of: disk_of(stores.first).calls for disk_of in DISKS}
            await ask(life, target)

        stores.ask_to_leave = noted  # type: ignore[method-assign]

    def calls(self, disk_of: DiskOf) -> range:
        assert self.stores.first.run(self.stores.leaving_life(OTHER))
        return range(self.before[disk_of] + 1, disk_of(self.stores.first).calls + 1)


def calls_of_leaving(disk_of: DiskOf) -> range:
    """The calls of a disk from the wish to the release."""
    return Counted().calls(disk_of)


def crashed_while_leaving(disk_of: DiskOf, call: int, when: When) -> TwoStores:
    stores = TwoStores.new()
    disk_of(stores.first).crash_at(call, when)
    assert not stores.first.run(stores.leaving_life(OTHER))
    return stores


def crash_everywhere_while_leaving(disk_of: DiskOf) -> int:
    """Crash, start again, leave, and arrive. Returns how many ways were tried."""
    count = 0
    for call in some_of(calls_of_leaving(disk_of), ONE_IN):
        for number, when in enumerate(WHENS):
            stores = crashed_while_leaving(disk_of, call, when)
            end(stores.first, ENDINGS[(call + number) % 3])
            assert stores.first.run(stores.left_life(OTHER))
            assert stores.second.run(check_everything)
            count += 1
            if count % 10 == 0:
                move_back_and_forth(stores)
    return count


@pytest.mark.parametrize("disk_of", DISKS)
def test_a_store_may_die_at_any_disk_call_of_a_move(disk_of: DiskOf) -> None:
    assert crash_everywhere_while_leaving(disk_of) >= 60 // one_in(ONE_IN)


def released() -> TwoStores:
    """The containers are the second store's, which has not been started since."""
    stores = TwoStores.new()
    assert stores.first.run(stores.leaving_life(OTHER))
    return stores


def calls_of_arriving(disk_of: DiskOf) -> range:
    stores = released()
    before = disk_of(stores.second).calls
    assert stores.second.run(Life.opened)
    return range(before + 1, disk_of(stores.second).calls + 1)


@pytest.mark.parametrize("disk_of", DISKS)
def test_a_store_may_die_while_it_opens_what_it_got(disk_of: DiskOf) -> None:
    crashes = 0
    for call in some_of(calls_of_arriving(disk_of), ONE_IN):
        for number, when in enumerate(WHENS):
            stores = released()
            disk_of(stores.second).crash_at(call, when)
            if stores.second.run(Life.opened):
                continue  # it was open before its last call
            crashes += 1
            end(stores.second, ENDINGS[(call + number) % 3])
            if call % 2:
                assert stores.second.run(stores.working_life)
                continue
            # it stays away, and the containers go back: an open that it began counts for nothing
            stores.first.run(stores.give_back)
            if asyncio.run(stores.placed_on(OTHER)):  # one of them was served, and is closed there
                assert stores.second.run(stores.left_life(NODE))
            assert stores.first.run(stores.working_life)
    assert crashes >= 20 // one_in(ONE_IN)


def test_what_a_dead_store_got_and_never_opened_can_be_moved_on() -> None:
    stores = released()
    assert stores.first.run(stores.give_back)
    assert stores.first.run(stores.working_life)


class Sleeper:
    """A leaving process sleeps; another of its store finishes the move; the other store works."""

    def __init__(self, disk_of: DiskOf, call: int, when: When) -> None:
        self.stores = TwoStores.new()
        self.slept = False
        self.failure: BaseException | None = None
        disk_of(self.stores.first).interrupt_at(call, when, self.sleep)

    def sleep(self) -> None:
        self.slept = True
        for writer in self.stores.writers:
            writer.frozen = True
        thread = threading.Thread(target=self._meanwhile)
        thread.start()
        thread.join()

    def _meanwhile(self) -> None:
        try:
            assert self.stores.first.run(self.stores.left_life(OTHER))
            assert self.stores.second.run(check_everything)
            assert self.stores.second.run(self.stores.sealing_life)
        except BaseException as error:  # noqa: BLE001  carried over to the test
            self.failure = error

    def run(self) -> None:
        with suppress(Retry, Fenced):
            self.stores.first.run(self.stores.leaving_life(OTHER))
        assert self.slept
        if self.failure is not None:
            raise self.failure
        self.stores.second.kill()
        assert self.stores.second.run(check_everything)


@pytest.mark.parametrize("disk_of", DISKS)
def test_an_owner_that_wakes_after_the_move_changes_nothing(disk_of: DiskOf) -> None:
    for call in some_of(calls_of_leaving(disk_of), ONE_IN):
        Sleeper(disk_of, call, WHENS[call % 3]).run()


def stolen() -> TwoStores:
    """The first store died with a tail; the placements say, wrongly, that it released it."""
    stores = TwoStores.new()

    async def live(life: Life) -> None:
        await stores.working_life(life)
        await stores.steal()

    assert stores.first.run(live)
    stores.first.kill()
    return stores


def test_a_container_that_was_not_closed_opens_nowhere_else() -> None:
    stores = stolen()
    assert stores.second.run(stores.refused_life)
    stores.second.kill()
    # its own store still has everything
    assert stores.first.run(stores.give_back)
    assert stores.first.run(stores.working_life)


def released_before_the_last_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The placement is released when everything is flushed, and the log never closed."""

    async def never(*_: object) -> None:
        return

    monkeypatch.setattr(closing, "_write_last_manifest", never)


def opened_although_the_log_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new owner takes the newest manifest for the whole truth, wherever its log is."""
    monkeypatch.setattr(fence, "_is_void", lambda *_: True)


def test_a_release_before_the_last_manifest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    released_before_the_last_manifest(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        move_back_and_forth(released())


def test_an_owner_that_opens_although_the_log_is_open_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened_although_the_log_is_open(monkeypatch)
    stores = stolen()
    with pytest.raises((AssertionError, HistoryViolation)):
        stores.second.run(stores.refused_life)
    stores.second.kill()
    with pytest.raises((AssertionError, HistoryViolation)):
        stores.second.run(check_everything)
