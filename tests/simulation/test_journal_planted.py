"""Each planted bug is caught by a check that passes on the real code."""

import errno
from collections.abc import Callable

import pytest

from anabranch.common.errors import CorruptJournal, FormatTooNew, JournalFileMissing
from kit.journal_full import random_full_disk
from kit.journal_late import (
    late_writes_at_every_call,
    more_arrives_while_the_child_writes,
    power_loss_before_the_child_writes,
)
from kit.journal_scenario import (
    CONTAINERS,
    Process,
    agree,
    check,
    new_ledgers,
    payload,
    releasing_life,
    run_until_crash,
    whole_life,
)
from kit.log_driver import replayed
from kit.planted import JOURNAL_BUGS
from kit.rng import seeded
from kit.simdisk import KEEP_ALL, LOSE_ALL, RandomSurvival, SimDisk


def power_loss_after_a_whole_life() -> None:
    disk = SimDisk()
    ledgers = run_until_crash(whole_life, disk)
    disk.power_loss(LOSE_ALL)
    check(disk, ledgers)


def power_loss_in_mid_life() -> None:
    disk = SimDisk()
    ledgers = new_ledgers()
    process = Process(disk, ledgers, 1)
    process.open_containers()
    for number in range(8):
        process.append(0, payload(1, 0, number, 900))
        process.commit()
    disk.power_loss(LOSE_ALL)
    check(disk, ledgers)


def a_zombie_appends_after_it_was_deposed() -> None:
    disk = SimDisk()
    ledgers = new_ledgers()
    zombie = Process(disk, ledgers, 1)
    zombie.open_containers()
    zombie.append(0, b"before")
    zombie.commit()
    owner = Process(disk, ledgers, 2)
    owner.open_containers()
    for number in range(8):
        zombie.append(0, payload(1, 0, number, 900))
        zombie.callbacks.run()
        zombie.note()
    agree(replayed(owner.views[0]), ledgers[0])
    owner.append(0, b"owner")
    owner.commit()
    check(disk, ledgers)


def every_flipped_bit_is_detected() -> None:
    disk = SimDisk()
    ledgers = new_ledgers()
    process = Process(disk, ledgers, 1)
    process.open_containers()
    for data in (b"one", b"two", b"three"):
        process.append(0, data)
        process.commit()
    (name,) = (name for name in disk.list() if name.startswith("journal-"))
    positions = [address.position for address in process.sources[0].addresses.values()]
    last_end = positions[-1] + 60
    for bit in range(last_end * 8):
        damaged = disk.fork()
        file = damaged.open(name)
        byte = file.read(bit // 8, 1)[0]
        file.write_synced([bytes([byte ^ 1 << bit % 8])], bit // 8)
        try:
            opened = Process(damaged, new_ledgers(), 2)
        except (CorruptJournal, FormatTooNew):
            continue
        assert opened.journal.report.torn, f"bit {bit} was flipped and nothing was said"
        opened.open_containers()
        assert list(replayed(opened.views[0])) in ([1, 2], [1, 2, 3])
        assert all(opened.sources[container].durable == {} for container in CONTAINERS)


def a_failed_sync_is_followed_by_a_kill_and_a_power_loss() -> None:
    calls = SimDisk()
    whole_life(calls, new_ledgers())
    for number in range(1, calls.calls + 1):
        disk = SimDisk()
        disk.fail_at(number, errno.EIO)
        ledgers = run_until_crash(whole_life, disk)
        disk.kill()
        check(disk, ledgers)


def a_kill_in_a_file_that_is_used_again() -> None:
    """The second life writes over some frames of the first, and the rest are still there."""
    disk = SimDisk()
    ledgers = new_ledgers()
    process = Process(disk, ledgers, 1)
    process.open_containers()
    for number in range(12):
        process.append(0, payload(1, 0, number, 600))
        process.append(0, payload(1, 0, number + 100, 600))
        process.commit()
        process.release(0, 2 * number + 1)
    disk.kill()
    check(disk, ledgers)


def a_crash_at_every_rename() -> None:
    calls = SimDisk()
    whole_life(calls, new_ledgers())
    for call in calls.trace:
        for near in (call.number, call.number + 1) if call.verb == "rename" else ():
            disk = SimDisk()
            disk.crash_at(near, "after")
            ledgers = run_until_crash(whole_life, disk)
            disk.power_loss(KEEP_ALL)
            check(disk, ledgers)


def power_loss_at_every_call_of_a_release() -> None:
    """Each name by a coin: a journal with a hole, or without a known file, would be refused."""
    calls = SimDisk()
    releasing_life(calls, new_ledgers())
    for call in calls.trace:
        if call.verb not in ("rename", "unlink", "sync_directory"):
            continue
        for seed in range(3):
            disk = SimDisk()
            disk.crash_at(call.number, "after")
            ledgers = run_until_crash(releasing_life, disk)
            disk.power_loss(RandomSurvival(seeded(call.number * 10 + seed)))
            check(disk, ledgers)


def any_file_that_is_removed_by_hand_is_missed() -> None:
    disk = SimDisk()
    releasing_life(disk, new_ledgers())
    names = [name for name in disk.list() if name.startswith("journal-")]
    assert len(names) > 1
    for name in names:
        damaged = disk.fork()
        damaged.unlink(name)
        try:
            Process(damaged, new_ledgers(), 9)
        except JournalFileMissing:
            continue
        raise AssertionError(f"{name} is missing, and nothing was said")


def full_disks_held_and_freed() -> None:
    for seed in range(12):
        random_full_disk(seed)


CHECKS: dict[str, Callable[[], object]] = {
    "ack before sync": power_loss_in_mid_life,
    "no fence check": a_zombie_appends_after_it_was_deposed,
    "no directory sync": power_loss_after_a_whole_life,
    "skipped CRC": every_flipped_bit_is_detected,
    "cached scan": a_failed_sync_is_followed_by_a_kill_and_a_power_loss,
    "one seed for all files": a_kill_in_a_file_that_is_used_again,
    "header after the name": a_crash_at_every_rename,
    "ack before the child's answer": power_loss_before_the_child_writes,
    "two writes outstanding": more_arrives_while_the_child_writes,
    "scan not synced": late_writes_at_every_call,
    "retired without directory sync": power_loss_at_every_call_of_a_release,
    "nothing recorded": any_file_that_is_removed_by_hand_is_missed,
    "newest recorded before its name": power_loss_at_every_call_of_a_release,
    "oldest not recorded": power_loss_at_every_call_of_a_release,
    "acknowledged without room": full_disks_held_and_freed,
    "a free file stays when the next begins": full_disks_held_and_freed,
    "a frame skipped when there is room again": full_disks_held_and_freed,
}


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS.values()), ids=lambda check: check.__name__)
def test_the_check_passes_on_the_real_journal(check: Callable[[], object]) -> None:
    check()


@pytest.mark.parametrize("bug", list(JOURNAL_BUGS))
def test_the_check_finds_the_planted_bug(bug: str) -> None:
    with JOURNAL_BUGS[bug](), pytest.raises((AssertionError, CorruptJournal)):
        CHECKS[bug]()
