"""Bytes that a plan names, and that were truncated before a task read them.

┌──────────────┬────────────────────────────────┬──────────────────────────────────────────┐
│ `OnLoss`     │ the read is                    │ a task that misses bytes                 │
├──────────────┼────────────────────────────────┼──────────────────────────────────────────┤
│ `PLAN_AGAIN` │ a batch read                   │ raises PlanOutdated                      │
│ `FAIL`       │ of a query with failOnDataLoss │ raises EventsTruncated                   │
│ `PASS`       │ of a query without it          │ logs the range, and goes on behind it    │
└──────────────┴────────────────────────────────┴──────────────────────────────────────────┘
"""

from enum import Enum, auto

from anabranch.common.errors import (
    EventsTruncated,
    NotFound,
    PlanOutdated,
    ScopeNotFound,
    SegmentNotFound,
    SegmentTruncated,
    StreamNotFound,
)
from anabranch.common.runtime.logger import get_logger
from anabranch.common.wire.block import LargeReference
from anabranch.spark.partitioning import Piece

NO_STREAM = (StreamNotFound, ScopeNotFound)
GONE = (EventsTruncated, SegmentTruncated, SegmentNotFound, *NO_STREAM)
"""The errors of a place without the bytes of the plan."""
FAIL_REMEDY = (
    "set the option failOnDataLoss to false to continue behind them; let the query subscribe with "
    "the option reader_group so that retention waits for it"
)

_log = get_logger(__name__)


class OnLoss(Enum):
    """See the module."""

    PLAN_AGAIN = auto()
    FAIL = auto()
    PASS = auto()


def behind(on_loss: OnLoss, piece: Piece, offset: int, error: NotFound) -> int:
    """Where a read that met the error at `offset` goes on: at most at the end of the piece.

    Raises PlanOutdated, EventsTruncated, and the error itself if it names no later offset.
    """
    start = error.fields.get("start")
    found = min(start, piece.end) if isinstance(start, int) else piece.end
    if found <= offset:
        raise error
    lose(on_loss, piece.segment, offset, found, error)
    return found


def lose(on_loss: OnLoss, segment: str, start: int, end: int, error: NotFound) -> None:
    """Log the loss of the bytes [start, end), or raise PlanOutdated or EventsTruncated."""
    match on_loss:
        case OnLoss.PLAN_AGAIN:
            raise PlanOutdated(
                "events were truncated during the read", segment=segment, offset=start, end=end
            ) from error
        case OnLoss.FAIL:
            raise EventsTruncated(
                "events that the query has not read were truncated while it read",
                remedy=FAIL_REMEDY, segment=segment, offset=start, end=end,
            ) from error  # fmt: skip
        case OnLoss.PASS:
            _log.warning(
                "the query lost events that were truncated", segment=segment, start=start, end=end
            )


def lose_parts(on_loss: OnLoss, piece: Piece, reference: LargeReference, error: NotFound) -> None:
    """Lose a large event: its reference lies in the piece, and its parts were truncated.

    A batch read leaves out an event that begins before the piece, as it leaves out all others
    before the head: a new plan would not have its parts either. The reasons to raise are those of
    `lose`.
    """
    start, end = reference.offset, reference.offset + reference.length
    if on_loss is OnLoss.PLAN_AGAIN and start < piece.start:
        _log.warning(
            "a large event was left out: the stream was truncated behind its first bytes",
            segment=piece.segment, start=start, end=end,
        )  # fmt: skip
        return
    lose(on_loss, piece.segment, start, end, error)
