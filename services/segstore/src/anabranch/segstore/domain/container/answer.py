"""The answers of a container, by request: one function and one row of `VERBS` for each.

    ask(request) ──► VERBS[type(request)] ──► answer(state, request, circumstances)
                                                 ├──► Answer(operation or nothing, reply)
                                                 ├──► Elsewhere: look there, then ask again
                                                 └──► raises the rejection

Each function receives the map of segments that the row's `sees` selects, and changes nothing. A new
verb is a message, a function and a row. Appends in a session and reads are not verbs: they have
separate paths, which build no object per request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar, cast

from anabranch.common.contracts.segment_requests import MERGE_SOURCES_MAX
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.messages import (
    Appended,
    AppendOnce,
    AppendTogether,
    AttributeValue,
    AttributeValues,
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    CreateTransient,
    DeleteSegment,
    Done,
    EventLocated,
    GetAttributes,
    GetLengths,
    GetSegmentInfo,
    LocateEvent,
    LocateOffset,
    LocateTime,
    MergeBatch,
    MergeSegments,
    OffsetLocated,
    Request,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentsMerged,
    Truncated,
    TruncateSegment,
    UpdateAttributes,
    UpdateTable,
)
from anabranch.common.wire.requests import GROUP_SEGMENTS_MAX, LENGTHS_SEGMENTS_MAX
from anabranch.segstore.domain.container.attributes import ATTRIBUTES_MAX
from anabranch.segstore.domain.container.batch import answer_merge_batch
from anabranch.segstore.domain.container.circumstances import (
    Answer,
    Circumstances,
    Elsewhere,
    EventsInTierTwo,
    InTierTwo,
    TimesInTierTwo,
    Whereabouts,
)
from anabranch.segstore.domain.container.decide import (
    NO_CHANGE,
    Duplicate,
    decide_append,
    decide_attributes,
    decide_create,
    decide_delete,
    decide_read,
    decide_seal,
    decide_setup,
    decide_truncate,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.group import answer_append_together, answer_lengths
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.transient import answer_create_transient
from anabranch.segstore.domain.table.answer import (
    CompactTable,
    TruncateTable,
    answer_compact,
    answer_truncate_table,
    answer_update_table,
)


def answer_create(state: SegmentMap, request: CreateSegment, around: Circumstances) -> Answer:
    """→ Done. Raises the errors of `decide_create`."""
    known = state.known(request.segment)
    return Answer(decide_create(known, request.segment, request.stamp, around.now_ms), Done())


def answer_seal(state: SegmentMap, request: SealSegment, around: Circumstances) -> Answer:
    """→ Sealed. Raises the errors of `decide_seal`."""
    known = state.known(request.segment)
    decision = decide_seal(known, request.segment, request.stamp, around.now_ms)
    assert isinstance(known, SegmentState)
    return Answer(decision, Sealed(length=known.length))


def answer_delete(state: SegmentMap, request: DeleteSegment, around: Circumstances) -> Answer:
    """→ Done. Raises the errors of `decide_delete`."""
    known = state.known(request.segment)
    return Answer(decide_delete(known, request.segment, request.stamp, around.now_ms), Done())


def answer_truncate(
    state: SegmentMap, request: TruncateSegment, around: Circumstances
) -> Answer | InTierTwo:
    """→ Truncated. Raises the errors of `decide_truncate` and `boundary_before`."""
    known = state.known(request.segment)
    lower = around.boundary_before(known, request.offset)
    if isinstance(lower, InTierTwo):
        return lower
    event_count = -1
    if TOPIC_MARK in request.segment:
        event_count = around.events_before(known, request.offset)
    decision = decide_truncate(known, request, lower, around.now_ms, event_count)
    assert isinstance(known, SegmentState)
    return Answer(decision, Truncated(start=max(known.start, request.offset)))


def answer_check(
    state: SegmentMap, request: CheckTruncation, around: Circumstances
) -> Answer | InTierTwo:
    """→ Truncated, like `answer_truncate`, but a check logs nothing."""
    found = answer_truncate(state, request, around)
    return found if isinstance(found, InTierTwo) else Answer(NO_CHANGE, found.message)


def answer_merge(state: SegmentMap, request: MergeSegments, around: Circumstances) -> Answer:
    """→ SegmentsMerged. Raises the errors of `decide_merge`."""
    decided = decide_merge(
        state.known, request.segment, request.sources, request.stamp, around.now_ms
    )
    return Answer(decided.operation or NO_CHANGE, SegmentsMerged(merged=decided.merged))


def answer_update(state: SegmentMap, request: UpdateAttributes, around: Circumstances) -> Answer:
    """→ Done. Raises the errors of `decide_attributes`."""
    known = state.known(request.segment)
    number = known.number if isinstance(known, SegmentState) else 0
    last = state.last_event_number(number, request.client_id)
    decision = decide_attributes(known, last, request, around.now_ms)
    return Answer(NO_CHANGE if isinstance(decision, Duplicate) else decision, Done())


def answer_append_once(state: SegmentMap, request: AppendOnce, around: Circumstances) -> Answer:
    """→ Appended. Needs no session and ends none. Raises the errors of `decide_setup` and
    `decide_append`.
    """
    payload, writer_id = around.given.payload, request.writer_id
    known = decide_setup(state.known(request.segment), request.segment, writer_id)
    last = state.last_event_number(known.number, writer_id)
    decision = decide_append(known, last, writer_id, request, payload, now_ms=around.now_ms)
    last = request.first_event_number + request.count - 1
    length, event_count = known.length, -1
    if not isinstance(decision, Duplicate):
        length, event_count = length + len(payload), known.event_count + decision.event_count
    message = Appended(session=0, last_event_number=last, length=length, event_count=event_count)
    return Answer(decision, message)


def answer_attributes(state: SegmentMap, request: GetAttributes, _: Circumstances) -> Answer:
    """→ AttributeValues. Raises SegmentNotFound, InvalidRequest."""
    known = state.known(request.segment)
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    if len(request.attributes) > ATTRIBUTES_MAX:
        raise InvalidRequest(
            "the request names too many attributes",
            attributes=len(request.attributes), limit=ATTRIBUTES_MAX,
        )  # fmt: skip
    found = known.attributes
    ids = set(request.attributes or found) & found.keys()
    values = tuple(AttributeValue(attribute, found[attribute]) for attribute in sorted(ids))
    return Answer(NO_CHANGE, AttributeValues(values=values))


def answer_info(state: SegmentMap, request: GetSegmentInfo, around: Circumstances) -> Answer:
    """→ SegmentInfo. Raises SegmentNotFound."""
    known = state.known(request.segment)
    if isinstance(known, Tombstone) and request.even_gone:
        return Answer(NO_CHANGE, _gone_info(known, around.whereabouts(0)))
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    found = around.whereabouts(known.number)
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
        start_event_count=known.start_event_count,
    )
    return Answer(NO_CHANGE, info)


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


def answer_locate(
    state: SegmentMap, request: LocateOffset, around: Circumstances
) -> Answer | InTierTwo:
    """→ OffsetLocated. Raises the errors of `decide_read` and `boundary_after`."""
    known = decide_read(state.known(request.segment), request.segment, request.offset)
    higher = around.boundary_after(known, request.offset)
    if isinstance(higher, InTierTwo):
        return higher
    return Answer(NO_CHANGE, OffsetLocated(offset=higher))


def answer_locate_time(
    state: SegmentMap, request: LocateTime, around: Circumstances
) -> Answer | TimesInTierTwo:
    """→ OffsetLocated. Raises SegmentNotFound, and the errors of `boundary_at_time`."""
    known = state.known(request.segment)
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    found = around.boundary_at_time(known, request.time_ms)
    if isinstance(found, TimesInTierTwo):
        return found
    return Answer(NO_CHANGE, OffsetLocated(offset=found))


def answer_locate_event(
    state: SegmentMap, request: LocateEvent, around: Circumstances
) -> Answer | EventsInTierTwo:
    """→ EventLocated. Raises SegmentNotFound, InvalidRequest, and the errors of
    `boundary_at_event`."""
    known = state.known(request.segment)
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    if request.event_index < 0:
        raise InvalidRequest("events are numbered from 0", event_index=request.event_index)
    found = around.boundary_at_event(known, request.event_index)
    if isinstance(found, EventsInTierTwo):
        return found
    return Answer(NO_CHANGE, EventLocated(offset=found.offset, event_index=found.event_count))


# --- the table ------------------------------------------------------------------------------------


class Sees(Enum):
    """The state of the segments from which a verb is answered."""

    PENDING = auto()
    """All accepted operations: the verb may change segments."""
    PENDING_WHILE_ROOM = auto()
    """All accepted operations, but only durable ones while the journal's disk is full or too few
    replicas are in sync, so that queries are still answered. Both states include everything that
    was acknowledged."""
    DURABLE = auto()
    """The durable operations; the answer leaves at once."""


R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class Verb(Generic[R]):
    """The answering of one kind of request.

    `title` names it in traces. `names` returns the segments that the request names, which must be
    resident and in one container.
    """

    title: str
    answer: Callable[[SegmentMap, R, Circumstances], Answer | Elsewhere]
    sees: Sees
    names: Callable[[R], tuple[str, ...]]


def _only_its_own(request: Request) -> tuple[str, ...]:
    return (request.segment,)


# A request that names more segments than its limit is refused before any of them is examined.


def _with_sources(request: MergeSegments) -> tuple[str, ...]:
    return (request.segment, *request.sources[:MERGE_SOURCES_MAX])


def _with_parts(request: MergeBatch) -> tuple[str, ...]:
    names = (part for part in request.parts[:MERGE_SOURCES_MAX] if isinstance(part, str))
    return (request.segment, *names)


def _with_places(request: AppendTogether) -> tuple[str, ...]:
    places = request.places[:GROUP_SEGMENTS_MAX]
    return (request.segment, *(place.segment for place in places))


def _with_others(request: GetLengths) -> tuple[str, ...]:
    return (request.segment, *request.names[:LENGTHS_SEGMENTS_MAX])


def _row(
    request: type[R],
    title: str,
    answer: Callable[[SegmentMap, R, Circumstances], Answer | Elsewhere],
    sees: Sees = Sees.PENDING,
    names: Callable[[R], tuple[str, ...]] = _only_its_own,
) -> tuple[type[Request], Verb[Request]]:
    return request, cast("Verb[Request]", Verb(title, answer, sees, names))


VERBS: Mapping[type[Request], Verb[Request]] = dict(
    (
        _row(CreateSegment, "create segment", answer_create),
        _row(CreateTransient, "create transient segment", answer_create_transient),
        _row(SealSegment, "seal segment", answer_seal),
        _row(DeleteSegment, "delete segment", answer_delete),
        _row(TruncateSegment, "truncate segment", answer_truncate),
        _row(CheckTruncation, "check truncation", answer_check),
        _row(MergeSegments, "merge segments", answer_merge, names=_with_sources),
        _row(MergeBatch, "merge batch", answer_merge_batch, names=_with_parts),
        _row(UpdateAttributes, "update attributes", answer_update),
        _row(AppendOnce, "append", answer_append_once),
        _row(ConditionalAppend, "append", answer_append_once),
        _row(AppendTogether, "append together", answer_append_together, names=_with_places),
        _row(GetAttributes, "attributes", answer_attributes, Sees.PENDING_WHILE_ROOM),
        _row(GetSegmentInfo, "segment info", answer_info, Sees.PENDING_WHILE_ROOM),
        _row(
            GetLengths, "lengths", answer_lengths, Sees.PENDING_WHILE_ROOM, names=_with_others
        ),
        _row(LocateOffset, "locate offset", answer_locate, Sees.DURABLE),
        _row(LocateTime, "locate time", answer_locate_time, Sees.DURABLE),
        _row(LocateEvent, "locate event", answer_locate_event, Sees.DURABLE),
        _row(UpdateTable, "update table", answer_update_table),
        _row(CompactTable, "compact table", answer_compact),
        _row(TruncateTable, "truncate table", answer_truncate_table),
    )
)  # fmt: skip
