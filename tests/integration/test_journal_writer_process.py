"""The journal's writer process, killed, stopped and outlived; with real files and signals."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import LocalDisk, lock_directory
from anabranch.common.errors import DirectoryInUse, NoRoom
from anabranch.common.runtime.ids import SystemIds
from anabranch.segstore.adapters.journal.local import LocalJournal, open_local_journal
from anabranch.segstore.adapters.journal.process_commits import ProcessCommits
from kit import journal_child
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.writer_child import ChildCallbacks

TESTS = Path(__file__).parent.parent
FILE_SIZE = 16 * 1024
END_S_MAX = 20.0


class Owner:
    """A journal of this process whose commits go through a child; one container."""

    def __init__(self, directory: Path) -> None:
        self.callbacks = ChildCallbacks()
        self.opened: LocalJournal = open_local_journal(
            directory,
            ids=SystemIds(),
            schedule=self.callbacks,
            file_size=FILE_SIZE,
            choose_commits=lambda _, lock: self.callbacks.start(lock.fd),
        )
        self.source = ScriptedSource()
        run_at_once(self.opened.journal.create_log(0, "log-0"))
        self.view = run_at_once(self.opened.journal.open_log(0, "log-0", 1, self.source))

    @property
    def child(self) -> ProcessCommits:
        return self.callbacks.children[0]

    def append(self, count: int) -> None:
        """Frames, each acknowledged before the next."""
        for _ in range(count):
            self.begin_append()
            self.callbacks.run()

    def begin_append(self) -> None:
        """A frame that the child is asked to write."""
        self.source.put(b"%06d" % self.source.next_sequence * 50)
        self.view.ready()
        self.callbacks.run_without_answers()

    def stop_child(self) -> None:
        os.kill(self.child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WNOWAIT)

    def failures(self) -> list[str]:
        return [error.code for error in self.source.failures]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    owner.opened.close()


def successor(directory: Path) -> dict[int, bytes]:
    """What the next owner finds; it takes the directory over, appends, and opens once more."""
    found: list[dict[int, bytes]] = []
    for epoch in (2, 3):
        callbacks, source = Callbacks(), ScriptedSource()
        opened = open_local_journal(
            directory, ids=SystemIds(), schedule=callbacks, file_size=FILE_SIZE, take_over=True
        )
        view = run_at_once(opened.journal.open_log(0, "log-0", epoch, source))
        found.append(replayed(view))
        source.next_sequence = max(found[-1], default=0) + 1
        source.put(b"by epoch %d" % epoch)
        view.ready()
        callbacks.run()
        assert source.durable
        opened.close()
    assert found[1] == found[0] | {max(found[0], default=0) + 1: b"by epoch 2"}
    return found[0]


def agrees(owner: Owner, found: dict[int, bytes]) -> None:
    """All that was acknowledged is there, and at most the write under way besides."""
    assert found.items() >= owner.source.durable.items()
    assert found.items() <= owner.source.taken.items()


def wait_for_end(pid: int) -> None:
    """Return when the process, which need not be a child, is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(END_S_MAX * 1000), "the process lives on"
    os.close(fd)


@pytest.mark.parametrize("appended", [0, 1, 40])
def test_a_child_that_is_killed_while_idle_ends_the_journal(
    owner: Owner, tmp_path: Path, appended: int
) -> None:
    owner.append(appended)
    os.kill(owner.child.pid, signal.SIGKILL)
    owner.callbacks.loop.wait()
    assert owner.failures() == ["disk-failed"]
    agrees(owner, successor(tmp_path))


@pytest.mark.parametrize("appended", range(0, 60, 6))
def test_a_child_that_is_killed_at_work_leaves_no_false_acknowledgement(
    owner: Owner, tmp_path: Path, appended: int
) -> None:
    owner.append(appended)
    owner.begin_append()
    os.kill(owner.child.pid, signal.SIGKILL)  # before, during or after its write
    owner.callbacks.run()
    assert owner.failures() in (["disk-failed"], [])
    if not owner.source.failures:  # it had answered already
        owner.callbacks.loop.wait()
        assert owner.failures() == ["disk-failed"]
    agrees(owner, successor(tmp_path))


