"""The names of a transaction's segments. Pure.

The *parents* are the segments of the stream epoch in which it was opened, even if the stream has
other segments now.
"""

from collections.abc import Iterator, Sequence

from anabranch.common.model.names import (
    SegmentId,
    StreamRef,
    segment_name,
    transaction_segment_name,
)
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.transaction.state import Transaction


def segments_of(
    txn: Transaction, epoch_segments: Sequence[SegmentRange], part: str = ""
) -> list[str]:
    """One name beside each parent: the part's, or (`part` "") the transaction's own."""
    assert bool(part) == txn.has_parts
    return [beside(txn, segment.segment_id, part) for segment in epoch_segments]


def all_segments_of(txn: Transaction, epoch_segments: Sequence[SegmentRange]) -> Iterator[str]:
    """Every segment that it may have, parent by parent; with parts there may be very many."""
    for segment in epoch_segments:
        for part in _parts(txn, txn.parts):
            yield beside(txn, segment.segment_id, part)


def merged_parts(txn: Transaction, parent: SegmentId) -> Sequence[str | bytes]:
    """The parts of a batch that the parent, or its duplicate, gets from the transaction: the names
    of segments, or the block that the commit carried.
    """
    if not txn.blocks:
        return sources_of(txn, parent)
    return [each.block for each in txn.blocks if each.segment_id == parent]


def sources_of(txn: Transaction, parent: SegmentId) -> list[str]:
    """The segments to merge into the parent, or into its duplicate, in that order."""
    assert not txn.blocks, "a carried transaction has no segments"
    return [beside(txn, parent, part) for part in _parts(txn, txn.committed_parts)]


def dropped_of(txn: Transaction, parent: SegmentId) -> list[str]:
    """The segments to delete instead of merging, because their parts do not count."""
    counting = set(txn.committed_parts)
    return [beside(txn, parent, part) for part in txn.parts if part not in counting]


def beside(txn: Transaction, parent: SegmentId, part: str = "") -> str:
    """The name of the segment that the transaction, or a part of it, has beside `parent`."""
    return transaction_segment_name(segment_name(ref_of(txn), parent), txn.transaction_id, part)


def ref_of(txn: Transaction) -> StreamRef:
    """The stream of a transaction that was opened."""
    assert txn.ref is not None
    return txn.ref


def _parts(txn: Transaction, parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts if txn.has_parts else ("",)
