"""What a container logs and answers for the requests that change more than one append does.

Each function is handed the whole map of segments, pending included, and returns the operation
to log, if any, and the answer, which is true once everything pending is durable; or it raises
the rejection.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.messages import (
    AttributeValue,
    AttributeValues,
    CheckTruncation,
    CreateSegment,
    DeleteSegment,
    Done,
    GetAttributes,
    GetSegmentInfo,
    MergeSegments,
    Message,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentsMerged,
    Truncated,
    TruncateSegment,
    UpdateAttributes,
)
from anabranch.segstore.domain.container.attributes import ATTRIBUTES_MAX
from anabranch.segstore.domain.container.decide import (
    Duplicate,
    NoChange,
    decide_attributes,
    decide_create,
    decide_delete,
    decide_seal,
    decide_truncate,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.operations import ControlOperation, Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """What to log, None for nothing, and what to tell once that and all before it is durable."""

    operation: Operation | None
    message: Message


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a segment is served, and how far tier 2 has it."""

    container: int
    container_epoch: int
    tiered_length: int
    sealed_in_tier_two: bool


def answer_create(state: SegmentMap, request: CreateSegment, now_ms: int) -> Answer:
    """→ Done. Raises what `decide_create` raises."""
    known = state.known(request.segment)
    decision = decide_create(known, request.segment, request.stamp, now_ms)
    return Answer(_to_log(decision), Done())


def answer_seal(state: SegmentMap, request: SealSegment, now_ms: int) -> Answer:
    """→ Sealed. Raises what `decide_seal` raises."""
    known = state.known(request.segment)
    decision = decide_seal(known, request.segment, request.stamp, now_ms)
    assert isinstance(known, SegmentState)
    return Answer(_to_log(decision), Sealed(length=known.length))


def answer_delete(state: SegmentMap, request: DeleteSegment, now_ms: int) -> Answer:
    """→ Done. Raises what `decide_delete` raises."""
    known = state.known(request.segment)
    decision = decide_delete(known, request.segment, request.stamp, now_ms)
    return Answer(_to_log(decision), Done())


def _to_log(decision: ControlOperation | NoChange) -> Operation | None:
    return None if isinstance(decision, NoChange) else decision


def answer_info(
    state: SegmentMap, request: GetSegmentInfo, whereabouts: Callable[[int], Whereabouts]
) -> Answer:
    """→ SegmentInfo; `whereabouts` is asked with a segment's number (0: of one that is gone).

    Raises SegmentNotFound.
    """
    known = state.known(request.segment)
    if isinstance(known, Tombstone) and request.even_gone:
        return Answer(None, _gone_info(known, whereabouts(0)))
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    found = whereabouts(known.number)
    info = SegmentInfo(
        segment=known.name,
        start=known.start,
        length=known.length,
        tiered_length=found.tiered_length,
        sealed=known.sealed,
        event_count=known.event_count,
        container=found.container,
        container_epoch=found.container_epoch,
        sealed_in_tier_two=found.sealed_in_tier_two,
        modified_ms=known.modified_ms,
    )
    return Answer(None, info)


def _gone_info(tombstone: Tombstone, found: Whereabouts) -> SegmentInfo:
    merged = tombstone.merged
    return SegmentInfo(
        segment=tombstone.name,
        start=0,
        length=merged.length if merged else 0,
        tiered_length=0,
        sealed=merged is not None,
        event_count=0,
        container=found.container,
        container_epoch=found.container_epoch,
        deleted=True,
        merged_into=merged.target if merged else "",
        merged_offset=merged.offset if merged else 0,
    )


def answer_truncate(state: SegmentMap, request: TruncateSegment, lower: int, now_ms: int) -> Answer:
    """→ Truncated. `lower` and the errors are those of `decide_truncate`; a check logs nothing."""
    known = state.known(request.segment)
    decision = decide_truncate(known, request, lower, now_ms)
    assert isinstance(known, SegmentState)
    message = Truncated(start=max(known.start, request.offset))
    is_check = isinstance(request, CheckTruncation)
    return Answer(None if is_check else _to_log(decision), message)


def answer_merge(state: SegmentMap, request: MergeSegments, now_ms: int) -> Answer:
    """→ SegmentsMerged. Raises what `decide_merge` raises."""
    decision = decide_merge(state.known, request.segment, request.sources, request.stamp, now_ms)
    return Answer(decision.operation, SegmentsMerged(merged=decision.merged))


def answer_update(state: SegmentMap, request: UpdateAttributes, now_ms: int) -> Answer:
    """→ Done. Raises what `decide_attributes` raises."""
    known = state.known(request.segment)
    number = known.number if isinstance(known, SegmentState) else 0
    last = state.last_event_number(number, request.client_id)
    decision = decide_attributes(known, last, request, now_ms)
    return Answer(None if isinstance(decision, Duplicate) else decision, Done())


def answer_attributes(state: SegmentMap, request: GetAttributes) -> Answer:
    """→ AttributeValues. Raises SegmentNotFound, InvalidRequest."""
    known = state.known(request.segment)
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    if len(request.attributes) > ATTRIBUTES_MAX:
        raise InvalidRequest(
            "too many attributes are asked for",
            attributes=len(request.attributes), limit=ATTRIBUTES_MAX,
        )  # fmt: skip
    found = known.attributes
    ids = set(request.attributes or found) & found.keys()
    values = tuple(AttributeValue(attribute, found[attribute]) for attribute in sorted(ids))
    return Answer(None, AttributeValues(values=values))
