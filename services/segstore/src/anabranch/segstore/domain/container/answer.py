"""What a container logs and answers for the requests that change more than one append does.

Each function is handed the whole map of segments, pending included, and returns the operation
to log, if any, and the answer, which is true once everything pending is durable; or it raises
the rejection.
"""

from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    AttributeValue,
    AttributeValues,
    Done,
    GetAttributes,
    MergeSegments,
    Message,
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
    decide_truncate,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.operations import Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """What to log, None for nothing, and what to tell once that and all before it is durable."""

    operation: Operation | None
    message: Message


def answer_truncate(state: SegmentMap, request: TruncateSegment, lower: int, now_ms: int) -> Answer:
    """→ Truncated. `lower` and the errors are those of `decide_truncate`."""
    known = state.known(request.segment)
    decision = decide_truncate(known, request, lower, now_ms)
    assert isinstance(known, SegmentState)
    message = Truncated(start=max(known.start, request.offset))
    return Answer(None if isinstance(decision, NoChange) else decision, message)


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
