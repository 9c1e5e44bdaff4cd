"""What can be told of a journal without opening it."""

import json
import sys
from pathlib import Path

import pytest

from anabranch.cli.__main__ import run
from anabranch.common.errors import CorruptJournal, DirectoryUnusable
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore import inspect as program
from anabranch.segstore.adapters.journal.inspection import inspect_journal
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.journal.local import open_local_journal
from kit.fixed_catalog import run_at_once
from kit.journal_scenario import FILE_SIZE, new_ledgers, run_until_crash, whole_life
from kit.log_driver import Callbacks, ScriptedSource
from kit.rng import seeded
from kit.simdisk import RandomSurvival, SimDisk


def journal_of(*payloads: bytes) -> SimDisk:
    disk = SimDisk()
    callbacks = Callbacks()
    journal = open_journal(disk, ids=SeededIds(1), schedule=callbacks, file_size=FILE_SIZE)
    run_at_once(journal.create_log(0, "log"))
    source = ScriptedSource()
    view = run_at_once(journal.open_log(0, "log", 1, source))
    for payload in payloads:
        source.put(payload)
        view.ready()
        callbacks.run()
    disk.end_process()
    return disk


def test_it_tells_files_containers_and_sequences_and_changes_nothing() -> None:
    disk = journal_of(*[b"x" * 900] * 9)
    before = disk.calls
    report = inspect_journal(disk)
    assert report.faults == []
    assert report.logs == {0: "log"}
    spans = [file.containers[0] for file in report.files]
    assert (spans[0].first_sequence, spans[-1].last_sequence) == (1, 9)
    assert sum(span.frames for span in spans) == 9
    assert {call.verb for call in disk.trace[before:]} <= {"open", "read", "list", "exists"}


def test_it_agrees_with_an_open_about_every_crash() -> None:
    """Where it finds no fault an open succeeds, and finds the same frames and torn tail."""
    calls = SimDisk()
    whole_life(calls, new_ledgers())
    for call in calls.trace[::3]:
        disk = SimDisk()
        disk.crash_at(call.number, "during")
        run_until_crash(whole_life, disk)
        disk.power_loss(RandomSurvival(seeded(call.number)))
        try:
            report = inspect_journal(disk)
        except CorruptJournal:
            continue  # not yet a journal
        assert report.faults == []
        opened = open_journal(
            disk, ids=SeededIds(9), schedule=Callbacks(), file_size=FILE_SIZE
        ).report
        frames = sum(o.frames for file in report.files for o in file.containers.values())
        assert frames == opened.frame_count
        assert tuple(f.torn for f in report.files if f.torn is not None) == opened.torn


def test_a_damaged_frame_is_a_fault() -> None:
    disk = journal_of(b"one", b"two", b"three")
    name = next(name for name in disk.list() if name.startswith("journal-"))
    file = disk.open(name)
    data = bytearray(file.read(0, file.size()))
    data[data.index(b"two")] ^= 1
    file.write_synced([bytes(data)], 0)
    [fault] = inspect_journal(disk).faults
    assert fault.startswith("corrupt-journal")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A store's data directory with a journal of two operations."""
    callbacks = Callbacks()
    local = open_local_journal(tmp_path / "journal", ids=SeededIds(1), schedule=callbacks)
    run_at_once(local.journal.create_log(3, "log"))
    source = ScriptedSource()
    view = run_at_once(local.journal.open_log(3, "log", 1, source))
    for payload in (b"one", b"two"):
        source.put(payload)
    view.ready()
    callbacks.run()
    local.close()
    return tmp_path


def test_the_program_prints_a_line_per_file_and_one_for_the_whole(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["inspect", str(data_dir)])
    assert program.main() == 0
    file, whole = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (file["container"], file["first_sequence"], file["last_sequence"]) == (3, 1, 2)
    assert (whole["containers"], whole["frames"], whole["faults"]) == (1, 2, 0)


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable):
        program.inspect(tmp_path)


def test_the_command_shows_it_and_passes_on_what_was_refused(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["segstore", "journal", str(data_dir)]) == 0
    assert "journal-" in capsys.readouterr().out
    assert run(["segstore", "journal", str(tmp_path / "nowhere")]) == 1
    assert "the directory holds no journal" in capsys.readouterr().err
