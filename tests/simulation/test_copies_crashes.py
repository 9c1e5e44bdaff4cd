"""Crashes of a store at every disk call of a copy: what it reported is there, and one history."""

import errno
from functools import cache

import pytest

from kit.copies_crash import WRITERS, check, random_copies, run_until_crash, whole_life
from kit.rng import seeded
from kit.simdisk import (
    KEEP_ALL,
    KEEP_CONTENTS,
    KEEP_NAMES,
    LOSE_ALL,
    DiskCall,
    RandomSurvival,
    SimDisk,
    Survival,
    When,
)
from kit.thorough import one_in, some_of

PARTS = 4
ONE_IN = 4


@cache
def whole_trace(writer: str) -> tuple[DiskCall, ...]:
    """The disk calls of the script when nothing fails."""
    disk = SimDisk()
    ledger = run_until_crash(whole_life, disk, WRITERS[writer])
    assert ledger.confirmed == len(ledger.timeline) - 1, "the script ran to its end"
    return tuple(disk.trace)


def survivals(seed: int) -> list[Survival]:
    fixed = [LOSE_ALL, KEEP_ALL, KEEP_NAMES, KEEP_CONTENTS]
    return [*fixed, *(RandomSurvival(seeded(seed * 10 + n)) for n in range(2))]


def moments(call: DiskCall) -> list[When]:
    return ["before", "during", "after"] if call.verb == "write_synced" else ["before", "after"]


@pytest.mark.parametrize("writer", list(WRITERS))
def test_the_script_covers_several_files_and_their_removal(writer: str) -> None:
    calls = whole_trace(writer)
    gone = [
        call
        for call in calls
        if call.verb in ("unlink", "rename") and call.path.startswith("journal-")
    ]
    assert len(gone) >= 2
    assert len(calls) > 80


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_at_any_disk_call_leaves_a_copy_with_all_that_it_reported(
    part: int, writer: str
) -> None:
    states = 0
    for call in some_of(whole_trace(writer)[part::PARTS], ONE_IN):
        for when in moments(call):
            disk = SimDisk()
            disk.crash_at(call.number, when)
            ledger = run_until_crash(whole_life, disk, WRITERS[writer])
            assert disk.dead
            killed = disk.fork()
            killed.kill()
            check(killed, ledger.fork())
            for survival in survivals(call.number):
                machine = disk.fork()
                machine.power_loss(survival)
                check(machine, ledger.fork())
                states += 1
    assert states > 100 // one_in(ONE_IN)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_disk_call_is_never_a_false_report(error: int) -> None:
    for call in some_of(whole_trace("inline"), ONE_IN):
        disk = SimDisk()
        disk.fail_at(call.number, error)
        ledger = run_until_crash(whole_life, disk, WRITERS["inline"])
        disk.power_loss(LOSE_ALL)
        check(disk, ledger)


def test_random_lives_keep_what_was_reported() -> None:
    for seed in range(300 // one_in(ONE_IN)):
        random_copies(seed)
