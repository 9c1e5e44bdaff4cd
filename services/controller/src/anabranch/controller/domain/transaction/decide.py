"""Decides requests on a transaction: the events that follow, or a rejection. Pure.

All are idempotent: a repeated decision has no events and succeeds. The caller appends by
compare-and-set on the transaction's subject, and decides again if that fails.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.common.contracts.transactions import BeginTransaction, CommitEvents
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    PartMismatch,
    TransactionEnded,
    TransactionNotFound,
)
from anabranch.common.model.topics import is_backing
from anabranch.common.model.transaction import (
    CARRIED_AGE_MS_MAX,
    CARRIED_AHEAD_MS_MAX,
    CARRIED_SIZE_BYTES_MAX,
    CLOCK_SKEW_MS,
    PARTS_MAX,
    TransactionState,
    drawn_ms,
)
from anabranch.common.wire.whole_block import check_carried_block
from anabranch.controller.domain.transaction import deadlines
from anabranch.controller.domain.transaction.events import (
    AbortReason,
    TransactionAborted,
    TransactionAborting,
    TransactionCommitted,
    TransactionCommitting,
    TransactionEvent,
    TransactionOpened,
    TransactionPartAdded,
    TransactionPinged,
    TransactionSubmitted,
)
from anabranch.controller.domain.transaction.state import Transaction

Refusal = Literal["", "lease_out_of_range", "execution_exceeded"]
_COMMITS = (TransactionState.COMMITTING, TransactionState.COMMITTED)
_ABORTS = (TransactionState.ABORTING, TransactionState.ABORTED)


@dataclass(frozen=True, slots=True)
class Opening:
    """The circumstances of a begin besides the request: the stream as just read."""

    transaction_id: str
    incarnation: int
    stream_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class PingDecision:
    """The answer to a ping, and the events to store before it; `contracts.TransactionPinged`
    describes its meaning. `state` None: the transaction does not exist.
    """

    events: Sequence[TransactionEvent]
    state: TransactionState | None
    lease_left_ms: int = 0
    refusal: Refusal = ""


def opened(asked: BeginTransaction, at: Opening) -> TransactionOpened:
    """The first event of a transaction. Raises InvalidRequest.

    Topics have no transactions, because a commit after a change of the epoch would give their
    partitions other segments.
    """
    _refuse_topic(asked.scope, asked.stream)
    lease_ms = deadlines.check_lease(asked.lease_ms)
    limit_ms = deadlines.execution_limit(asked.execution_ms_max, lease_ms)
    return TransactionOpened(
        scope=asked.scope,
        stream=asked.stream,
        incarnation=at.incarnation,
        transaction_id=at.transaction_id,
        stream_epoch=at.stream_epoch,
        writer=asked.writer,
        at_ms=at.now_ms,
        lease_ms=lease_ms,
        execution_ms_max=limit_ms,
        deadline_ms=deadlines.deadline(at.now_ms, lease_ms, at.now_ms, limit_ms),
        has_parts=asked.parts,
        key=asked.key,
    )


def submitted(
    asked: CommitEvents, known: Collection[int], at: Opening
) -> Sequence[TransactionEvent]:
    """The only event of a carried transaction before its end. `known`: the ids of the segments of
    the epoch that the request names.

    Every store must be able to append each block, because nothing can refuse it later. Raises
    InvalidRequest, EventTooLarge, CorruptBlock, MalformedBlock, FormatTooNew.
    """
    _refuse_topic(asked.scope, asked.stream)
    named = {each.segment_id for each in asked.blocks}
    if len(named) < len(asked.blocks) or not named <= set(known):
        raise InvalidRequest(
            "the blocks of a transaction are for segments of its epoch, each named once",
            transaction=asked.transaction_id,
            segments=len(asked.blocks),
        )
    size = sum(len(each.block) for each in asked.blocks)
    if size > CARRIED_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "the blocks of the transaction are over the limit",
            remedy="write the events in a transaction that is begun",
            size=size,
            limit=CARRIED_SIZE_BYTES_MAX,
        )
    for each in asked.blocks:
        check_carried_block(each.block)
    return (
        TransactionSubmitted(
            scope=asked.scope,
            stream=asked.stream,
            incarnation=at.incarnation,
            transaction_id=at.transaction_id,
            stream_epoch=at.stream_epoch,
            writer=asked.writer,
            at_ms=at.now_ms,
            blocks=asked.blocks,
        ),
    )


def is_in_time(transaction: str, now_ms: int) -> bool:
    """Whether an id that the stream does not know may be submitted.

    A stream remembers outcomes for longer than ids are in time, so an id that is in time and
    unknown was never submitted.
    """
    age_ms = now_ms - drawn_ms(transaction)
    return -CARRIED_AHEAD_MS_MAX <= age_ms <= CARRIED_AGE_MS_MAX


def _refuse_topic(scope: str, stream: str) -> None:
    if is_backing(stream):
        raise InvalidRequest("topics have no transactions", stream=f"{scope}/{stream}")


def ping(txn: Transaction, lease_ms: int | None, now_ms: int) -> PingDecision:
    """Prolong the transaction, if it is open. `lease_ms` None: the lease from the begin.

    Raises nothing. A transaction past its deadline is prolonged too, unless it was aborted.
    """
    if not txn.is_open:
        return PingDecision((), txn.status)
    lease = txn.lease_ms if lease_ms is None else lease_ms
    left_ms = deadlines.lease_left(now_ms, txn.deadline_ms)
    if not deadlines.is_lease(lease):
        return PingDecision((), txn.status, left_ms, "lease_out_of_range")
    if now_ms + lease > txn.opened_ms + txn.execution_ms_max:
        return PingDecision((), txn.status, left_ms, "execution_exceeded")
    if now_ms + lease + CLOCK_SKEW_MS <= txn.deadline_ms:
        return PingDecision((), txn.status, left_ms)
    until_ms = deadlines.deadline(now_ms, lease, txn.opened_ms, txn.execution_ms_max)
    event = TransactionPinged(deadline_ms=until_ms, lease_ms=lease)
    return PingDecision((event,), txn.status, deadlines.lease_left(now_ms, until_ms))


def add_part(txn: Transaction, part: str) -> Sequence[TransactionEvent]:
    """Add a part; no events if it was added before.

    Raises TransactionNotFound, TransactionEnded, InvalidRequest (no parts, or too many).
    """
    if not txn.is_open:
        raise _other(txn, "takes no more parts")
    if not txn.has_parts:
        raise InvalidRequest(
            "the transaction has no parts",
            remedy="begin a transaction with parts, or write to its own segments",
            transaction=txn.transaction_id,
        )
    if part in txn.parts:
        return ()
    if len(txn.parts) >= PARTS_MAX:
        raise InvalidRequest(
            "the transaction has reached its maximum of parts",
            remedy="use fewer parts",
            transaction=txn.transaction_id,
            limit=PARTS_MAX,
        )
    return (TransactionPartAdded(part=part),)


def commit(
    txn: Transaction,
    parts: Sequence[str] | None = None,
    *,
    writer_id: str = "",
    timestamp_ms: int | None = None,
    now_ms: int,
) -> Sequence[TransactionEvent]:
    """Commit; no events if that was decided before, whatever the parts.

    `parts`: the valid ones, in merge order; empty for a transaction without parts. A transaction
    past its deadline can be committed, unless it was aborted.

    Raises TransactionNotFound, TransactionEnded (aborted), PartMismatch (a part is unknown; the
    transaction stays open), InvalidRequest.
    """
    if txn.status in _COMMITS:
        return ()
    if not txn.is_open:
        raise _other(txn, "cannot be committed")
    if timestamp_ms is not None and not writer_id:
        raise InvalidRequest(
            "a time is noted for a writer", remedy="name the writer, or leave out the time"
        )
    _check_parts(txn, parts or ())
    return (
        TransactionCommitting(
            parts=tuple(parts or ()),
            writer_id=writer_id,
            timestamp_ms=timestamp_ms,
            at_ms=now_ms,
        ),
    )


def _check_parts(txn: Transaction, parts: Sequence[str]) -> None:
    if parts and not txn.has_parts:
        raise InvalidRequest(
            "the transaction has no parts",
            remedy="commit it without parts",
            transaction=txn.transaction_id,
        )
    if len(set(parts)) != len(parts):
        raise InvalidRequest(
            "a part is named twice", remedy="name each once", transaction=txn.transaction_id
        )
    known = set(txn.parts)
    for part in parts:
        if part not in known:
            raise PartMismatch(
                "the transaction has no such part", transaction=txn.transaction_id, part=part
            )


def abort(txn: Transaction, reason: AbortReason, now_ms: int) -> Sequence[TransactionEvent]:
    """Abort; no events if that was decided. Raises TransactionNotFound, TransactionEnded."""
    if txn.status in _ABORTS:
        return ()
    if not txn.is_open:
        raise _other(txn, "cannot be aborted")
    return (TransactionAborting(reason=reason, at_ms=now_ms),)


def expire(txn: Transaction, now_ms: int) -> Sequence[TransactionEvent]:
    """Abort it if it is open and its deadline has passed."""
    if not txn.is_open or now_ms < txn.deadline_ms:
        return ()
    return (TransactionAborting(reason="expired", at_ms=now_ms),)


def committed(txn: Transaction, now_ms: int) -> Sequence[TransactionEvent]:
    """Record that its events are in the stream; no events if that is recorded."""
    assert txn.status in _COMMITS
    if txn.has_ended:
        return ()
    return (TransactionCommitted(at_ms=now_ms),)


def aborted(txn: Transaction, now_ms: int) -> Sequence[TransactionEvent]:
    """Record that its segments are deleted; no events if that is recorded."""
    assert txn.status in _ABORTS
    if txn.has_ended:
        return ()
    return (TransactionAborted(at_ms=now_ms),)


def _other(txn: Transaction, what: str) -> AnabranchError:
    """The error for a request that needs an open transaction."""
    if txn.status is None:
        return TransactionNotFound("no such transaction")
    return TransactionEnded(
        f"the transaction is {txn.status} and {what}",
        transaction=txn.transaction_id,
        state=txn.status.value,
    )
