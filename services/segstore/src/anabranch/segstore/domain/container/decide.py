"""The decisions of a container about requests, from values alone.

Every function takes the state of one segment *including pending operations*. It returns the
operation to log, or `NoChange` or `Duplicate` if there is none to log, or raises the rejection.

    control request's stamp against the highest one seen
        lower            StaleRequest
        equal            a repeat: done (but an unsealed segment is still sealed)
        higher           performed, and remembered as the highest

    append, attributes: first event (request) number against the writer's last stored one
        all ≤ last       Duplicate
        first ≤ last     PartialDuplicate(last)
        first = last + 1 accepted
        first > last + 1 EventGap(last), or WriterExpired when the writer is unknown

Conditions (an expected length, the values of attributes) are checked only after the number shows
that the request is the next one: a repeat is recognized even if its conditions no longer hold.

`merge.py` decides merges, which involve several segments, `transient.py` the creation of transient
segments.
"""

from dataclasses import dataclass

from crc32c import crc32c

from anabranch.common.errors import (
    EventGap,
    EventTooLarge,
    InvalidName,
    InvalidRequest,
    NotAtBoundary,
    OffsetMismatch,
    OutcomeUnknown,
    PartialDuplicate,
    SegmentExists,
    SegmentMerged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    StaleRequest,
    WriterExpired,
)
from anabranch.common.model.names import (
    SegmentKind,
    parse_segment_name,
    segment_kind,
    segment_name,
    transaction_segment,
    transient_parent,
)
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.block import BLOCK_SIZE_BYTES_MAX, FLAG_PARTS_BEFORE, events_in
from anabranch.common.wire.messages import (
    NO_DECISION,
    Append,
    AppendLarge,
    AppendOnce,
    ConditionalAppend,
    Stamp,
    TruncateSegment,
    UpdateAttributes,
)
from anabranch.common.wire.whole_block import check_one_block, events_numbered
from anabranch.segstore.domain.container.attributes import AttributeChange, change_attributes
from anabranch.segstore.domain.container.operations import (
    WRITER_ID_SIZE_BYTES,
    AppendOperation,
    AttributesOperation,
    CreateOperation,
    DeleteOperation,
    SealOperation,
    TruncateOperation,
)

SEGMENT_NAME_SIZE_BYTES_MAX = 1024
LENGTH_BYTES_MAX = 2**62
STAMP_MAX = 2**63

Known = SegmentState | Tombstone | None
"""The container's state of a name: a segment, a tombstone or nothing."""


@dataclass(frozen=True, slots=True)
class NoChange:
    """The request is a repeat; no operation is logged."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The events of the append, or the request of the client, are already stored."""


NO_CHANGE = NoChange()
DUPLICATE = Duplicate()


def decide_create(
    known: Known, segment: str, stamp: Stamp, now_ms: int
) -> CreateOperation | NoChange:
    """Raises InvalidName, InvalidRequest, StaleRequest, SegmentExists (created at a lower
    stamp)."""
    check_segment_name(segment)
    kind = segment_kind(segment)
    check_stamp(kind, segment, stamp)
    if kind is SegmentKind.TRANSIENT:
        raise InvalidName("only the store creates transient segments", segment=segment)
    if isinstance(known, Tombstone) and stamp <= known.stamp:
        raise _stale(segment, stamp, known.stamp)
    if isinstance(known, SegmentState):
        if stamp < known.stamp:
            raise _stale(segment, stamp, known.stamp)
        if stamp > known.stamp:
            raise SegmentExists("the segment already exists", segment=segment)
        return NO_CHANGE
    return CreateOperation(segment, stamp, now_ms, kind)


def decide_seal(known: Known, segment: str, stamp: Stamp, now_ms: int) -> SealOperation | NoChange:
    """Raises InvalidRequest, StaleRequest, SegmentNotFound."""
    check_stamp(kind_of(known, segment), segment, stamp)
    check_not_stale(known, segment, stamp)
    if not isinstance(known, SegmentState):
        raise gone(known, segment)
    if known.sealed and stamp == known.stamp:
        return NO_CHANGE
    return SealOperation(segment, stamp, now_ms)