def test_a_child_that_does_not_answer_in_time_ends_the_journal(
    owner: Owner, tmp_path: Path
) -> None:
    owner.append(3)
    owner.stop_child()
    owner.begin_append()
    owner.callbacks.loop.fire_timers()
    assert owner.failures() == ["disk-failed"]
    assert len(owner.source.durable) == 3
    agrees(owner, successor(tmp_path))


def test_an_answer_that_came_while_all_stood_still_is_not_too_late(owner: Owner) -> None:
    owner.append(1)
    owner.begin_append()
    poll = select.poll()
    for fd in owner.callbacks.loop.readers:
        poll.register(fd, select.POLLIN)
    assert poll.poll(END_S_MAX * 1000), "the answer is there, and was not read yet"
    owner.callbacks.loop.fire_timers()
    assert owner.failures() == []
    assert len(owner.source.durable) == 2


def test_a_stopped_child_that_wakes_after_a_successor_changes_nothing(
    owner: Owner, tmp_path: Path
) -> None:
    owner.append(5)
    owner.stop_child()
    owner.begin_append()
    callbacks, source = Callbacks(), ScriptedSource()
    opened = open_local_journal(
        tmp_path, ids=SystemIds(), schedule=callbacks, file_size=FILE_SIZE, take_over=True
    )
    view = run_at_once(opened.journal.open_log(0, "log-0", 2, source))
    seen = replayed(view)
    assert seen == owner.source.durable
    os.kill(owner.child.pid, signal.SIGCONT)
    owner.callbacks.run()
    assert owner.failures() == ["deposed"]
    assert len(owner.source.durable) == 5
    source.next_sequence = max(seen) + 1
    source.put(b"by the successor")
    view.ready()
    callbacks.run()
    opened.close()
    again = open_local_journal(
        tmp_path, ids=SystemIds(), schedule=callbacks, file_size=FILE_SIZE, take_over=True
    )
    view = run_at_once(again.journal.open_log(0, "log-0", 3, ScriptedSource()))
    assert replayed(view) == seen | {max(seen) + 1: b"by the successor"}
    again.close()


def test_the_lock_is_held_for_as_long_as_the_child_may_write(owner: Owner, tmp_path: Path) -> None:
    owner.opened.lock.release()
    with pytest.raises(DirectoryInUse):
        lock_directory(tmp_path)
    owner.opened.journal.close()
    lock_directory(tmp_path).release()


@pytest.mark.parametrize("acknowledged", [1, 50])
def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path, acknowledged: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-P", "-m", "kit.journal_child", str(tmp_path), "process"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    )
    assert parent.stdout is not None
    try:
        writer = int(parent.stdout.readline().split()[1])
        lines = [parent.stdout.readline() for _ in range(acknowledged)]
        os.kill(writer, signal.SIGTERM)  # to the whole group: the parent's business
        parent.kill()
        lines += parent.stdout.readlines()
        parent.wait(END_S_MAX)
        wait_for_end(writer)
    finally:
        parent.kill()
        parent.wait(END_S_MAX)
        parent.stdout.close()
    opened = open_local_journal(
        tmp_path, ids=SystemIds(), schedule=Callbacks(), file_size=journal_child.FILE_SIZE
    )
    view = run_at_once(opened.journal.open_log(0, journal_child.LOG_ID, 2, ScriptedSource()))
    found = replayed(view)
    for line in lines:
        sequence = int(line.split()[1])
        assert found[sequence] == journal_child.payload(sequence)
    opened.close()


def test_a_write_without_room_is_told_apart_from_one_that_failed() -> None:
    callbacks = ChildCallbacks()
    child = callbacks.start()
    heard: list[object] = []
    child.start(heard.append)
    file = LocalDisk(Path("/dev")).open("full")
    child.write(file, [bytes(4096)], 0)
    callbacks.run()
    assert [type(error) for error in heard] == [NoRoom]
    file.close()
    child.close()
