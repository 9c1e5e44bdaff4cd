"""Truncate a stream: check the cut, truncate its segments, delete those before it.

Wakes on: an active stream whose first intent is a truncation.

Order: only the stores know whether an offset is within its segment and between two appends, and a
truncation of a segment is irrevocable. The workflow therefore first asks the store of every segment
that the cut shortens, including sealed ones; a single refusal ends the truncation before anything
has changed. Once `StreamCutChecked` is stored, the truncation cannot fail any more: these segments
are truncated, and the segments before the cut are deleted last.

No store refuses after the check: segments only grow, their blocks keep their places, and only a
later truncation or a deletion of the stream deletes a segment of the cut, and both come after this
one. For bytes that are not blocks, a store forgets append boundaries when it moves them to tier 2.
It then truncates the segment at the nearest boundary below the offset; the stream still begins at
the cut.

A truncation by retention may begin anywhere before its cut. If a store refuses the offset of such a
truncation because it has forgotten the boundary, the cut moves back to the boundary below.

Idempotent: the check changes nothing. If a segment already begins at the offset, or is gone, the
request succeeds. The segments before the cut stay the same, even if the stream has grown since.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import CutRefused, InvalidCut, InvalidRequest, NotAtBoundary
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.events import (
    StreamCutChecked,
    StreamEvent,
    StreamTruncated,
    StreamTruncateFailed,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import TruncationPlan
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.workflows.context import SEGMENT_REQUESTS_MAX, WorkContext, stamp_of


async def check_cut(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Ask the store of every segment of the cut whether it can be truncated there.

    If segments of the cut were still being created when it was accepted, the cut is first validated
    against the present stream, which has them.
    """
    stream, plan = loaded.state, _plan(loaded)
    history = await context.histories.of(stream)
    refusals: list[NotAtBoundary] = []

    async def check(place: SegmentOffset) -> None:
        try:
            await _check(context, loaded, place)
        except NotAtBoundary as refusal:
            if plan.release is None:
                raise
            refusals.append(refusal)

    try:
        cuts.truncated(history, stream.head, plan.cut)
        await for_each(_places(stream, plan), SEGMENT_REQUESTS_MAX, check)
        return _lowered(stream, history, plan, refusals) if refusals else StreamCutChecked()
    except (InvalidCut, CutRefused, InvalidRequest, NotAtBoundary) as refusal:
        return StreamTruncateFailed(error=ErrorBody.of(refusal))


def _lowered(
    stream: Stream, history: History, plan: TruncationPlan, refusals: Sequence[NotAtBoundary]
) -> StreamCutChecked:
    """The cut of a truncation by retention, moved back to boundaries where stores refused it.

    Raises NotAtBoundary if nothing would go then, InvalidCut, CutRefused.
    """
    lower = {refusal.fields["segment"]: refusal.fields["lower"] for refusal in refusals}
    names = stream.names_of(place.segment_id for place in plan.cut)
    offsets = [lower.get(name, place.offset) for name, place in zip(names, plan.cut, strict=True)]
    cut = tuple(
        SegmentOffset(place.segment_id, int(str(offset)))
        for place, offset in zip(plan.cut, offsets, strict=True)
    )
    cuts.truncated(history, stream.head, cut)
    freed_bytes = cuts.size_between(history, stream.head, cut)
    if not freed_bytes:
        raise refusals[0]
    return StreamCutChecked(cut=cut, freed_bytes=freed_bytes)


async def truncate_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Truncate, then delete, several segments concurrently."""
    stamp, stream, plan = stamp_of(loaded), loaded.state, _plan(loaded)
    history = await context.histories.of(stream)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    await for_each(_places(stream, plan), SEGMENT_REQUESTS_MAX, partial(_truncate, context, loaded))
    deleted = cuts.truncated(history, stream.head, plan.cut)
    await for_each(stream.names_of(deleted), SEGMENT_REQUESTS_MAX, delete)
    return StreamTruncated()


def _plan(loaded: Loaded[Stream]) -> TruncationPlan:
    plan = loaded.state.intents[0].truncation
    assert plan is not None
    return plan


def _places(stream: Stream, plan: TruncationPlan) -> list[SegmentOffset]:
    """The cut's places within segments where something goes: at the start of a segment, and where
    the stream begins already, there is nothing to do."""
    head = set(stream.head)
    return [place for place in plan.cut if place.offset > 0 and place not in head]


async def _check(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
    (name,) = loaded.state.names_of([place.segment_id])
    await context.stores.check_truncation(name, place.offset, stamp_of(loaded))


async def _truncate(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
    (name,) = loaded.state.names_of([place.segment_id])
    try:
        await context.stores.truncate_segment(name, place.offset, stamp_of(loaded))
    except NotAtBoundary as forgotten:
        lower = forgotten.fields["lower"]
        assert isinstance(lower, int), "a refusal within an append names the boundary below"
        await context.stores.truncate_segment(name, lower, stamp_of(loaded))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.CHECK_CUT: check_cut,
    StreamStep.TRUNCATE_SEGMENTS: truncate_segments,
}