def decide_delete(
    known: Known, segment: str, stamp: Stamp, now_ms: int
) -> DeleteOperation | NoChange:
    """Deletes an unknown segment too, so that its tombstone prevents a later creation.

    An unknown transient segment needs no tombstone, because no such name is used twice. Raises
    InvalidName, InvalidRequest, StaleRequest.
    """
    check_segment_name(segment)
    kind = kind_of(known, segment)
    check_stamp(kind, segment, stamp)
    check_not_stale(known, segment, stamp)
    if known is None and kind is SegmentKind.TRANSIENT:
        return NO_CHANGE
    if isinstance(known, Tombstone) and stamp == known.stamp:
        return NO_CHANGE
    return DeleteOperation(segment, stamp, now_ms)


def decide_truncate(
    known: Known, request: TruncateSegment, lower: int, now_ms: int, event_count: int = -1
) -> TruncateOperation | NoChange:
    """`lower` is the nearest known append boundary at or below the offset, and `event_count` the
    number of events before the offset, -1 if it is not known.

    The start never decreases; sealed segments may be truncated too. Raises InvalidRequest,
    StaleRequest, SegmentNotFound, NotAtBoundary.
    """
    segment, stamp, offset = request.segment, request.stamp, request.offset
    check_stamp(kind_of(known, segment), segment, stamp)
    check_not_stale(known, segment, stamp)
    if not isinstance(known, SegmentState):
        raise gone(known, segment)
    if known.kind is SegmentKind.TABLE:
        raise InvalidRequest(
            "only compaction truncates a table segment", segment=segment, offset=offset
        )
    if offset > known.length:
        raise InvalidRequest(
            "the offset lies beyond the segment's end", offset=offset, length=known.length
        )
    if offset <= known.start:
        if stamp == known.stamp:
            return NO_CHANGE
        return TruncateOperation(segment, stamp, now_ms, known.start)
    if lower != offset:
        raise NotAtBoundary(
            "the offset is not an append boundary",
            segment=segment, offset=offset, lower=lower,
        )  # fmt: skip
    return TruncateOperation(segment, stamp, now_ms, offset, event_count)


def decide_attributes(
    known: Known, last: int, request: UpdateAttributes, now_ms: int
) -> AttributesOperation | Duplicate:
    """`last` is the client's last stored number in this segment, 0 if it is unknown.

    Works on sealed segments too. The stamp `NO_DECISION` is not compared. Raises InvalidRequest,
    StaleRequest, SegmentNotFound, EventGap, WriterExpired, and the errors of `change_attributes`.
    """
    check_stamp(kind_of(known, request.segment), request.segment, request.stamp)
    if request.stamp != NO_DECISION:
        check_not_stale(known, request.segment, request.stamp)
    if not isinstance(known, SegmentState):
        raise gone(known, request.segment)
    number = request.request_number
    if len(request.client_id) != WRITER_ID_SIZE_BYTES or not 0 < number < STAMP_MAX:
        raise InvalidRequest(
            "a client id has 16 bytes, and its requests are numbered from 1",
            size=len(request.client_id), number=number,
        )  # fmt: skip
    if number <= last:
        return DUPLICATE
    _check_no_gap(request.segment, number, last)
    changes = change_attributes(known.attributes, request.updates)
    return AttributesOperation(
        request.segment, request.stamp, now_ms, request.client_id, number, changes
    )


