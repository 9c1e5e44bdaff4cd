"""Delete a stream: segments, watermarks, the rest of its transactions, membership, then the name.

Wakes on: a stream in DELETING. It was sealed, or it was still being created.

Order: the tombstone frees the name. Every segment ever planned is deleted first and leaves a
tombstone in its container, even if it was never created, so that no late request of this
incarnation can meet the next one. The segment of its watermarks has the same name in every
incarnation; the tombstone refuses a late watermark, and the next incarnation creates the segment
under a higher stamp. The stream stays a member of its scope until then, so no scope
with segments is deleted. The stream's own tombstone comes last: while the stream lives, a
controller ensures that the membership ends. None of its transactions is open or to be committed,
because it was sealed; their gate stays closed for ever and refuses late requests.

Idempotent: deleting an unknown or deleted segment succeeds, and so does leaving twice.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import is_internal
from anabranch.common.model.watermark import watermark_segment
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
    """Delete every segment that no truncation has deleted, the watermarks, and the records of
    transactions.

    Then end the membership in the scope, which may never have begun.
    """
    stamp = stamp_of(loaded)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    stream = loaded.state
    remaining = cuts.from_head(await context.histories.of(stream), stream.head)
    names = (*stream.names_of(remaining), *_watermark_segments(stream))
    await for_each(names, SEGMENT_REQUESTS_MAX, delete)
    if stream.outcome_count:
        await context.outcomes.forget_all(stream, loaded.sequence + 1)
    await context.gates.leave(membership_of(stream))
    return StreamDeleted()


def _watermark_segments(stream: Stream) -> tuple[str, ...]:
    """The segment of the stream's watermarks, which may never have been created; an internal
    stream has none."""
    assert stream.ref is not None
    return () if is_internal(stream.ref.stream) else (watermark_segment(stream.ref),)


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.DELETE_SEGMENTS: delete_segments,
}
