"""A damaged journal is repaired: it opens, keeps a start of every log, and tells what is lost."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from anabranch.cli.__main__ import run
from anabranch.common.errors import CorruptJournal, DirectoryInUse, DirectoryUnusable
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore import repair as program
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.inspection import inspect_journal
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.adapters.journal.local import open_local_journal
from anabranch.segstore.adapters.journal.mending import perform_repair, planned_repair
from anabranch.segstore.domain.log.repair import RepairPlan
from kit.fixed_catalog import run_at_once
from kit.journal_scenario import FILE_SIZE, new_ledgers, run_until_crash, whole_life
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.rng import seeded
from kit.simdisk import KEEP_ALL, LOSE_ALL, Crashed, RandomSurvival, SimDisk

CONTAINERS = (0, 1)
ROUNDS = 12
WRITTEN = {c: {n: b"%d-%d " % (c, n) * 70 for n in range(1, ROUNDS + 1)} for c in CONTAINERS}


def opened(disk: SimDisk, callbacks: Callbacks | None = None) -> Journal:
    schedule = Callbacks() if callbacks is None else callbacks
    return open_journal(disk, ids=SeededIds(9), schedule=schedule, file_size=FILE_SIZE)


def written_journal() -> SimDisk:
    """Two containers in turn, over several files; one write holds a frame of each."""
    disk, callbacks = SimDisk(), Callbacks()
    journal = opened(disk, callbacks)
    sources = {container: ScriptedSource() for container in CONTAINERS}
    views = []
    for container, source in sources.items():
        run_at_once(journal.create_log(container, f"log-{container}"))
        views.append(run_at_once(journal.open_log(container, f"log-{container}", 1, source)))
    for number in range(1, ROUNDS + 1):
        for container, view in zip(CONTAINERS, views, strict=True):
            sources[container].put(WRITTEN[container][number])
            view.ready()
        callbacks.run()
    disk.end_process()
    return disk


def files(disk: SimDisk) -> list[str]:
    return [name for name in disk.list() if name.startswith("journal-")]


def content(disk: SimDisk, name: str) -> bytes:
    with closing(disk.open(name)) as file:
        return file.read(0, file.size())


def put(disk: SimDisk, name: str, at: int, data: bytes) -> None:
    with closing(disk.open(name)) as file:
        file.write_synced([data], at)


def flip(disk: SimDisk, name: str, at: int) -> None:
    put(disk, name, at, bytes([content(disk, name)[at] ^ 0x10]))


def kept(disk: SimDisk) -> dict[int, dict[int, bytes]]:
    journal = opened(disk)
    return {
        container: replayed(
            run_at_once(journal.open_log(container, f"log-{container}", 2, ScriptedSource()))
        )
        for container in CONTAINERS
    }


def check_repaired(disk: SimDisk, plan: RepairPlan) -> int:
    """Each log holds a start of what was written, and what is gone was told; how much is gone."""
    gone = 0
    for container, left in kept(disk).items():
        assert left == {n: WRITTEN[container][n] for n in range(1, len(left) + 1)}
        told = {
            sequence
            for lost in plan.lost
            if lost.container == container
            for sequence in range(lost.first_sequence, lost.last_sequence + 1)
        }
        missing = set(range(len(left) + 1, ROUNDS + 1)) - told
        if not plan.faults:
            missing -= {ROUNDS}  # damage in the very last write looks like one that was torn
        assert not missing or plan.unreadable, f"{missing} of {container} are gone without a word"
        assert not told & set(left), "told as lost, and still there"
        gone += ROUNDS - len(left)
    return gone


def test_a_whole_journal_needs_no_repair_and_nothing_is_changed() -> None:
    disk = written_journal()
    before = disk.calls
    assert planned_repair(disk) == RepairPlan()
    assert perform_repair(disk, RepairPlan()) == ""
    assert {call.verb for call in disk.trace[before:]} <= {"open", "read", "list", "exists"}


def test_what_a_crash_leaves_behind_is_no_damage() -> None:
    calls = SimDisk()
    whole_life(calls, new_ledgers())
    states = 0
    for call in calls.trace[5::3]:
        disk = SimDisk()
        disk.crash_at(call.number, "during")
        run_until_crash(whole_life, disk)
        disk.power_loss(RandomSurvival(seeded(call.number)))
        if disk.exists("format"):
            assert planned_repair(disk).faults == ()
            states += 1
    assert states > 20


@pytest.mark.parametrize("which", range(3))
def test_a_flipped_bit_anywhere_is_repaired_and_what_it_costs_is_told(which: int) -> None:
    whole = written_journal()
    name = files(whole)[which]
    used = len(content(whole, name).rstrip(b"\0"))
    repaired = 0
    for at in range(which, used, 53):
        disk = whole.fork()
        flip(disk, name, at)
        plan = planned_repair(disk)
        assert bool(plan.faults) == bool(inspect_journal(disk).faults)
        perform_repair(disk, plan)
        gone = check_repaired(disk, plan)
        assert gone > 0 or not plan.faults or not plan.lost
        repaired += bool(plan.faults)
    assert repaired > 20


def lost_file(disk: SimDisk) -> None:
    disk.unlink(files(disk)[1])


def short_file(disk: SimDisk) -> None:
    name = files(disk)[1]
    data = content(disk, name)
    disk.unlink(name)
    disk.create(name).write_synced([data[:2000]], 0)


def exchanged_files(disk: SimDisk) -> None:
    first, second = files(disk)[1:3]
    contents = content(disk, first), content(disk, second)
    put(disk, first, 0, contents[1])
    put(disk, second, 0, contents[0])


def only_headers_gone(disk: SimDisk) -> None:
    for name in files(disk):
        put(disk, name, 0, bytes(512))


DAMAGE = [lost_file, short_file, exchanged_files, only_headers_gone]


@pytest.mark.parametrize("damage", DAMAGE)
def test_lost_short_and_exchanged_files_are_repaired(damage: Callable[[SimDisk], None]) -> None:
    disk = written_journal()
    damage(disk)
    with pytest.raises(CorruptJournal):
        opened(disk.fork())
    plan = planned_repair(disk)
    assert plan.faults
    folder = perform_repair(disk, plan)
    assert {f"{folder}/{name}" for name in files(disk)}.isdisjoint(disk.list(folder))
    for container, left in kept(disk).items():
        assert left == {n: WRITTEN[container][n] for n in range(1, len(left) + 1)}


def test_a_file_of_another_journal_is_set_aside_alone() -> None:
    disk = written_journal()
    foreign = SimDisk()
    open_journal(foreign, ids=SeededIds(77), schedule=Callbacks(), file_size=FILE_SIZE)
    [taken] = [name for name in files(foreign) if name in files(disk)]
    disk.unlink(files(disk)[0])
    disk.create(taken).write_synced([content(foreign, taken)], 0)
    plan = planned_repair(disk)
    assert len(plan.faults) == 1
    assert plan.set_aside == (int(taken.removeprefix("journal-"), 16),)
    assert plan.cut is None
    folder = perform_repair(disk, plan)
    assert disk.list(folder) == [taken]
    assert sorted(inspect_journal(disk).files[0].containers) == list(CONTAINERS)


def crash_calls(disk: SimDisk, plan: RepairPlan) -> Iterator[int]:
    rehearsal = disk.fork()
    before = rehearsal.calls
    perform_repair(rehearsal, plan)
    yield from range(before + 1, rehearsal.calls + 1)


def test_a_repair_that_is_cut_off_anywhere_is_finished_by_the_next_one() -> None:
    whole = written_journal()
    flip(whole, files(whole)[1], 1500)
    plan = planned_repair(whole)
    assert plan.cut
    assert plan.set_aside
    intact = {name: content(whole, name) for name in files(whole)}
    states = 0
    for number in crash_calls(whole, plan):
        for survival in (None, LOSE_ALL, RandomSurvival(seeded(number))):
            disk = whole.fork()
            disk.crash_at(number, "during")
            run_until_crash(lambda crashing, _: perform_repair(crashing, plan) and None, disk)
            disk.kill() if survival is None else disk.power_loss(survival)
            perform_repair(disk, planned_repair(disk))
            check_repaired(disk, plan)
            for name, data in intact.items():
                folders = ["", *(f for f in disk.list() if f.startswith("repair-"))]
                places = [f"{folder}/{name}".strip("/") for folder in folders]
                found = [content(disk, place) for place in places if disk.exists(place)]
                assert data in found, "a file that was changed is nowhere whole"
            states += 1
    assert states > 40


def test_a_repair_ends_an_owner_that_holds_no_lock() -> None:
    disk, callbacks = SimDisk(), Callbacks()
    journal = opened(disk, callbacks)
    run_at_once(journal.create_log(0, "log-0"))
    source = ScriptedSource()
    view = run_at_once(journal.open_log(0, "log-0", 1, source))
    perform_repair(disk, RepairPlan(faults=("as if there were one",)))
    source.put(b"too late")
    view.ready()
    callbacks.run()
    assert source.durable == {}
    assert [error.code for error in source.failures] == ["deposed"]


def test_a_log_that_was_cut_before_what_tier_two_has_goes_on_behind_it() -> None:
    disk = written_journal()
    flip(disk, files(disk)[0], 1500)
    perform_repair(disk, planned_repair(disk))
    for life, written in ((2, set()), (3, {ROUNDS + 1})):
        callbacks = Callbacks()
        journal = opened(disk, callbacks)
        source = ScriptedSource(next_sequence=ROUNDS + len(written) + 1)
        view = run_at_once(journal.open_log(0, "log-0", life, source))
        assert set(replayed(view, ROUNDS)) == written
        run_at_once(view.release(ROUNDS))
        source.put(b"on it goes")
        view.ready()
        callbacks.run()
        assert set(source.durable) == {ROUNDS + len(written) + 1}
        disk.end_process()


# --- the program and the command ------------------------------------------------------------


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A store's data directory whose second of three writes is damaged."""
    callbacks = Callbacks()
    local = open_local_journal(tmp_path / "journal", ids=SeededIds(1), schedule=callbacks)
    run_at_once(local.journal.create_log(3, "log"))
    source = ScriptedSource()
    view = run_at_once(local.journal.open_log(3, "log", 1, source))
    for payload in (b"one", b"two", b"three"):
        source.put(payload)
        view.ready()
        callbacks.run()
    local.close()
    [file] = (tmp_path / "journal").glob("journal-*")
    with file.open("r+b") as open_file:
        at = open_file.read(4096).index(b"two")
        open_file.seek(at)
        open_file.write(b"TWO")
    return tmp_path


