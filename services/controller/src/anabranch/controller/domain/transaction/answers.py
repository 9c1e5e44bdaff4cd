"""Answers to queries about a transaction. Pure."""

from collections.abc import Sequence

from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.transactions import TransactionInfo, TransactionKey
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.transaction import deadlines
from anabranch.controller.domain.transaction.segments import segments_of
from anabranch.controller.domain.transaction.state import Transaction


def described(txn: Transaction, now_ms: int) -> TransactionInfo:
    """The description of a transaction that was opened."""
    assert txn.status is not None
    key = txn.key
    return TransactionInfo(
        transaction_id=txn.transaction_id,
        state=txn.status,
        incarnation=txn.incarnation,
        stream_epoch=txn.stream_epoch,
        ended_ms=txn.ended_ms,
        writer=txn.writer,
        opened_ms=txn.opened_ms,
        age_ms=max(0, now_ms - txn.opened_ms),
        lease_ms=txn.lease_ms,
        lease_left_ms=deadlines.lease_left(now_ms, txn.deadline_ms) if txn.is_open else 0,
        deadline_ms=txn.deadline_ms if txn.is_open else 0,
        has_parts=txn.has_parts,
        part_count=len(txn.parts),
        key=TransactionKey(application=key.application, version=key.version) if key else None,
    )


def to_write(
    txn: Transaction, epoch_segments: Sequence[SegmentRange], part: str = ""
) -> tuple[SegmentInStream, ...]:
    """The segments of the transaction, or of a part of it, in the order of the parents."""
    names = segments_of(txn, epoch_segments, part)
    return tuple(
        SegmentInStream(
            segment_id=parent.segment_id,
            name=name,
            key_start=parent.keys.start,
            key_end=parent.keys.end,
        )
        for parent, name in zip(epoch_segments, names, strict=True)
    )
