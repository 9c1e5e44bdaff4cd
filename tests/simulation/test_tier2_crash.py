"""Kill and power loss at every disk call of start, open and flush: nothing flushed is lost."""

import errno
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from anabranch.common.errors import (
    Corrupt,
    DirectoryUnusable,
    DiskFailed,
    SyncFailed,
    TierTwoNotHere,
    TierTwoRewound,
    Unavailable,
)
from kit.planted_tier2 import (
    copies_after_the_manifest,
    no_directory_sync,
    no_parent_directory_sync,
    originals_gone_with_their_copies,
    pages_after_the_manifest,
    receipt_before_its_manifest,
    references_not_counted,
)
from kit.rng import seeded
from kit.simdisk import (
    KEEP_ALL,
    KEEP_CONTENTS,
    KEEP_NAMES,
    LOSE_ALL,
    RandomSurvival,
    SimDisk,
    Survival,
    When,
)
from kit.thorough import one_in, some_of
from kit.tier2_crash import (
    Lived,
    Witness,
    check_after_crash,
    live,
    live_long,
    live_rewriting,
    live_until_crash,
    recover_until_crash,
    run,
)

WHENS: tuple[When, ...] = ("before", "after")
STATES_MIN = 500
ONE_IN = 3
LONG_ONE_IN = 4
"""Of the calls of a recovery, for a second crash."""
SHARES = 4
CALLS_OF_RECOVERY = 20
FOUND_OUT = (AssertionError, Corrupt, TierTwoNotHere)
"""How a lost name shows itself: a lost flush, a manifest without its chunk, no manifest."""


def _survivals() -> list[Survival]:
    random_ones = [RandomSurvival(seeded(seed)) for seed in range(4)]
    return [LOSE_ALL, KEEP_ALL, KEEP_NAMES, KEEP_CONTENTS, *random_ones]


def _calls_of_a_whole_life(life: Lived = live) -> int:
    disk = SimDisk()
    witness = Witness()
    run(life(disk, witness))
    assert witness.flushed == (6 if life is live_long else 3)
    return disk.calls


def _crashes(life: Lived = live) -> Iterator[tuple[int, When]]:
    for number in range(1, _calls_of_a_whole_life(life) + 1):
        for when in WHENS:
            yield number, when


def _check_every_crash() -> int:
    """How many states were checked."""
    states = 0
    for number, when in _crashes():
        disk = SimDisk()
        disk.crash_at(number, when)
        witness = live_until_crash(disk)
        for power_loss in _power_losses():
            twin = disk.fork()
            power_loss(twin)
            check_after_crash(twin, _copy(witness), partial(twin.power_loss, LOSE_ALL))
            states += 1
    return states


def _check_crashes_of_a_long_life(share: int, shares: int = SHARES, life: Lived = live_long) -> int:
    """Crash at every call of a life with snapshots and collection; how many states were checked."""
    states = 0
    for number, when in list(_crashes(life))[share::shares]:
        disk = SimDisk()
        disk.crash_at(number, when)
        witness = live_until_crash(disk, life)
        survivals = (LOSE_ALL, KEEP_ALL, RandomSurvival(seeded(number)))
        losses: list[Callable[[SimDisk], None]] = [SimDisk.kill]
        losses += [partial(SimDisk.power_loss, survival=survival) for survival in survivals]
        for power_loss in losses:
            twin = disk.fork()
            power_loss(twin)
            check_after_crash(twin, _copy(witness), partial(twin.power_loss, LOSE_ALL))
            states += 1
    return states


def _power_losses() -> list[Callable[[SimDisk], None]]:
    """A kill alone, and a loss of power with each survival."""
    losses: list[Callable[[SimDisk], None]] = [SimDisk.kill]
    losses += [partial(SimDisk.power_loss, survival=survival) for survival in _survivals()]
    return losses


def _copy(witness: Witness) -> Witness:
    return Witness(witness.cuts, witness.flushed, witness.opened)


def test_a_crash_at_any_disk_call_leaves_the_state_before_or_after_the_flush() -> None:
    assert _check_every_crash() >= STATES_MIN


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_of_snapshots_and_collection_loses_nothing(share: int) -> None:
    states = _check_crashes_of_a_long_life(share, SHARES * one_in(LONG_ONE_IN))
    assert states >= STATES_MIN / SHARES / one_in(LONG_ONE_IN)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_of_rewrites_loses_nothing(share: int) -> None:
    states = _check_crashes_of_a_long_life(share, SHARES * one_in(LONG_ONE_IN), life=live_rewriting)
    assert states >= STATES_MIN / SHARES / one_in(LONG_ONE_IN)


