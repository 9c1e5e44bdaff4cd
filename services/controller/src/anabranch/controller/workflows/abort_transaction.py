"""Aborting a transaction: delete its segments, then say that it is aborted.

Wakes on: a transaction in ABORTING. It needs no turn among the works of its stream, because nothing
of it was ever a part of the stream.

Why in this order: whoever is told that it is ABORTED may forget it, so nothing is left by then.

Why safe to repeat: deleting a segment that is gone, or never was, is success, and leaves a
tombstone: a request to make it that comes late is refused.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.segments import all_segments_of, ref_of
from anabranch.controller.domain.transaction.state import Transaction, TransactionStep
from anabranch.controller.workflows.context import ABORT_REVISION, SEGMENT_REQUESTS_MAX, WorkContext


async def delete_segments(context: WorkContext, loaded: Loaded[Transaction]) -> TransactionEvent:
    """Delete all segments that it may ever have had. Raises StillWaiting, Unavailable."""
    transaction = loaded.state
    stream = context.streams.stream(ref_of(transaction))
    if stream is None or stream.state.incarnation != transaction.incarnation:
        raise StillWaiting("the transaction's stream is not known yet")
    if stream.state.stream_epoch < transaction.stream_epoch:
        raise StillWaiting("the epoch in which the transaction was begun is not known yet")
    history = await context.histories.of(stream.state)
    parents = history.segments_of(transaction.stream_epoch)
    stamp = Stamp(transaction.incarnation, ABORT_REVISION)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    await for_each(all_segments_of(transaction, parents), SEGMENT_REQUESTS_MAX, delete)
    (event,) = decide.aborted(transaction, context.clock.now_ms())
    return event


STEPS: Mapping[
    TransactionStep, Callable[[WorkContext, Loaded[Transaction]], Awaitable[TransactionEvent]]
] = {TransactionStep.DELETE_SEGMENTS: delete_segments}
