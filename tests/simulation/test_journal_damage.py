"""Journals with damaged blocks: never wrong bytes, never a silent loss, and a repair that works."""

from collections import Counter

import pytest

from anabranch.common.errors import CorruptJournal
from kit.journal_damage import random_damage
from kit.planted import nothing_recorded, skipped_crc
from kit.thorough import one_in

ONE_IN = 4


def damage_many() -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for seed in range(170 // one_in(ONE_IN)):
        outcomes += random_damage(seed)
    return outcomes


def test_damaged_journals_are_refused_by_name_or_show_what_was_written() -> None:
    outcomes = damage_many()
    assert outcomes["journals repaired"] > 300 // one_in(ONE_IN)
    assert all(count > 100 // one_in(ONE_IN) for count in outcomes.values())


def test_frames_without_checksums_are_found_out() -> None:
    with skipped_crc(), pytest.raises(AssertionError):
        damage_many()


def test_a_journal_that_records_no_files_is_found_out() -> None:
    with nothing_recorded(), pytest.raises((AssertionError, CorruptJournal)):
        damage_many()
