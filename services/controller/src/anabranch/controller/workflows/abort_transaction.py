"""Abort a transaction: delete its segments, then record that it is aborted.

Wakes on: a transaction in ABORTING. It does not queue among the intents of its stream, because it
was never a part of the stream.

Order: once a client sees ABORTED, it may forget the transaction, so no segment may be left by then.

Idempotent: deleting a segment that is gone, or never existed, succeeds and leaves a tombstone; a
late request to create the segment is refused.
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
