"""Crashes of the journal at every disk call: nothing acknowledged is lost, nothing invented."""

import errno
from collections import Counter
from functools import cache

import pytest

from anabranch.segstore.domain.log.formats import FILE_HEADER_SIZE_BYTES, parse_file_header
from kit.journal_scenario import (
    LIVES,
    Script,
    check,
    new_ledgers,
    random_journal,
    releasing_life,
    run_until_crash,
    whole_life,
)
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

ONE_IN = 4


@cache
def whole_trace(life: Script = whole_life) -> tuple[DiskCall, ...]:
    """The disk calls of the script when nothing fails."""
    disk = SimDisk()
    life(disk, new_ledgers())
    return tuple(disk.trace)


def survivals(seed: int) -> list[Survival]:
    fixed = [LOSE_ALL, KEEP_ALL, KEEP_NAMES, KEEP_CONTENTS]
    return [*fixed, *(RandomSurvival(seeded(seed * 10 + n)) for n in range(3))]


def moments(call: DiskCall) -> list[When]:
    return ["before", "during", "after"] if call.verb == "write_synced" else ["before", "after"]


def test_the_script_goes_on_in_a_file_that_is_used_again() -> None:
    recycled = []
    for call in whole_trace():
        disk = SimDisk()
        disk.crash_at(call.number, "after")
        run_until_crash(whole_life, disk)
        disk.kill()
        for name in disk.list():
            if name.startswith("journal-"):
                header = parse_file_header(disk.open(name).read(0, FILE_HEADER_SIZE_BYTES), name)
                recycled += [header.file_id] if header.recycled else []
    assert len(recycled) > 10, "many crashes fall into its second life"


def test_the_script_covers_append_roll_open_and_release() -> None:
    verbs = Counter(call.verb for call in whole_trace())
    assert verbs["write_synced"] > 10
    assert verbs["rename"] >= 4, "at least two rolls and two openings"
    assert verbs["unlink"] >= 2
    assert any(call.verb == "unlink" and "journal-" in call.path for call in whole_trace())


def test_the_releasing_script_lets_several_files_go_at_once() -> None:
    gone = [
        place
        for place, call in enumerate(whole_trace(releasing_life))
        if call.verb == "unlink" and call.path.startswith("journal-")
    ]
    kept = [
        place
        for place, call in enumerate(whole_trace(releasing_life))
        if call.verb == "rename" and call.path.startswith("spare-")
    ]
    assert len(gone) >= 4, "files of the former owner"
    assert len(kept) >= 3, "files that are used again"
    between = max(gone + kept) - min(gone + kept)
    assert between < 3 * len(gone + kept), "one release"


@pytest.mark.parametrize("writer", list(LIVES))
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_disk_call_loses_nothing_acknowledged(part: int, writer: str) -> None:
    states = 0
    for call in some_of(whole_trace(LIVES[writer])[part::4], ONE_IN):
        for when in moments(call):
            disk = SimDisk()
            disk.crash_at(call.number, when)
            ledgers = run_until_crash(LIVES[writer], disk)
            killed = disk.fork()
            killed.kill()
            check(killed, {c: ledger.copy() for c, ledger in ledgers.items()})
            for survival in survivals(call.number):
                machine = disk.fork()
                machine.power_loss(survival)
                check(machine, {c: ledger.copy() for c, ledger in ledgers.items()})
                states += 1
            states += 1
    assert states >= 250 // one_in(ONE_IN), "a thousand states over the four parts"


@pytest.mark.parametrize("writer", list(LIVES))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for ever"])
def test_an_error_at_any_disk_call_is_never_a_false_acknowledgement(
    error: int, lasting: bool, writer: str
) -> None:
    for call in some_of(whole_trace(LIVES[writer]), ONE_IN):
        disk = SimDisk()
        (disk.fail_from if lasting else disk.fail_at)(call.number, error)
        ledgers = run_until_crash(LIVES[writer], disk)
        if lasting:  # a start meanwhile fails too, and does no harm
            disk.end_process()
            run_until_crash(check, disk, {c: ledger.copy() for c, ledger in ledgers.items()})
        for end in ("kill", "power"):  # from here on the disk works again
            machine = disk.fork()
            if end == "kill":
                machine.kill()
            else:
                machine.power_loss(LOSE_ALL)
            check(machine, {c: ledger.copy() for c, ledger in ledgers.items()}, life=200)


def test_a_crash_while_recovering_from_a_crash_loses_nothing_acknowledged() -> None:
    states = 0
    for first in whole_trace()[10::9]:
        crashed = SimDisk()
        crashed.crash_at(first.number, "during")
        ledgers = run_until_crash(whole_life, crashed)
        crashed.power_loss(RandomSurvival(seeded(first.number)))
        probe = crashed.fork()
        before = probe.calls
        check(probe, {c: ledger.copy() for c, ledger in ledgers.items()})
        for number in range(before + 1, probe.calls, 3):
            disk = crashed.fork()
            known = {c: ledger.copy() for c, ledger in ledgers.items()}
            disk.crash_at(number, "during")
            run_until_crash(check, disk, known)
            disk.power_loss(RandomSurvival(seeded(number)))
            check(disk, known, life=200)
            states += 1
    assert states > 100


def test_random_lives_keep_what_was_acknowledged() -> None:
    for seed in range(300 // one_in(ONE_IN)):
        random_journal(seed)
