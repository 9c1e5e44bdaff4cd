"""The reports of tasks to the driver, and the decision that the driver takes from them. Pure.

    ┌────────────────────────────────────┬────────────────────────────────────────────┐
    │ the reports                        │ the commit                                 │
    ├────────────────────────────────────┼────────────────────────────────────────────┤
    │ no task had rows                   │ `Nothing`                                  │
    │ a task found the version committed │ `WasCommitted`: an earlier run did it      │
    │ parts of one transaction           │ `Commit`: it names exactly these parts     │
    │ parts of several transactions      │ TransactionEnded: one of them is gone      │
    └────────────────────────────────────┴────────────────────────────────────────────┘

A task that ran twice wrote two parts, of which Spark reports one. Parts of an earlier run of the
batch are in the same transaction and in no report. Neither is named, and both are deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.common.contracts.transactions import CommittedPart, PartLength
from anabranch.common.errors import InvalidRequest, TransactionEnded
from anabranch.common.model.transaction import PART_LENGTHS_MAX, PARTS_MAX


@dataclass(frozen=True, slots=True)
class SinkKey:
    """The key of a batch's transaction. `is_drawn`: the application is of this write alone."""

    application: str
    version: int
    is_drawn: bool = False


@dataclass(frozen=True, slots=True)
class PartWritten:
    """A part that is durable. `lengths`: of the part in the segments of the stream, by id."""

    transaction: str
    part: str
    lengths: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task.

    `key` None: it had no rows, or wrote directly. `part` None with a key: an earlier run of the
    batch was committed, so that the task wrote nothing.
    """

    key: SinkKey | None = None
    part: PartWritten | None = None
    events: int = 0


@dataclass(frozen=True, slots=True)
class Nothing:
    """No task has anything to commit."""


@dataclass(frozen=True, slots=True)
class WasCommitted:
    """An earlier run of the batch was committed."""

    key: SinkKey


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the transaction with these parts, in the order of the tasks."""

    key: SinkKey
    transaction: str
    parts: tuple[CommittedPart, ...]


Decision = Nothing | WasCommitted | Commit


def decide(reports: Iterable[TaskReport | None]) -> Decision:
    """The commit of a batch. Raises TransactionEnded, InvalidRequest (too many parts)."""
    keyed = [(report.key, report.part) for report in reports if report and report.key]
    if not keyed:
        return Nothing()
    key = keyed[0][0]
    assert all(other == key for other, _ in keyed), "all tasks of a batch have one key"
    parts = [part for _, part in keyed if part is not None]
    if len(parts) < len(keyed):
        return WasCommitted(key)
    transactions = sorted({part.transaction for part in parts})
    if len(transactions) > 1:
        raise TransactionEnded(
            "the transaction of the batch ended while tasks were writing, and nothing is committed",
            remedy=run_again(key, "raise the option lease_s, and "),
            state="aborted", transactions=", ".join(transactions[:2]),
        )  # fmt: skip
    _check_size(parts)
    return Commit(key, transactions[0], tuple(map(_committed, parts)))


def run_again(key: SinkKey, before: str = "") -> str:
    """The remedy after a failure that left nothing committed."""
    return f"{before}{'write' if key.is_drawn else 'run'} the batch again: no event is repeated"


def _committed(part: PartWritten) -> CommittedPart:
    lengths = (PartLength(segment_id=segment, length=length) for segment, length in part.lengths)
    return CommittedPart(part=part.part, lengths=tuple(lengths))


def _check_size(parts: list[PartWritten]) -> None:
    """Raises InvalidRequest."""
    lengths = sum(len(part.lengths) for part in parts)
    if len(parts) > PARTS_MAX or lengths > PART_LENGTHS_MAX:
        raise InvalidRequest(
            "too many tasks wrote into one transaction",
            remedy="write with fewer tasks: df.coalesce(…) before the write",
            tasks=len(parts), tasks_max=PARTS_MAX, segments_of_tasks=lengths,
            segments_of_tasks_max=PART_LENGTHS_MAX,
        )  # fmt: skip