@pytest.mark.parametrize("survival", [LOSE_ALL, KEEP_ALL], ids=["lose all", "keep all"])
def test_a_second_crash_at_any_disk_call_of_the_recovery_loses_nothing(survival: Survival) -> None:
    states = 0
    for number, when in some_of(list(_crashes()), LONG_ONE_IN):
        disk = SimDisk()
        disk.crash_at(number, when)
        witness = live_until_crash(disk)
        disk.kill()
        for later in some_of(range(1, CALLS_OF_RECOVERY + 1), ONE_IN):
            twin = disk.fork()
            twin.crash_at(twin.calls + later, "after")
            opened = recover_until_crash(twin, witness)
            twin.power_loss(survival)
            check_after_crash(twin, opened, twin.kill)
            states += 1
    assert states >= STATES_MIN / one_in(ONE_IN) / one_in(LONG_ONE_IN)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["failing", "full"])
def test_a_failing_or_full_disk_at_any_call_never_becomes_a_flush(error: int) -> None:
    refused = 0
    for number in some_of(range(1, _calls_of_a_whole_life() + 1), ONE_IN):
        disk = SimDisk()
        disk.fail_at(number, error)
        witness = Witness()
        try:
            run(live(disk, witness))
        except (DiskFailed, DirectoryUnusable, Unavailable):
            refused += 1
        for power_loss in _power_losses():
            twin = disk.fork()
            power_loss(twin)
            check_after_crash(twin, _copy(witness), twin.kill)
    assert refused >= 20 // one_in(ONE_IN)


@pytest.mark.parametrize("life", [live_long, live_rewriting], ids=["long", "rewriting"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["failing", "full"])
def test_a_failure_at_any_disk_call_but_a_sync_costs_a_flush_nothing_but_time(
    error: int, life: Lived
) -> None:
    outcomes: Counter[str] = Counter()
    for number in some_of(range(1, _calls_of_a_whole_life(life) + 1), LONG_ONE_IN):
        disk = SimDisk()
        disk.fail_at(number, error)
        witness = Witness()
        try:
            run(life(disk, witness))
            outcomes["went on"] += 1
        except SyncFailed:
            outcomes["sync" if "sync" in disk.trace[number - 1].verb else "no sync"] += 1
        except (DirectoryUnusable, Unavailable):
            outcomes["no start"] += 1
        disk.power_loss(LOSE_ALL)
        check_after_crash(disk, witness, disk.kill)
    assert outcomes["no sync"] == 0
    assert outcomes["no start"] <= CALLS_OF_RECOVERY * 2
    assert outcomes["went on"] >= 100 // one_in(LONG_ONE_IN)


def test_a_manifest_that_exists_before_its_pages_is_found_out() -> None:
    with pages_after_the_manifest(), pytest.raises(FOUND_OUT):
        _check_crashes_of_a_long_life(0, shares=1)


def test_an_object_that_is_deleted_with_its_first_dropped_piece_is_found_out() -> None:
    with references_not_counted(), pytest.raises(FOUND_OUT):
        _check_crashes_of_a_long_life(0)


def test_a_manifest_that_exists_before_its_copies_is_found_out() -> None:
    with copies_after_the_manifest(), pytest.raises(FOUND_OUT):
        _check_crashes_of_a_long_life(0, shares=1, life=live_rewriting)


def test_an_original_that_is_deleted_before_its_copy_counts_is_found_out() -> None:
    with originals_gone_with_their_copies(), pytest.raises(FOUND_OUT):
        _check_crashes_of_a_long_life(0, shares=1, life=live_rewriting)


def test_a_receipt_that_exists_before_its_manifest_is_found_out() -> None:
    with receipt_before_its_manifest(), pytest.raises(TierTwoRewound):
        _check_every_crash()


def test_a_directory_that_is_never_synced_is_found_out() -> None:
    with no_directory_sync(), pytest.raises(FOUND_OUT):
        _check_every_crash()


def test_new_parent_directories_that_are_never_synced_are_found_out() -> None:
    with no_parent_directory_sync(), pytest.raises(FOUND_OUT):
        _check_every_crash()
