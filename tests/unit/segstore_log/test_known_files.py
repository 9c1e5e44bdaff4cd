"""The journal knows which files and logs it has, and misses those that are gone."""

from pathlib import Path

import pytest

from anabranch.common.errors import CorruptJournal, JournalFileMissing
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore import inspect as inspection_program
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.inspection import inspect_journal
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.adapters.journal.local import open_local_journal
from anabranch.segstore.adapters.journal.mending import perform_repair, planned_repair
from anabranch.segstore.domain.log.chain import KnownFiles
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import LOSE_ALL, Crashed, SimDisk

FILE_SIZE = 4096
WRITTEN = {number: b"%d " % number * 900 for number in range(1, 10)}


def opened(disk: SimDisk, callbacks: Callbacks) -> Journal:
    return open_journal(disk, ids=SeededIds(1), schedule=callbacks, file_size=FILE_SIZE)


def written_journal(released: int = 0) -> SimDisk:
    """A journal of several files, whose operations up to `released` are elsewhere."""
    disk, callbacks = SimDisk(), Callbacks()
    journal = opened(disk, callbacks)
    run_at_once(journal.create_log(0, "log"))
    source = ScriptedSource()
    view = run_at_once(journal.open_log(0, "log", 1, source))
    for payload in WRITTEN.values():
        source.put(payload)
        view.ready()
        callbacks.run()
    run_at_once(view.release(released))
    disk.end_process()
    return disk


def files(disk: SimDisk) -> list[str]:
    return [name for name in disk.list() if name.startswith("journal-")]


def kept(disk: SimDisk, after: int = 0) -> dict[int, bytes]:
    journal = opened(disk, Callbacks())
    return replayed(run_at_once(journal.open_log(0, "log", 2, ScriptedSource())), after)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_newest_files_that_are_gone_are_missed_by_open_inspection_and_repair(count: int) -> None:
    disk = written_journal()
    whole = len(files(disk))
    assert whole > 4
    for name in files(disk)[-count:]:
        disk.unlink(name)
    with pytest.raises(JournalFileMissing, match="newest") as missing:
        opened(disk.fork(), Callbacks())
    assert "repair" in missing.value.remedy
    [fault] = inspect_journal(disk).faults
    assert fault.startswith("journal-file-missing")
    plan = planned_repair(disk)
    assert plan.missing
    assert not plan.set_aside, "what is there is whole"
    perform_repair(disk, plan)
    disk.power_loss(LOSE_ALL)
    assert inspect_journal(disk).faults == []
    found = kept(disk)
    assert found == {n: WRITTEN[n] for n in range(1, len(found) + 1)}
    assert 0 < len(found) < len(WRITTEN)


def test_the_oldest_file_that_is_gone_is_missed_and_what_follows_it_is_set_aside() -> None:
    disk = written_journal()
    disk.unlink(files(disk)[0])
    with pytest.raises(JournalFileMissing, match="oldest"):
        opened(disk.fork(), Callbacks())
    assert inspect_journal(disk).faults
    left = files(disk)
    folder = perform_repair(disk, planned_repair(disk))
    assert list(disk.list(folder)) == left
    assert kept(disk) == {}


def test_all_files_gone_is_no_empty_journal() -> None:
    disk = written_journal()
    for name in files(disk):
        disk.unlink(name)
    with pytest.raises(JournalFileMissing):
        opened(disk.fork(), Callbacks())


def test_a_journal_that_let_files_go_is_whole_without_them() -> None:
    disk = written_journal(released=8)
    assert len(files(disk)) < 3
    assert inspect_journal(disk).faults == []
    assert kept(disk, after=8) == {9: WRITTEN[9]}


def test_a_journal_without_the_record_opens_and_gets_it() -> None:
    disk = written_journal()
    layout.forget_known(disk)
    assert layout.read_known(disk) is None
    assert kept(disk) == WRITTEN
    disk.power_loss(LOSE_ALL)
    disk.unlink(files(disk)[-1])
    with pytest.raises(JournalFileMissing):
        opened(disk, Callbacks())


def test_a_repair_of_missing_files_that_is_cut_off_anywhere_is_finished_by_the_next_one() -> None:
    for gone in (0, -1):
        damaged = written_journal()
        damaged.unlink(files(damaged)[gone])
        damaged.sync_directory()
        rehearsal = damaged.fork()
        before = rehearsal.calls
        perform_repair(rehearsal, planned_repair(rehearsal))
        numbers = range(before + 1, rehearsal.calls + 1)
        expected = kept(rehearsal)
        for number in numbers:
            disk = damaged.fork()
            disk.crash_at(number, "after")
            with pytest.raises(Crashed):
                perform_repair(disk, planned_repair(disk))
            disk.power_loss(LOSE_ALL)
            perform_repair(disk, planned_repair(disk))
            assert kept(disk) == expected


def test_the_highest_record_counts_and_lower_ones_of_deposed_owners_go() -> None:
    disk = SimDisk()
    layout.note_known(disk, KnownFiles(1, 5))
    disk.create("known/0000000000000003-0000000000000004").close()
    assert layout.read_known(disk) == KnownFiles(3, 5)
    layout.note_known(disk, KnownFiles(2, 6))
    disk.power_loss(LOSE_ALL)
    assert layout.read_known(disk) == KnownFiles(3, 6)
    layout.note_known(disk, KnownFiles(3, 6))
    assert len(disk.list("known")) <= 2


def test_a_name_in_the_record_that_is_no_record_is_refused() -> None:
    disk = written_journal()
    disk.create("known/abc").close()
    with pytest.raises(CorruptJournal):
        opened(disk, Callbacks())


@pytest.mark.parametrize("gone", ["logs/0", "logs"])
def test_a_lost_list_of_logs_is_refused_by_name_everywhere(tmp_path: Path, gone: str) -> None:
    callbacks = Callbacks()
    local = open_local_journal(tmp_path, ids=SeededIds(1), schedule=callbacks)
    run_at_once(local.journal.create_log(0, "log"))
    source = ScriptedSource()
    view = run_at_once(local.journal.open_log(0, "log", 1, source))
    source.put(b"acknowledged")
    view.ready()
    callbacks.run()
    local.close()
    (tmp_path / "logs" / "0").unlink()
    if gone == "logs":
        (tmp_path / "logs").rmdir()
    with pytest.raises(CorruptJournal) as refused:
        open_local_journal(tmp_path, ids=SeededIds(2), schedule=callbacks)
    assert "restore the folder `logs`" in refused.value.remedy
    with pytest.raises(CorruptJournal, match="list"):
        planned_repair(local.disk)
    try:
        assert inspection_program.inspect(tmp_path).faults
    except CorruptJournal:
        assert gone == "logs"


def test_lost_fences_are_made_again() -> None:
    disk = written_journal()
    for name in disk.list("fences"):
        disk.unlink(f"fences/{name}")
    assert kept(disk) == WRITTEN