def test_the_program_says_what_it_would_do_and_changes_nothing(data_dir: Path) -> None:
    before = {path: path.read_bytes() for path in data_dir.rglob("*-*") if path.is_file()}
    lines = list(program.repair(data_dir, "", yes=False))
    assert lines[-1] == {"repair": "nothing changed", "remedy": "repeat with --yes to perform this"}
    assert {
        "lost_container": 3, "first_sequence": 3, "last_sequence": 3, "frames": 1, "bytes": 5,
    } in lines  # fmt: skip
    assert [line for line in lines if "unreadable" in line]
    assert {path: path.read_bytes() for path in data_dir.rglob("*-*") if path.is_file()} == before


def test_a_directory_that_a_store_uses_is_refused(tmp_path: Path) -> None:
    running = open_local_journal(tmp_path, ids=SeededIds(1), schedule=Callbacks())
    with pytest.raises(DirectoryInUse):
        list(program.repair(tmp_path, "", yes=True))
    running.close()


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable):
        list(program.repair(tmp_path, "", yes=False))


def test_a_damaged_small_file_is_beyond_repair_and_the_error_says_what_helps(
    data_dir: Path,
) -> None:
    (data_dir / "journal/logs/3").write_bytes(b"nonsense")
    with pytest.raises(CorruptJournal) as caught:
        list(program.repair(data_dir, "", yes=True))
    assert "restore this one small file" in caught.value.remedy


