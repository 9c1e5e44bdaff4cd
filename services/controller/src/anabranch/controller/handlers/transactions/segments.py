"""Create the segments of open transactions, at begin or later.

A controller may crash after it stored a transaction and before it created the segments. Any
controller that hands out the segments or commits therefore creates them first, unless it knows that
they exist. Creating an existing segment succeeds, even if the segment is sealed. If a segment has
seen a later request, from the abort or the merge, the store refuses: the transaction has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from anabranch.common.contracts.transactions import (
    CommittedPart,
    TransactionBegun,
    TransactionQuery,
)
from anabranch.common.errors import PartMismatch, SegmentNotFound, Unavailable
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.transaction import TransactionState
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.transaction import answers
from anabranch.controller.domain.transaction.segments import beside, segments_of
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk, meant_at_head
from anabranch.controller.handlers.transactions.lookup import Found
from anabranch.controller.workflows.context import OPEN_REVISION, SEGMENT_REQUESTS_MAX

SEGMENTS_DEADLINE_S = 15.0

T = TypeVar("T")


async def parents_of(desk: QueryDesk, found: Found) -> Sequence[SegmentRange]:
    """The segments of the epoch in which the transaction was opened, by key.

    Raises StreamNotFound, Unavailable.
    """
    transaction, stream = found.loaded.state, found.stream
    if transaction.stream_epoch > stream.stream_epoch:
        # The controller that opened it is ahead of this controller's mirror.
        ref = ref_of(stream)
        about = TransactionQuery(
            scope=ref.scope, stream=ref.stream, transaction_id=transaction.transaction_id
        )
        stream = (await meant_at_head(desk, about, transaction.incarnation)).state
    if transaction.stream_epoch == stream.stream_epoch:
        return stream.segments
    return (await desk.history(stream)).segments_of(transaction.stream_epoch)


async def ensure_segments(desk: QueryDesk, found: Found) -> Sequence[SegmentRange]:
    """The parents of an open transaction, after its own segments exist; parts have their own.

    Raises StaleRequest (it has ended), Unavailable.
    """
    transaction = found.loaded.state
    parents = await parents_of(desk, found)
    made = desk.transactions.made
    if not transaction.has_parts and transaction.transaction_id not in made:
        await make_segments(desk, transaction, parents)
        made.add(transaction.transaction_id)
    return parents


async def begun(desk: QueryDesk, found: Found) -> TransactionBegun:
    """The segments to write to; none if the transaction has an outcome. Raises as
    `ensure_segments`.
    """
    info = found.info(desk.transactions.clock.now_ms())
    if found.state is not TransactionState.OPEN:
        return TransactionBegun(transaction=info)
    transaction = found.loaded.state
    parents = await ensure_segments(desk, found)
    if transaction.has_parts:
        return TransactionBegun(transaction=info)
    return TransactionBegun(transaction=info, segments=answers.to_write(transaction, parents))


async def make_segments(
    desk: QueryDesk, transaction: Transaction, parents: Sequence[SegmentRange], part: str = ""
) -> None:
    """Create the transaction's segments, or those of a part. Idempotent.

    Raises StaleRequest (it has ended), Unavailable.
    """
    work, stamp = desk.transactions, _stamp_of(transaction)

    async def make(segment: str) -> None:
        await work.stores.create_segment(segment, stamp)

    await _in_time(transaction, segments_of(transaction, parents, part), make)


class _PartSegment(NamedTuple):
    part: str
    segment: str
    said: int


async def seal_parts(
    desk: QueryDesk,
    transaction: Transaction,
    parents: Sequence[SegmentRange],
    parts: Sequence[CommittedPart],
) -> None:
    """Seal every segment of the parts, which were added, and compare the lengths. Idempotent.

    A missing segment is created first, because a merge needs every source segment. Raises
    PartMismatch, StaleRequest (the transaction has ended), Unavailable.
    """
    work, stamp = desk.transactions, _stamp_of(transaction)

    async def seal(one: _PartSegment) -> None:
        try:
            length = await work.stores.seal_segment(one.segment, stamp)
        except SegmentNotFound:
            await work.stores.create_segment(one.segment, stamp)
            length = await work.stores.seal_segment(one.segment, stamp)
        if length != one.said:
            raise _mismatch(one.part, one.segment, length, one.said)

    _check_parents(parents, parts)
    await _in_time(transaction, _part_segments(transaction, parents, parts), seal)


def _check_parents(parents: Sequence[SegmentRange], parts: Sequence[CommittedPart]) -> None:
    """Raises PartMismatch if a part names a parent that the epoch does not have."""
    known = {parent.segment_id for parent in parents}
    for part in parts:
        for said in part.lengths:
            if said.segment_id not in known:
                raise _mismatch(part.part, str(said.segment_id), 0, said.length)


def _part_segments(
    transaction: Transaction, parents: Sequence[SegmentRange], parts: Sequence[CommittedPart]
) -> Iterator[_PartSegment]:
    """All segments of the parts, with the lengths that the commit names."""
    for part in parts:
        said = {one.segment_id: one.length for one in part.lengths}
        for parent in parents:
            name = beside(transaction, parent.segment_id, part.part)
            yield _PartSegment(part.part, name, said.get(parent.segment_id, 0))


def _mismatch(part: str, segment: str, length: int, said: int) -> PartMismatch:
    return PartMismatch(
        "a part's length differs from the commit",
        part=part,
        segment=segment,
        length=length,
        said=said,
    )


async def _in_time(
    transaction: Transaction, things: Iterable[T], action: Callable[[T], Awaitable[None]]
) -> None:
    try:
        async with asyncio.timeout(SEGMENTS_DEADLINE_S):
            await for_each(things, SEGMENT_REQUESTS_MAX, action)
    except TimeoutError as error:
        raise Unavailable(
            "the segment stores did not answer for all of the transaction's segments in time",
            transaction=transaction.transaction_id,
        ) from error


def _stamp_of(transaction: Transaction) -> Stamp:
    return Stamp(transaction.incarnation, OPEN_REVISION)