def decide_setup(known: Known, segment: str, writer_id: bytes) -> SegmentState:
    """The segment to append to, sealed or not.

    From a sealed segment the writer learns which events to resend to the successors. Raises
    InvalidRequest, SegmentNotFound, OutcomeUnknown (deleted: events in flight may have been stored
    before).
    """
    if len(writer_id) != WRITER_ID_SIZE_BYTES:
        raise InvalidRequest("a writer id has 16 bytes", size=len(writer_id))
    if isinstance(known, Tombstone):
        raise OutcomeUnknown(
            "the segment was deleted; appends in flight may have been stored before",
            segment=segment,
        )
    if known is None:
        raise not_found(segment)
    if known.kind is SegmentKind.TABLE:
        raise InvalidRequest(
            "a table segment takes no appends, but updates of its entries",
            remedy="use the table: its updates go to its partitions", segment=segment,
        )  # fmt: skip
    return known


def decide_read(known: Known, segment: str, offset: int) -> SegmentState:
    """The segment to read from at `offset`. Raises SegmentNotFound, SegmentTruncated,
    InvalidRequest."""
    if not isinstance(known, SegmentState):
        raise gone(known, segment)
    if offset < known.start:
        raise SegmentTruncated(
            "the offset lies before the segment's start", segment=segment, start=known.start
        )
    if offset > known.length:
        raise InvalidRequest(
            "the offset lies beyond the segment's end", offset=offset, length=known.length
        )
    return known


def decide_append(
    state: SegmentState,
    last: int,
    writer_id: bytes,
    request: Append | AppendOnce,
    payload: bytes,
    *,
    now_ms: int,
) -> AppendOperation | Duplicate:
    """`last` is the writer's last stored event number in this segment, 0 if it is unknown.

    Raises SegmentSealed, PartialDuplicate, EventGap, WriterExpired, and the errors of
    `check_append`; a conditional append also raises OffsetMismatch and the errors of
    `change_attributes`.
    """
    check_append(writer_id, request, payload)
    first = request.first_event_number
    end = first + request.count - 1
    if end <= last:
        return DUPLICATE
    if state.sealed:
        raise SegmentSealed("the segment is sealed", segment=state.name, length=state.length)
    if first <= last:
        raise PartialDuplicate(
            "a part of the block is already stored",
            segment=state.name,
            last=last,
        )
    _check_no_gap(state.name, first, last)
    if state.length + len(payload) > LENGTH_BYTES_MAX:
        raise InvalidRequest("the segment is full", segment=state.name, length=state.length)
    changes = _conditions(state, request) if isinstance(request, ConditionalAppend) else ()
    return AppendOperation(
        state.number, state.length, writer_id, first, request.count, now_ms,
        crc32c(payload), payload, events_in(payload, request.count), changes,
    )  # fmt: skip


def _conditions(state: SegmentState, request: ConditionalAppend) -> tuple[AttributeChange, ...]:
    if request.expected_length not in (None, state.length):
        raise OffsetMismatch(
            "the segment's length differs from the expected one",
            segment=state.name, expected=request.expected_length, length=state.length,
        )  # fmt: skip
    return change_attributes(state.attributes, request.updates)


def _check_no_gap(segment: str, first: int, last: int) -> None:
    if first <= last + 1:
        return
    if last == 0:
        raise WriterExpired(
            "the writer is unknown to the segment and does not start at event number 1",
            segment=segment,
            first=first,
        )
    raise EventGap("events are missing before the block", segment=segment, last=last)


def check_append(writer_id: bytes, request: Append | AppendOnce, payload: bytes) -> None:
    """Check that the request agrees with itself and with its block.

    Raises InvalidRequest, EventTooLarge, MalformedBlock, CorruptBlock, FormatTooNew.
    """
    if not payload or request.count < 1 or request.first_event_number < 1:
        raise InvalidRequest(
            "an append needs bytes and at least one event, numbered from 1",
            size=len(payload),
            count=request.count,
            first=request.first_event_number,
        )
    if request.count > len(payload) and not request.is_block:
        raise InvalidRequest("an append claims more events than it has bytes", count=request.count)
    if len(payload) > BLOCK_SIZE_BYTES_MAX:
        raise EventTooLarge(
            "the append is over the limit",
            remedy="send smaller blocks; an event may have 8 MiB",
            size=len(payload),
            limit=BLOCK_SIZE_BYTES_MAX,
        )
    if request.is_block:
        _check_block(writer_id, request, payload)


