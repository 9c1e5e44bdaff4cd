"""Selects transactions past their deadlines, and those that are only left over. Pure.

Deadlines are a mapping from subject to the stored deadline, as far as known. `decide.expire` makes
the decision itself, on the state that it appends to.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction.state import Transaction

LEFT_OVER_MS = 60_000


class Due(NamedTuple):
    """Due transactions by the timers: `overdue` are due, `pinged` have another deadline by now."""

    overdue: Sequence[str]
    pinged: Mapping[str, int]


def sorted_out(told: Iterable[str], deadlines_ms: Mapping[str, int], now_ms: int) -> Due:
    """Sort the timers' transactions. A transaction that is not known to be open is in neither
    group: it has an outcome, or is too new to be known.
    """
    known = {subject: deadlines_ms[subject] for subject in told if subject in deadlines_ms}
    return Due(
        [subject for subject, at_ms in known.items() if at_ms <= now_ms],
        {subject: at_ms for subject, at_ms in known.items() if at_ms > now_ms},
    )


def overdue(deadlines_ms: Mapping[str, int], now_ms: int, limit: int) -> list[str]:
    """Up to `limit` transactions past their deadlines, earliest first."""
    passed = [subject for subject, at_ms in deadlines_ms.items() if at_ms <= now_ms]
    return nsmallest(limit, passed, key=deadlines_ms.__getitem__)


def soon_due(
    deadlines_ms: Mapping[str, int], now_ms: int, within_ms: int, limit: int
) -> dict[str, int]:
    """Up to `limit` deadlines within that time, earliest first."""
    until_ms = now_ms + within_ms
    coming = [subject for subject, at_ms in deadlines_ms.items() if now_ms < at_ms <= until_ms]
    found = nsmallest(limit, coming, key=deadlines_ms.__getitem__)
    return {subject: deadlines_ms[subject] for subject in found}


def is_left_over(txn: Transaction, stream: Stream, now_ms: int) -> bool:
    """Whether the transaction ended, and its stream will never note it.

    This happens if the stream's event was read before the transaction's messages were purged, and
    was trimmed since. `stream`: as of the same moment or later.
    """
    if not txn.has_ended or now_ms - txn.ended_ms < LEFT_OVER_MS:
        return False
    if not stream.is_live or stream.incarnation != txn.incarnation:
        return stream.incarnation >= txn.incarnation
    if txn.status is TransactionState.ABORTED:
        return False  # the stream notes it as soon as it is at rest
    batch = intents.find(stream.intents, IntentKind.COMMIT)
    plan = batch.commit if batch is not None else None
    return plan is None or txn.transaction_id not in plan.transactions
