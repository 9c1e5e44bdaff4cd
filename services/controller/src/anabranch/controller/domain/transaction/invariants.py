"""The invariants of every decision on a transaction, checked on (before, after) of each append.

The numbers are those of docs/invariants.md.
"""

from pydantic import TypeAdapter

from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.transaction import (
    CARRIED_SIZE_BYTES_MAX,
    EXECUTION_MS_MAX,
    PARTS_MAX,
    TransactionState,
)
from anabranch.controller.domain.transaction import deadlines
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import MACHINE, Transaction, evolve


def check(before: Transaction, after: Transaction) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in MACHINE.moves, "TXN-1: moves only as its table says"
    if before.status is not None:
        assert _beginning(before) == _beginning(after), "TXN-2: what it began as stays"
    if after.blocks:
        _check_carried(after)
    else:
        _check_times(before, after)
    _check_parts(before, after)
    _check_outcome(before, after)


def _beginning(txn: Transaction) -> tuple[object, ...]:
    return (
        (txn.ref, txn.incarnation, txn.transaction_id, txn.stream_epoch, txn.key),
        (txn.writer, txn.opened_ms, txn.lease_ms, txn.execution_ms_max, txn.has_parts, txn.blocks),
    )


def _check_carried(txn: Transaction) -> None:
    segments = {each.segment_id for each in txn.blocks}
    assert len(segments) == len(txn.blocks), "TXN-8: it carries one block for a segment"
    assert txn.carried_size <= CARRIED_SIZE_BYTES_MAX, "TXN-8: its blocks are bounded"
    assert txn.status in (TransactionState.COMMITTING, TransactionState.COMMITTED), (
        "TXN-8: it is committed from its first message on"
    )
    has_lease = txn.lease_ms or txn.deadline_ms or txn.execution_ms_max
    assert not has_lease, "TXN-8: it has no lease"


def _check_times(before: Transaction, after: Transaction) -> None:
    assert deadlines.is_lease(after.lease_ms), "TXN-3: leases are bounded"
    limit_ms = after.execution_ms_max
    assert after.lease_ms <= limit_ms <= EXECUTION_MS_MAX, "TXN-3: so is the time in all"
    assert before.deadline_ms <= after.deadline_ms, "TXN-4: no deadline moves back"
    last_ms = deadlines.last_deadline(after.opened_ms, limit_ms)
    assert after.deadline_ms <= last_ms, "TXN-4: no deadline lies beyond the execution limit"
    if not before.is_open:
        stayed = before.status is None or before.deadline_ms == after.deadline_ms
        assert stayed, "TXN-4: an outcome leaves the deadline where it is"


def _check_parts(before: Transaction, after: Transaction) -> None:
    if before.parts == after.parts:
        return
    assert after.is_open, "TXN-5: parts are added while it is open"
    assert after.has_parts, "TXN-5: only where it was begun with parts"
    kept = after.parts[: len(before.parts)]
    assert kept == before.parts, "TXN-5: no part is forgotten"
    assert len(set(after.parts)) == len(after.parts), "TXN-5: no part is added twice"
    assert len(after.parts) <= PARTS_MAX, "TXN-5: parts are bounded"


def _check_outcome(before: Transaction, after: Transaction) -> None:
    if after.status is TransactionState.COMMITTING:
        counting = set(after.committed_parts)
        assert counting <= set(after.parts), "TXN-6: what is committed was added"
        assert len(counting) == len(after.committed_parts), "TXN-6: no part is committed twice"
    else:
        assert _outcome(before) == _outcome(after), "TXN-6: what is committed is decided at once"
    if after.status is TransactionState.ABORTING:
        assert after.abort_reason, "TXN-6: an abort has a reason"
    else:
        assert before.abort_reason == after.abort_reason, "TXN-6: which stays"
    assert bool(after.ended_ms) == after.has_ended, "TXN-7: the time of the end is that of the end"


def _outcome(txn: Transaction) -> tuple[object, ...]:
    return txn.committed_parts, txn.writer_id, txn.timestamp_ms


TRANSACTION: Aggregate[Transaction, TransactionEvent] = Aggregate(
    kind="transaction",
    initial=Transaction(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[TransactionEvent]),
    states=TypeAdapter(Transaction),
)
