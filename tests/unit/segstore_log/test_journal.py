"""What is particular to the journal: commits, files, opening, and what it refuses."""

import errno

import pytest

from anabranch.common.errors import CorruptJournal, Deposed, DiskFailed, FormatTooNew
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.group import WRITE_SIZE_BYTES_AIM, gather
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.files import FREE_FILES_MAX
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES, file_id_of
from anabranch.segstore.ports import ContainerLog
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import LOSE_ALL, SimDisk

FILE_SIZE = 4096


class Opened:
    """A journal on a simulated disk with one container."""

    def __init__(self, disk: SimDisk, epoch: int = 1) -> None:
        self.disk = disk
        self.callbacks = Callbacks()
        self.journal: Journal = open_journal(
            disk, ids=SeededIds(epoch), schedule=self.callbacks, file_size=FILE_SIZE
        )
        run_at_once(self.journal.create_log(0, "log"))
        self.source = ScriptedSource()
        self.view: ContainerLog = run_at_once(self.journal.open_log(0, "log", epoch, self.source))

    def append(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.source.put(payload)
        self.view.ready()
        self.callbacks.run()


def files(disk: SimDisk) -> list[str]:
    return [name for name in disk.list() if name.startswith("journal-")]


def flip(disk: SimDisk, path: str, position: int) -> None:
    file = disk.open(path)
    byte = file.read(position, 1)[0]
    file.write_synced([bytes([byte ^ 1])], position)


def test_one_commit_is_one_synced_write() -> None:
    opened = Opened(SimDisk())
    opened.append(b"after this one, the journal makes its next file, and writes zeros" * 2)
    before = opened.disk.calls
    opened.append(b"a", b"b", b"c")
    assert [call.verb for call in opened.disk.trace[before:]] == ["write_synced"]
    assert len(opened.source.durable) == 4


class Watched:
    """A `CommitWatch` that remembers what it and the source were told, in order."""

    def __init__(self, source: ScriptedSource) -> None:
        self._source = source
        self.heard: list[object] = []

    def begin(self) -> None:
        self.heard.append(("begin", len(self._source.durable)))

    def synced(self, frame_count: int, size: int) -> None:
        self.heard.append(("synced", len(self._source.durable), frame_count, size))

    def told(self) -> None:
        self.heard.append(("told", len(self._source.durable)))


def test_a_commit_is_measured_around_its_write_and_before_anybody_is_told() -> None:
    source, callbacks = ScriptedSource(), Callbacks()
    watch = Watched(source)
    journal = open_journal(SimDisk(), ids=SeededIds(1), schedule=callbacks, watch=watch)
    run_at_once(journal.create_log(0, "log"))
    view = run_at_once(journal.open_log(0, "log", 1, source))
    source.put(b"abc")
    view.ready()
    callbacks.run()
    frame_size = FRAME_HEADER_SIZE_BYTES + 3
    assert watch.heard == [("begin", 0), ("synced", 0, 1, frame_size), ("told", 1)]


def test_what_arrives_during_a_commit_is_the_next_commit() -> None:
    opened = Opened(SimDisk())
    opened.source.put(b"first")
    opened.view.ready()
    opened.view.ready()
    assert len(opened.callbacks) == 1
    opened.callbacks.run()
    assert len(opened.callbacks) == 0


def test_a_write_is_limited_and_containers_take_turns() -> None:
    big = WRITE_SIZE_BYTES_AIM // 4

    class View:
        def __init__(self) -> None:
            self.source = ScriptedSource()
            for _ in range(4):
                self.source.put(bytes(big))

    ready = {View(): None, View(): None}
    views = list(ready)
    first = gather(ready)
    assert [taken.view for taken in first] == [views[0], views[1], views[0], views[1]]
    assert len(gather(ready)) == 4
    assert gather(ready) == []
    assert ready == {}


def test_frames_that_wait_for_room_are_dropped_with_their_view() -> None:
    opened = Opened(SimDisk())
    opened.disk.capacity = opened.disk.used
    while opened.journal.no_room is None:
        opened.append(bytes(FILE_SIZE // 4))
    acknowledged = len(opened.source.durable)
    assert len(opened.source.taken) == acknowledged + 1
    opened.view.close()
    opened.disk.capacity = None
    opened.journal.try_again()
    opened.callbacks.run()
    assert len(opened.source.durable) == acknowledged
    again = run_at_once(opened.journal.open_log(0, "log", 2, ScriptedSource()))
    assert len(replayed(again)) == acknowledged


def test_a_full_file_is_followed_by_one_that_names_its_end() -> None:
    opened = Opened(SimDisk())
    for number in range(10):
        opened.append(b"%d" % number * 900)
    assert len(files(opened.disk)) == 4, "three frames fit into each file"
    opened.disk.power_loss(LOSE_ALL)
    assert replayed(Opened(opened.disk, 2).view) == opened.source.taken


def test_a_frame_larger_than_a_file_gets_one_that_grows() -> None:
    opened = Opened(SimDisk())
    opened.append(b"small")
    opened.append(b"x" * 3 * FILE_SIZE)
    opened.append(b"small")
    opened.disk.power_loss(LOSE_ALL)
    assert replayed(Opened(opened.disk, 2).view) == opened.source.taken


def test_released_files_go_oldest_first_and_the_present_one_stays() -> None:
    opened = Opened(SimDisk())
    for number in range(10):
        opened.append(b"%d" % number * 900)
    oldest, *_, present = files(opened.disk)
    run_at_once(opened.view.release(2))
    assert oldest in files(opened.disk)
    run_at_once(opened.view.release(4))
    assert oldest not in files(opened.disk)
    run_at_once(opened.view.release(10))
    assert files(opened.disk) == [present]
    again = Opened(opened.disk, 2)
    run_at_once(again.view.release(10))
    assert files(opened.disk) == [layout.journal_file(file_id_of(2, 1))]


def created(disk: SimDisk) -> int:
    return sum(call.verb == "create" and "spare-" in call.path for call in disk.trace)


def test_a_journal_whose_files_are_released_in_time_makes_no_more_of_them() -> None:
    opened = Opened(SimDisk())
    for number in range(60):
        opened.append(b"%d" % number * 900)
        run_at_once(opened.view.release(number))
        if number == 20:
            before = created(opened.disk)
    assert created(opened.disk) == before
    assert len(opened.source.durable) == 60
    again = Opened(opened.disk, 2)
    assert list(replayed(again.view, 59)) == [60]


def test_only_so_many_files_wait_to_be_used_again() -> None:
    opened = Opened(SimDisk())
    for number in range(40):
        opened.append(b"%d" % number * 900)
    run_at_once(opened.view.release(40))
    spares = [name for name in opened.disk.list() if name.startswith("spare-")]
    assert len(spares) <= FREE_FILES_MAX + 1


def test_a_file_of_a_former_owner_is_not_used_again() -> None:
    opened = Opened(SimDisk())
    for number in range(10):
        opened.append(b"%d" % number * 900)
    opened.disk.end_process()
    again = Opened(opened.disk, 2)
    before = len(again.disk.trace)
    run_at_once(again.view.release(10))
    verbs = [(call.verb, call.path) for call in again.disk.trace[before:]]
    assert not any(verb == "rename" and not path.startswith("known/") for verb, path in verbs)
    assert any(verb == "unlink" and path.startswith("journal-") for verb, path in verbs)


def test_a_file_that_grew_is_not_used_again() -> None:
    opened = Opened(SimDisk())
    opened.append(bytes(2 * FILE_SIZE))
    opened.append(b"in the next file")
    run_at_once(opened.view.release(1))
    sizes = {opened.disk.open(name).size() for name in opened.disk.list() if "spare-" in name}
    assert sizes == {FILE_SIZE}


def test_the_epoch_of_a_removed_log_is_known_when_its_files_are_gone() -> None:
    disk = SimDisk()
    first = Opened(disk, epoch=7)
    first.append(b"a")
    run_at_once(first.journal.create_log(1, "other"))
    other = ScriptedSource()
    view = run_at_once(first.journal.open_log(1, "other", 1, other))
    first.view.close()
    run_at_once(first.journal.remove_log(0, "log"))
    for number in range(4):
        other.put(bytes(2000))
        view.ready()
        first.callbacks.run()
        run_at_once(view.release(number))
    disk.end_process()
    second = open_journal(disk, ids=SeededIds(2), schedule=Callbacks(), file_size=FILE_SIZE)
    assert (second.highest_epoch(0), second.highest_epoch(1)) == (7, 1)
    assert (second.oldest_sequence(0), second.oldest_sequence(1)) == (0, 4)


def test_a_container_that_was_not_opened_keeps_its_files() -> None:
    opened = Opened(SimDisk())
    run_at_once(opened.journal.create_log(1, "other"))
    other = ScriptedSource()
    run_at_once(opened.journal.open_log(1, "other", 1, other)).ready()
    other.put(b"kept")
    opened.append(b"gone")
    again = Opened(opened.disk, 2)
    run_at_once(again.view.release(1))
    view = run_at_once(again.journal.open_log(1, "other", 2, ScriptedSource()))
    assert replayed(view) == {1: b"kept"}


def test_a_torn_last_write_is_left_out_copied_aside_and_reported() -> None:
    opened = Opened(SimDisk())
    opened.append(b"whole")
    opened.append(b"torn")
    disk = opened.disk
    (name,) = files(disk)
    position = opened.source.addresses[2].position
    flip(disk, name, position + FRAME_HEADER_SIZE_BYTES)
    disk.kill()
    again = Opened(disk, 2)
    (torn,) = again.journal.report.torn
    assert (torn.position, torn.size) == (position, FRAME_HEADER_SIZE_BYTES + 4)
    copy = disk.open(layout.torn_file(torn.file_id, position))
    assert copy.size() == torn.size
    assert replayed(again.view) == {1: b"whole"}
    assert Opened(disk, 3).journal.report.torn == ()


def test_damage_before_the_last_write_keeps_the_journal_offline() -> None:
    opened = Opened(SimDisk())
    opened.append(b"one")
    opened.append(b"two")
    (name,) = files(opened.disk)
    flip(opened.disk, name, opened.source.addresses[1].position + 3)
    opened.disk.kill()
    for epoch in (2, 3):
        with pytest.raises(CorruptJournal):
            Opened(opened.disk, epoch)


def test_a_damaged_frame_is_never_read() -> None:
    opened = Opened(SimDisk())
    opened.append(b"data")
    (name,) = files(opened.disk)
    address = opened.source.addresses[1]
    flip(opened.disk, name, address.position + FRAME_HEADER_SIZE_BYTES)
    with pytest.raises(CorruptJournal):
        run_at_once(opened.view.read_aside(address))
    with pytest.raises(CorruptJournal):
        replayed(opened.view)


def test_a_gap_in_the_sequence_numbers_is_refused_at_replay() -> None:
    opened = Opened(SimDisk())
    opened.source.next_sequence = 5
    opened.append(b"five")
    with pytest.raises(CorruptJournal):
        replayed(opened.view, 3)
    assert replayed(opened.view, 4) == {5: b"five"}


def test_a_directory_of_a_newer_format_is_refused_untouched() -> None:
    disk = SimDisk()
    disk.create("format").write([b"anabranch journal\nformat 2\nwhatever"], 0)
    calls = disk.calls
    with pytest.raises(FormatTooNew) as refusal:
        Opened(disk)
    assert refusal.value.fields == {"found": 2, "supported": 1}
    assert disk.calls == calls


def test_a_lost_format_file_is_damage_and_not_an_empty_journal() -> None:
    opened = Opened(SimDisk())
    opened.append(b"data")
    opened.disk.unlink("format")
    opened.disk.kill()
    with pytest.raises(CorruptJournal):
        Opened(opened.disk, 2)


@pytest.mark.parametrize("path", ["format", "logs/0"])
def test_every_flipped_bit_of_a_small_file_is_detected(path: str) -> None:
    whole = Opened(SimDisk()).disk
    for position in range(whole.open(path).size()):
        for bit in range(8):
            disk = whole.fork()
            file = disk.open(path)
            byte = file.read(position, 1)[0]
            file.write_synced([bytes([byte ^ 1 << bit])], position)
            with pytest.raises((CorruptJournal, FormatTooNew)):
                Opened(disk, 2)


def test_a_missing_file_keeps_the_journal_offline() -> None:
    opened = Opened(SimDisk())
    for number in range(10):
        opened.append(b"%d" % number * 900)
    opened.disk.unlink(files(opened.disk)[1])
    opened.disk.kill()
    with pytest.raises(CorruptJournal):
        Opened(opened.disk, 2)


def test_a_file_rolled_by_a_deposed_owner_is_set_aside() -> None:
    disk = SimDisk()
    zombie = Opened(disk)
    owner = Opened(disk, 2)
    zombie.journal._writer.prepare_next()
    zombie.journal._writer.roll(None)
    late = layout.journal_file(file_id_of(1, 2))
    assert late in files(disk)
    owner.append(b"by the owner")
    disk.power_loss(LOSE_ALL)
    again = Opened(disk, 3)
    assert again.journal.report.orphans == (layout.orphan_file(file_id_of(1, 2)),)
    assert late not in files(disk)
    assert replayed(again.view) == {1: b"by the owner"}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_ends_the_journal_and_is_not_tried_again(error: int) -> None:
    opened = Opened(SimDisk())
    opened.append(b"kept")
    opened.disk.fail_at(opened.disk.calls + 1, error)
    opened.append(b"lost")
    assert [type(failure) for failure in opened.source.failures] == [DiskFailed]
    calls = opened.disk.calls
    opened.append(b"more")
    assert opened.disk.calls == calls
    assert opened.source.durable == {1: b"kept"}
    with pytest.raises(DiskFailed):
        run_at_once(opened.journal.open_log(0, "log", 2, ScriptedSource()))


def test_a_deposed_owner_removes_no_files() -> None:
    disk = SimDisk()
    zombie = Opened(disk)
    for number in range(10):
        zombie.append(b"%d" % number * 900)
    Opened(disk, 2)
    before = files(disk)
    with pytest.raises(Deposed):
        run_at_once(zombie.view.release(10))
    assert files(disk) == before


def test_a_fence_is_seen_however_many_owners_followed() -> None:
    disk = SimDisk()
    zombie = Opened(disk)
    for epoch in (2, 3, 4):
        Opened(disk, epoch)
    assert disk.list("fences") == ["00000004"]
    zombie.append(b"late")
    assert [type(failure) for failure in zombie.source.failures] == [Deposed]


def test_a_source_that_breaks_ends_the_journal_loudly() -> None:
    opened = Opened(SimDisk())
    opened.source.put(b"one")
    opened.source.next_sequence += 1
    opened.source.put(b"three")
    opened.view.ready()
    with pytest.raises(AssertionError, match="gap"):
        opened.callbacks.run()
    assert [type(failure) for failure in opened.source.failures] == [DiskFailed]


def test_a_closed_journal_leaves_a_spare_that_the_next_open_removes() -> None:
    opened = Opened(SimDisk())
    opened.append(b"data")
    opened.journal.close()
    spare = layout.spare_file(file_id_of(1, 2))
    assert opened.disk.exists(spare)
    again = Opened(opened.disk, 2)
    assert not opened.disk.exists(spare)
    assert replayed(again.view) == {1: b"data"}
