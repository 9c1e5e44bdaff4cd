"""Transient segments: created for a connection, and deleted with it at the latest.

    CreateTransient ──► alive ──merged into the parent──► tombstone
                          └──connection ended, container opened again, deleted──► tombstone

The log and tier 2 treat them like any other segment, with a kind of their own. Only the store names
them, and never uses a name twice, so no late request can recreate one. A transient segment that is
alive when a container begins to serve belongs to a connection of an older container epoch, and is
deleted.
"""

from anabranch.common.errors import InvalidRequest, Overloaded, SegmentExists, SegmentSealed
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import NO_DECISION, CreateTransient, SegmentCreated
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances
from anabranch.segstore.domain.container.decide import (
    check_segment_name,
    decide_delete,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    WRITER_ID_SIZE_BYTES,
    CreateOperation,
    DeleteOperation,
)

TRANSIENTS_MAX = 1000
"""In one container."""


def answer_create_transient(
    state: SegmentMap, request: CreateTransient, around: Circumstances
) -> Answer:
    """→ SegmentCreated. `model.names.transient_name` made the given name.

    Raises InvalidRequest, SegmentNotFound and SegmentSealed (of the parent), InvalidName,
    SegmentExists, Overloaded.
    """
    name = around.given.name
    parent = state.known(request.segment)
    if len(request.writer_id) != WRITER_ID_SIZE_BYTES:
        raise InvalidRequest("a writer id has 16 bytes", size=len(request.writer_id))
    check_segment_name(name)
    if not isinstance(parent, SegmentState):
        raise gone(parent, request.segment)
    if parent.sealed:
        raise SegmentSealed(
            "the parent is sealed, so no segment can merge into it",
            segment=parent.name, length=parent.length,
        )  # fmt: skip
    if state.known(name) is not None:
        raise SegmentExists("the name was made before", segment=name)
    if len(state.transients) >= TRANSIENTS_MAX:
        raise Overloaded(
            "the container has too many transient segments",
            remedy="merge or delete transient segments, or wait until other clients do",
            limit=TRANSIENTS_MAX,
        )
    operation = CreateOperation(name, NO_DECISION, around.now_ms, SegmentKind.TRANSIENT)
    return Answer(operation, SegmentCreated(segment=name))


def end_transient(state: SegmentMap, name: str, now_ms: int) -> DeleteOperation:
    """The operation that deletes the transient segment, which is alive."""
    assert name in state.transients
    decision = decide_delete(state.known(name), name, NO_DECISION, now_ms)
    assert isinstance(decision, DeleteOperation)
    return decision
