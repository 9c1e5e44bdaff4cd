"""Files in their order, and frames in theirs."""

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.chain import Chain, chain_files
from anabranch.segstore.domain.log.formats import NO_FILE, FileEnd, FileHeader, file_id_of
from anabranch.segstore.domain.log.replay import FrameEntry, continuous, resolve

JOURNAL_ID = "ab" * 16


def header(file: tuple[int, int], previous: tuple[int, int] | None) -> FileHeader:
    named = FileEnd(file_id_of(*previous), 600, 1) if previous else NO_FILE
    return FileHeader(JOURNAL_ID, file_id_of(*file), 512, named)


def chain(*headers: FileHeader) -> Chain:
    return chain_files(headers, JOURNAL_ID)


FIRST = header((1, 1), None)
SECOND = header((1, 2), (1, 1))
NEXT_OWNER = header((2, 1), (1, 2))


def test_no_files_are_an_empty_chain() -> None:
    assert chain() == Chain((), ())


def test_files_are_ordered_by_their_links_and_know_their_named_ends() -> None:
    found = chain(NEXT_OWNER, FIRST, SECOND)
    assert found.files == (
        (FIRST, SECOND.previous), (SECOND, NEXT_OWNER.previous), (NEXT_OWNER, None),
    )  # fmt: skip
    assert found.orphans == ()


def test_the_oldest_files_may_be_gone() -> None:
    assert [file for file, _ in chain(SECOND, NEXT_OWNER).files] == [SECOND, NEXT_OWNER]


def test_a_missing_file_in_the_middle_is_damage() -> None:
    with pytest.raises(CorruptJournal):
        chain(FIRST, NEXT_OWNER)


def test_a_file_made_by_a_deposed_owner_is_an_orphan() -> None:
    zombie = header((1, 3), (1, 2))
    assert chain(FIRST, SECOND, zombie, NEXT_OWNER).orphans == (zombie,)
    assert chain(zombie, NEXT_OWNER).orphans == (zombie,)


def test_a_file_that_skips_numbers_is_damage() -> None:
    with pytest.raises(CorruptJournal):
        chain(FIRST, header((1, 3), (1, 1)))
    with pytest.raises(CorruptJournal):
        chain(FIRST, header((2, 2), (1, 1)))


def test_a_file_of_another_journal_is_refused() -> None:
    with pytest.raises(CorruptJournal):
        chain_files([FIRST], "cd" * 16)


def entry(first: int, last: int, epoch: int = 1) -> FrameEntry:
    return FrameEntry(epoch, first, last, 1, 512, 10)


def test_frames_without_overlap_all_count() -> None:
    entries = [entry(1, 3), entry(4, 4), entry(5, 9, epoch=2)]
    assert resolve(entries) == entries


def test_the_higher_container_epoch_wins_from_its_first_operation_on() -> None:
    entries = [entry(1, 3), entry(4, 5), entry(6, 7), entry(4, 6, epoch=2)]
    assert resolve(entries) == [entries[0], entries[3]]


def test_a_lower_container_epoch_after_a_higher_one_does_not_count() -> None:
    entries = [entry(1, 3), entry(4, 5, epoch=2), entry(4, 4), entry(6, 6)]
    assert resolve(entries) == entries[:2]


def test_two_frames_with_the_same_operations_in_one_epoch_are_damage() -> None:
    with pytest.raises(CorruptJournal):
        resolve([entry(1, 3), entry(3, 4)])


def test_a_frame_that_would_have_to_be_cut_in_two_is_damage() -> None:
    with pytest.raises(CorruptJournal):
        resolve([entry(1, 3), entry(2, 4, epoch=2)])


def test_replay_gives_the_frames_that_hold_later_operations() -> None:
    entries = [entry(1, 3), entry(4, 5), entry(6, 6)]
    assert list(continuous(entries, 0)) == entries
    assert list(continuous(entries, 3)) == entries[1:]
    assert list(continuous(entries, 4)) == entries[1:]
    assert list(continuous(entries, 6)) == []


def test_replay_refuses_a_gap_at_the_start_and_within() -> None:
    with pytest.raises(CorruptJournal):
        list(continuous([entry(2, 3)], 0))
    with pytest.raises(CorruptJournal):
        list(continuous([entry(1, 3), entry(5, 5)], 0))
