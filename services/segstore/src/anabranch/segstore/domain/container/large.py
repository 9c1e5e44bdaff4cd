"""Decides an append in a session, alone or with the parts of a large event directly before it.

    parts named ──► merge of the transient segment, and the append behind it, in one frame

Both become durable together or not at all, and the writer's event number decides for both: a repeat
finds the number stored. So a reference is never without its parts, and they have one distance for
ever, wherever the segment is merged to.
"""

from typing import NamedTuple

from msgspec import structs

from anabranch.common.errors import InvalidRequest, SessionEnded
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import Block, LargeReference
from anabranch.common.wire.messages import NO_DECISION, Append, AppendLarge
from anabranch.segstore.domain.container.circumstances import Group
from anabranch.segstore.domain.container.decide import Duplicate, decide_append
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.operations import AppendOperation


class Decided(NamedTuple):
    """The decision, and the segment's length and event count after it; -1: it is a repeat."""

    decision: AppendOperation | Group | Duplicate
    length: int
    event_count: int


def decide_in_session(
    segments: SegmentMap,
    state: SegmentState,
    writer_id: bytes,
    request: Append,
    payload: bytes,
    *,
    now_ms: int,
) -> Decided:
    """Decide the append to the segment `state`.

    Raises the errors of `decide_append` and `decide_merge`; SessionEnded if the parts are not in
    the container any more; InvalidRequest if the reference does not fit them.
    """
    last = segments.last_event_number(state.number, writer_id)
    append = decide_append(state, last, writer_id, request, payload, now_ms=now_ms)
    if isinstance(append, Duplicate):
        return Decided(append, state.length, -1)
    count = state.event_count + append.event_count
    if not isinstance(request, AppendLarge):
        return Decided(append, state.length + len(payload), count)
    if request.parts not in segments.transients:
        raise SessionEnded(
            "the parts of the large event are gone", segment=state.name, parts=request.parts,
            remedy="upload the event again",
        )  # fmt: skip
    merge = decide_merge(segments.known, state.name, (request.parts,), NO_DECISION, now_ms)
    assert merge.operation is not None, "a living source is always merged"
    (parts,) = merge.operation.sources
    if not request.is_block or not _refers_to(payload, parts.length):
        raise InvalidRequest(
            "the append is no reference to exactly these parts",
            segment=state.name, parts=request.parts, size=parts.length,
        )  # fmt: skip
    behind = structs.replace(append, offset=state.length + parts.length)
    return Decided(Group((merge.operation, behind)), behind.offset + len(payload), count)


def _refers_to(block: bytes, length: int) -> bool:
    """Whether the reference in the block states no offset, and this length of its parts."""
    reference = LargeReference.parse(Block(block)[0])
    return (reference.offset, reference.length) == (0, length)
