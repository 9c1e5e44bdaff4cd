"""Which containers are flushed so that the journal can let go of its oldest file."""

from anabranch.common.errors import Unavailable
from anabranch.segstore.domain.log.pinning import LiveLogFile, containers_to_flush
from kit.deferred_commits import DeferredCommits
from kit.fixed_catalog import run_at_once
from kit.journal_scenario import FILE_SIZE, Process, new_ledgers, payload
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import SimDisk

CAP = 1000


def live(*files: tuple[int, set[int]]) -> list[LiveLogFile]:
    return [LiveLogFile(size, frozenset(pinned_by)) for size, pinned_by in files]


def test_nobody_is_hurried_while_files_go_as_they_should() -> None:
    for files in (
        live(),
        live((900, {0})),
        live((100, {0, 1}), (100, {0, 1}), (10, {1})),
        live((100, {0}), (100, {0, 1}), (10, set())),
    ):
        assert containers_to_flush(files, CAP) == frozenset()


def test_who_holds_up_the_oldest_file_is_hurried_when_a_newer_one_is_free() -> None:
    files = live((100, {2}), (100, {1}), (100, set()), (10, {0}))
    assert containers_to_flush(files, CAP) == {2}


def test_the_present_file_is_never_in_anybodys_way() -> None:
    assert containers_to_flush(live((100, {2}), (10, set())), CAP) == frozenset()


def test_above_half_of_the_cap_everybody_who_pins_the_oldest_file_is_hurried() -> None:
    files = live((200, {1, 3}), (200, {0, 1}), (101, {0}))
    assert containers_to_flush(files, CAP) == {1, 3}
    assert containers_to_flush(live((200, {1}), (200, {0}), (100, {0})), CAP) == frozenset()
    assert containers_to_flush(live((9000, {1})), CAP) == frozenset(), "it is the present one"


def test_on_a_full_disk_all_containers_that_pin_the_oldest_file_are_flushed_to_make_room() -> None:
    files = live((100, {1, 3}), (10, {0}))
    assert containers_to_flush(files, CAP) == frozenset()
    assert containers_to_flush(files, CAP, disk_full=True) == {1, 3}
    assert containers_to_flush(live((100, {1})), CAP, disk_full=True) == frozenset()


def test_a_free_oldest_file_hides_nobody_who_pins_a_later_one() -> None:
    files = live((100, set()), (100, {1, 3}), (10, {0}))
    assert containers_to_flush(files, CAP, disk_full=True) == {1, 3}
    assert containers_to_flush(live((100, set()), (10, {0})), CAP, disk_full=True) == frozenset()


def test_a_file_that_was_released_while_it_was_the_present_one_goes_when_the_next_begins() -> None:
    process = Process(SimDisk(), new_ledgers(), 1)
    process.open_containers()
    process.append(0, payload(1, 0, 0, 3000))
    process.commit()
    process.release(0, 1)
    (present,) = process.journal.live_files()
    assert not present.pinned_by
    process.append(1, payload(1, 1, 0, 3000))
    process.commit()
    (present,) = process.journal.live_files()
    assert present.pinned_by == {1}


def test_a_journal_tells_what_an_open_would_read_and_who_pins_it() -> None:
    process = Process(SimDisk(), new_ledgers(), 1)
    process.open_containers()
    journal = process.journal
    assert [(file.size, file.pinned_by) for file in journal.live_files()] == [(512, frozenset())]
    assert journal.live_size == 512
    for number in range(6):
        process.append(number % 2, payload(1, number % 2, number, 1600))
        process.commit()
    sizes = [file.size for file in journal.live_files()]
    assert sizes[:-1] == [FILE_SIZE] * (len(sizes) - 1), "a whole file is read"
    assert 512 < sizes[-1] < FILE_SIZE
    assert journal.live_size == sum(sizes)
    assert journal.live_files()[0].pinned_by == {0, 1}
    process.release(0, 3)
    assert journal.live_files()[0].pinned_by == {1}
    process.release(1, 3)
    assert [file.size for file in journal.live_files()] == [sizes[-1]]
    assert journal.live_size == sizes[-1]


def test_a_journal_that_was_opened_again_counts_what_it_found() -> None:
    disk = SimDisk()
    process = Process(disk, new_ledgers(), 1)
    process.open_containers()
    process.append(0, payload(1, 0, 0, 3 * FILE_SIZE))
    process.commit()
    (grown,) = (file.size for file in process.journal.live_files())
    disk.kill()
    again = Process(disk, new_ledgers(), 2)
    assert [file.size for file in again.journal.live_files()] == [grown, 512]
    assert again.journal.live_files()[0].pinned_by == {0}
    assert again.journal.live_size == grown + 512


class Child:
    """A journal whose writer process does nothing until it is told to."""

    def __init__(self) -> None:
        self.todo = Callbacks()
        self.process = Process(
            SimDisk(), new_ledgers(), 1, lambda _callbacks: DeferredCommits(self.todo)
        )
        self.process.open_containers()
        self.process.append(0, b"first")
        self.process.callbacks.run()

    def finish(self) -> None:
        """The child does and answers all that it is asked for."""
        while len(self.todo):
            self.todo.run()
            self.process.callbacks.run()


def test_a_view_that_was_closed_while_its_frame_was_written_hears_nothing_of_it() -> None:
    child = Child()
    child.process.append(1, b"waits")
    child.process.views[0].close()
    child.finish()
    assert child.process.sources[0].durable == {}
    assert child.process.sources[1].durable == {1: b"waits"}


def test_a_container_cannot_be_opened_again_while_its_frames_are_written() -> None:
    child = Child()
    journal = child.process.journal
    for container, refused in ((1, False), (0, True)):
        try:
            run_at_once(journal.open_log(container, f"log-{container}", 2, ScriptedSource()))
        except Unavailable:
            assert refused
        else:
            assert not refused
    child.finish()
    view = run_at_once(journal.open_log(0, "log-0", 2, ScriptedSource()))
    assert replayed(view) == {1: b"first"}, "what was written is not forgotten"
