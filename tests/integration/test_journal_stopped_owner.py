"""A stopped owner that wakes after another process took its directory over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.common.errors import DirectoryInUse
from anabranch.common.runtime.ids import SystemIds
from anabranch.segstore.adapters.journal.local import LocalJournal, open_local_journal
from kit import journal_child
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed

TESTS = Path(__file__).parent.parent


def start_owner(directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kit.journal_child", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    )


def take_over(directory: Path, callbacks: Callbacks) -> LocalJournal:
    return open_local_journal(
        directory,
        ids=SystemIds(),
        schedule=callbacks,
        file_size=journal_child.FILE_SIZE,
        take_over=True,
    )


def acked(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("acked")]


@pytest.mark.parametrize("stop_after", [1, 30, 173, 400])
def test_a_stopped_owner_acknowledges_nothing_after_it_wakes(
    tmp_path: Path, stop_after: int
) -> None:
    owner = start_owner(tmp_path)
    assert owner.stdout is not None
    try:
        lines = [owner.stdout.readline() for _ in range(stop_after)]
        os.kill(owner.pid, signal.SIGSTOP)
        os.waitpid(owner.pid, os.WUNTRACED)
        with pytest.raises(DirectoryInUse) as refusal:
            open_local_journal(tmp_path, ids=SystemIds(), schedule=Callbacks())
        assert refusal.value.fields["pid"] == str(owner.pid)
        callbacks = Callbacks()
        opened = take_over(tmp_path, callbacks)
        source = ScriptedSource()
        view = run_at_once(
            opened.journal.open_log(journal_child.CONTAINER, journal_child.LOG_ID, 2, source)
        )
        seen = replayed(view)
        os.kill(owner.pid, signal.SIGCONT)
        # not `communicate`: it would pass over lines that `readline` has buffered
        lines += owner.stdout.readlines()
        owner.wait(timeout=20)
    finally:
        owner.kill()
        owner.wait(timeout=5)
        owner.stdout.close()
    assert lines[-1] == "failed deposed\n"
    assert acked(lines) == list(range(1, len(lines)))
    for sequence in acked(lines):
        assert seen[sequence] == journal_child.payload(sequence)
    assert len(seen) - len(acked(lines)) in (0, 1), "at most the one in flight was not acked"
    source.next_sequence = max(seen) + 1
    source.put(b"by the new owner")
    view.ready()
    callbacks.run()
    opened.close()
    again = take_over(tmp_path, Callbacks())
    view = run_at_once(
        again.journal.open_log(journal_child.CONTAINER, journal_child.LOG_ID, 3, ScriptedSource())
    )
    assert replayed(view) == seen | {max(seen) + 1: b"by the new owner"}
    again.close()
