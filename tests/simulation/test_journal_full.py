"""A journal whose disk is full for a while: appends wait, and nothing acknowledged is lost."""

from collections import Counter

from kit.journal_full import random_full_disk


def test_what_was_acknowledged_is_there_and_work_goes_on_when_the_disk_is_freed() -> None:
    told: Counter[str] = Counter()
    for seed in range(60):
        told += random_full_disk(seed)
    assert told["appends that waited"] > 250
    assert told["freed"] > 50
    assert told["opened without room"] > 10