def test_the_command_repairs_after_a_yes_and_the_journal_opens(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["segstore", "journal", str(data_dir)]) == 1
    assert run(["segstore", "repair", str(data_dir)]) == 1
    assert "nothing changed" in capsys.readouterr().out
    assert run(["segstore", "repair", str(data_dir), "--yes"]) == 0
    assert "kept_in" in capsys.readouterr().out
    [copy] = (data_dir / "journal/repair-1").iterdir()
    assert b"TWO" in copy.read_bytes()
    assert run(["segstore", "repair", str(data_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"repair": "nothing to do"}
    local = open_local_journal(data_dir / "journal", ids=SeededIds(2), schedule=Callbacks())
    assert replayed(run_at_once(local.journal.open_log(3, "log", 2, ScriptedSource()))) == {
        1: b"one"
    }
    local.close()


def with_a_copy() -> tuple[SimDisk, str]:
    """A journal with a copy of container 1's replicated log, damaged in its only file."""
    disk, callbacks = SimDisk(), Callbacks()
    journal = open_journal(disk, ids=SeededIds(9), schedule=callbacks, file_size=64 * 1024)
    for container, name in enumerate(("own", "log.copy")):
        run_at_once(journal.create_log(container, name))
        source = ScriptedSource()
        view = run_at_once(journal.open_log(container, name, 1, source))
        for number in range(4):
            source.put(b"%d" % number * 300)
            view.ready()
            callbacks.run()
    disk.end_process()
    (name,) = files(disk)
    flip(disk, name, 4 * 1024 // 2)
    return disk, name


def test_a_repaired_copy_of_a_replicated_log_is_another_copy() -> None:
    disk, _ = with_a_copy()
    plan = planned_repair(disk)
    assert plan.copies == {1}
    perform_repair(disk, plan)
    assert dict(opened(disk).logs()) == {0: "own", 1: "log.copy-repair-1"}


def test_a_crash_during_a_repair_never_leaves_a_cut_copy_under_its_name() -> None:
    probe, _ = with_a_copy()
    before = probe.calls
    perform_repair(probe, planned_repair(probe))
    for call in range(before + 1, probe.calls + 1):
        for survival in (LOSE_ALL, KEEP_ALL):
            disk, name = with_a_copy()
            whole = content(disk, name)
            disk.crash_at(call, "after")
            with suppress(Crashed):
                perform_repair(disk, planned_repair(disk))
            disk.power_loss(survival)
            if name not in disk.list() or content(disk, name) != whole:
                assert layout.read_logs(disk)[1] != "log.copy"
            plan = planned_repair(disk)
            if plan.faults:
                perform_repair(disk, plan)
            assert opened(disk).logs()[1].startswith("log.copy-repair-")


def test_frames_of_a_copy_are_not_compared_with_tier_2() -> None:
    plan = planned_repair(with_a_copy()[0])
    lines = list(program.lines_of(plan, {0: 2}))
    assert next(line for line in lines if "lost_copy" in line)["lost_copy"] == 1
    assert [line["lost_container"] for line in lines if "lost_container" in line] in ([], [0])
