"""Delete a stream: its segments and the rest of its transactions, its membership, then its name.

Wakes on: a stream in DELETING. It was sealed, or it was still being created.

Order: the tombstone frees the name. Every segment ever planned is deleted first and leaves a
tombstone in its container, even if it was never created, so that no late request of this
incarnation can meet the next one. The stream stays a member of its scope until then, so no scope
with segments is deleted. The stream's own tombstone comes last: while the stream lives, a
controller ensures that the membership ends. None of its transactions is open or to be committed,
because it was sealed; their gate stays closed for ever and refuses late requests.

Idempotent: deleting an unknown or deleted segment succeeds, and so does leaving twice.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.events import StreamDeleted, StreamEvent
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    membership_of,
    stamp_of,
)


async def delete_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Delete every segment that no truncation has deleted, and the records of transactions.

    Then end the membership in the scope, which may never have begun.
    """
    stamp = stamp_of(loaded)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    stream = loaded.state
    remaining = cuts.from_head(await context.histories.of(stream), stream.head)
    await for_each(stream.names_of(remaining), SEGMENT_REQUESTS_MAX, delete)
    if stream.outcome_count:
        await context.outcomes.forget_all(stream, loaded.sequence + 1)
    await context.gates.leave(membership_of(stream))
    return StreamDeleted()


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.DELETE_SEGMENTS: delete_segments,
}
