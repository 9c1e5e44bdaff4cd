"""What the driver commits, from what its tasks report."""

import pytest

from anabranch.common.errors import InvalidRequest, TransactionEnded
from anabranch.common.model.transaction import PART_LENGTHS_MAX, PARTS_MAX
from anabranch.spark.writing.reports import (
    Commit,
    Nothing,
    PartWritten,
    SinkKey,
    TaskReport,
    WasCommitted,
    decide,
)

KEY = SinkKey("query", 7)


def wrote(transaction: str, part: int, segments: int = 1) -> TaskReport:
    lengths = tuple((segment, 10 + part) for segment in range(segments))
    return TaskReport(KEY, PartWritten(transaction * 32, f"{part:032x}", lengths), 1)


def test_a_batch_without_rows_commits_nothing() -> None:
    assert decide([]) == Nothing()
    assert decide([TaskReport(), None, TaskReport(events=5)]) == Nothing()


def test_exactly_the_reported_parts_are_committed_in_the_order_of_the_tasks() -> None:
    found = decide([wrote("a", 2), TaskReport(), wrote("a", 1)])
    assert isinstance(found, Commit)
    assert (found.key, found.transaction) == (KEY, "a" * 32)
    assert [int(part.part, 16) for part in found.parts] == [2, 1]
    assert [part.lengths[0].length for part in found.parts] == [12, 11]


def test_a_version_that_a_task_found_committed_is_not_committed_again() -> None:
    assert decide([wrote("a", 1), TaskReport(KEY)]) == WasCommitted(KEY)


def test_parts_of_two_transactions_are_not_committed() -> None:
    with pytest.raises(TransactionEnded, match="nothing is committed"):
        decide([wrote("a", 1), wrote("b", 2)])


def test_too_many_tasks_for_a_transaction_are_told_what_to_do() -> None:
    decide([wrote("a", part) for part in range(PARTS_MAX)])
    with pytest.raises(InvalidRequest, match="too many tasks"):
        decide([wrote("a", part) for part in range(PARTS_MAX + 1)])
    segments = PART_LENGTHS_MAX // 20
    with pytest.raises(InvalidRequest, match="too many tasks"):
        decide([wrote("a", part, segments) for part in range(21)])