def _check_block(writer_id: bytes, request: Append | AppendOnce, payload: bytes) -> None:
    header = check_one_block(payload)
    if isinstance(request, AppendLarge) != bool(header.flags & FLAG_PARTS_BEFORE):
        raise InvalidRequest(
            "a reference to the parts before it is stored together with these parts",
            remedy="name the transient segment of the parts in the append of the reference",
            first=request.first_event_number,
        )
    count = events_numbered(header)
    agrees = (
        count == request.count
        and header.first_event_number == request.first_event_number
        and header.writer_id == writer_id
    )
    if not agrees:
        raise InvalidRequest(
            "the block and the request disagree on writer or event numbers",
            count=request.count,
            block_count=count,
            first=request.first_event_number,
            block_first=header.first_event_number,
        )


def check_segment_name(segment: str) -> None:
    """Check that the name has the form that `segment_name` gives: a segment has only one name.

    The parent of a transaction segment is an ordinary segment, and that of a transient segment is
    either. Raises InvalidName.
    """
    if len(segment) > SEGMENT_NAME_SIZE_BYTES_MAX:
        raise InvalidName("the segment's name is too long", limit=SEGMENT_NAME_SIZE_BYTES_MAX)
    base = transient_parent(segment) or segment
    of_transaction = transaction_segment(base)
    base = of_transaction.parent if of_transaction else base
    if segment_name(*parse_segment_name(base)) != base:
        raise InvalidName(
            "a segment's name is not in its canonical form",
            remedy="write it as scope/stream/number.#epoch.number, without leading zeros",
            name=segment,
        )


def kind_of(known: Known, segment: str) -> SegmentKind:
    """The kind of a segment; if the segment is not alive, its name gives the kind."""
    return known.kind if isinstance(known, SegmentState) else segment_kind(segment)


def check_stamp(kind: SegmentKind, segment: str, stamp: Stamp) -> None:
    """Raises InvalidRequest for numbers that the log cannot hold, and for a decision's stamp on
    a transient segment, which would then outlive its connection."""
    if stamp != NO_DECISION and kind is SegmentKind.TRANSIENT:
        raise InvalidRequest(
            "a request about a transient segment carries a decision's stamp",
            remedy="send the stamp (0, 0)",
            segment=segment,
        )
    if not (0 <= stamp.incarnation < STAMP_MAX and 0 <= stamp.revision < STAMP_MAX):
        raise InvalidRequest(
            "a stamp's numbers are out of range",
            incarnation=stamp.incarnation,
            revision=stamp.revision,
        )


def check_not_stale(known: Known, segment: str, stamp: Stamp) -> None:
    """Raises StaleRequest if a request with a higher stamp was performed under the name."""
    if known is not None and stamp < known.stamp:
        raise _stale(segment, stamp, known.stamp)


def gone(known: Known, segment: str) -> SegmentNotFound:
    """The refusal of a request about a segment that is not alive."""
    if not isinstance(known, Tombstone) or known.merged is None:
        return not_found(segment)
    merged = known.merged
    return SegmentMerged(
        "the segment was merged into another",
        segment=segment, target=merged.target, offset=merged.offset, length=merged.length,
    )  # fmt: skip


def not_found(segment: str) -> SegmentNotFound:
    """The refusal of a request about a segment that does not exist."""
    return SegmentNotFound("the segment does not exist", segment=segment)


def _stale(segment: str, stamp: Stamp, seen: Stamp) -> StaleRequest:
    return StaleRequest(
        "a newer decision about the segment exists",
        segment=segment,
        incarnation=stamp.incarnation,
        revision=stamp.revision,
        seen_incarnation=seen.incarnation,
        seen_revision=seen.revision,
    )
