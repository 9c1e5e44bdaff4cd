"""The answers of a container to requests that change a table segment: rows of `VERBS`.

`CompactTable` and `TruncateTable` come from the store itself, never over a wire.
"""

from collections.abc import Iterable

from anabranch.common.errors import CorruptBlock, InvalidRequest, OutcomeUnknown, SegmentSealed
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import events_in, parse_header
from anabranch.common.wire.messages import (
    REQUESTS_REMEMBERED,
    Done,
    Request,
    TableUpdated,
    UpdateTable,
)
from anabranch.common.wire.table import (
    UPDATE_ENTRIES_MAX,
    UPDATE_SIZE_BYTES_MAX,
    TableBlock,
    check_sizes,
    kept_entries,
    parse_table_block,
    placed,
    stamped,
)
from anabranch.common.wire.table_columns import ABSENT, encode_refusals
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances, InIndex
from anabranch.segstore.domain.container.decide import (
    DUPLICATE,
    LENGTH_BYTES_MAX,
    NO_CHANGE,
    STAMP_MAX,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    WRITER_ID_SIZE_BYTES,
    AppendOperation,
    TruncateOperation,
)
from anabranch.segstore.domain.table.decide import Terms, decide_units, time_in, version_of
from anabranch.segstore.domain.table.tail import (
    NO_ENTRY,
    Findings,
    Outcome,
    TableTail,
    TailEntry,
    change_of,
)

COMPACTOR = b"\0" * WRITER_ID_SIZE_BYTES
"""The client id of copies."""


class CompactTable(Request, frozen=True, kw_only=True):
    """Append those of the copies in the payload (a table block) whose versions are still the
    present ones. → Done. `segment_number`: the segment that was examined."""

    segment_number: int


class TruncateTable(Request, frozen=True, kw_only=True):
    """Give up all bytes before `offset`, a boundary of blocks: every entry in them that is still
    present was copied behind it before. → Done."""

    segment_number: int
    offset: int


def answer_update_table(
    state: SegmentMap, request: UpdateTable, around: Circumstances
) -> Answer | InIndex:
    """→ TableUpdated. Raises InvalidRequest, BadPacket, SegmentNotFound, SegmentSealed,
    OutcomeUnknown, and the errors of `parse_table_block`."""
    known = _table(state, request.segment)
    block = around.given.block or _parse(request, around.given.payload)
    terms = Terms(block, request.conditions, request.units)
    tail = state.tables[known.number]
    keys = _only_in_index(tail, terms.keys_to_find(block))
    findings = _valid(tail, known, around.given.findings, keys)
    last = state.last_event_number(known.number, request.client_id)
    is_old = request.request_number <= last - REQUESTS_REMEMBERED
    if is_old and around.given.findings is None:  # not one that grew old while it waited
        raise _forgotten(request, last)
    new_since = _new_since(known, request, last, around.given.findings)
    told = tail.outcome(request.client_id, request.request_number)
    if told is None and new_since < tail.kept_from and findings is not None:
        told = findings.requests.get(request.request_number)
        if told is None and (is_old or new_since < findings.complete_from):
            raise _forgotten(request, last)
    if told is not None:
        return Answer(DUPLICATE, _updated(known.number, told, terms))
    if findings is None and (keys or new_since < tail.kept_from):
        return InIndex(known.number, tail.kept_from, new_since, keys, request.client_id, block)
    if known.sealed:
        raise SegmentSealed("the segment is sealed", segment=known.name, length=known.length)
    now_ms = time_in(known, around.now_ms)

    def present(key: bytes) -> int:
        return version_of(_latest(tail, findings, key), now_ms)

    kept, refusals = decide_units(
        block, terms, known.length, present,
        same_life=request.segment_number == known.number,
    )  # fmt: skip
    payload = around.given.payload
    if refusals:
        payload = kept_entries(payload, kept, refusals)
        block = parse_table_block(payload, known.length)
    operation = _append(known, stamped(payload, now_ms), placed(block, known.length, now_ms))
    return Answer(operation, _updated(known.number, Outcome(known.length, refusals), terms))


def answer_compact(
    state: SegmentMap, request: CompactTable, around: Circumstances
) -> Answer | InIndex:
    """→ Done. Raises SegmentNotFound, SegmentSealed."""
    known = _table(state, request.segment)
    if known.number != request.segment_number:
        raise gone(None, request.segment)
    if known.sealed:
        raise SegmentSealed("the segment is sealed", segment=known.name, length=known.length)
    payload = around.given.payload
    block = around.given.block or parse_table_block(payload, 0)
    assert block.copies, "compaction writes nothing but copies"
    tail = state.tables[known.number]
    keys = _only_in_index(tail, block.keys)
    findings = _valid(tail, known, around.given.findings, keys)
    if keys and findings is None:
        return InIndex(known.number, tail.kept_from, known.length, keys, COMPACTOR, block)
    kept = [
        entry
        for entry, (key, version) in enumerate(zip(block.keys, block.versions, strict=True))
        if _is_present(_latest(tail, findings, key), version)
    ]
    if not kept:
        return Answer(NO_CHANGE, Done())
    payload = stamped(kept_entries(payload, kept, ()), time_in(known, around.now_ms))
    return Answer(_append(known, payload, parse_table_block(payload, known.length)), Done())


def answer_truncate_table(
    state: SegmentMap, request: TruncateTable, around: Circumstances
) -> Answer:
    """→ Done. Raises SegmentNotFound."""
    known = _table(state, request.segment)
    if known.number != request.segment_number:
        raise gone(None, request.segment)
    assert request.offset <= known.length, "the window lies within the segment"
    if request.offset <= known.start:
        return Answer(NO_CHANGE, Done())
    operation = TruncateOperation(request.segment, known.stamp, around.now_ms, request.offset)
    return Answer(operation, Done())


def _table(state: SegmentMap, segment: str) -> SegmentState:
    known = state.known(segment)
    if not isinstance(known, SegmentState):
        raise gone(known, segment)
    if known.kind is not SegmentKind.TABLE:
        raise InvalidRequest("the segment is not a table segment", segment=segment)
    return known


def _parse(request: UpdateTable, payload: bytes) -> TableBlock:
    if len(payload) > UPDATE_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "an update is over the limit", size=len(payload), limit=UPDATE_SIZE_BYTES_MAX
        )
    header, block = parse_header(payload), parse_table_block(payload, 0)
    if header.size != len(payload):
        raise CorruptBlock(
            "the payload of an update is not exactly one block",
            size=len(payload), block=header.size,
        )  # fmt: skip
    if not block.keys or len(block.keys) > UPDATE_ENTRIES_MAX:
        raise InvalidRequest(
            "an update has no entry or too many", entries=len(block.keys), limit=UPDATE_ENTRIES_MAX
        )
    check_sizes(block)
    # Copies, refusals and the time are the store's.
    foreign = block.copies or header.event_count > len(block.keys) or block.time_ms
    agrees = (block.client_id, block.request_number) == (request.client_id, request.request_number)
    if foreign or not agrees or request.client_id == COMPACTOR:
        raise InvalidRequest("the block and the request disagree", request=request.request_number)
    if len(request.client_id) != WRITER_ID_SIZE_BYTES or not 0 < request.request_number < STAMP_MAX:
        raise InvalidRequest("a client id has 16 bytes, and its requests are numbered from 1")
    return block


def _new_since(
    known: SegmentState, request: UpdateTable, last: int, findings: Findings | None
) -> int:
    """The offset from which on blocks may be of the request. Its earlier asking, if it waited for
    `findings`, may have known more than this one."""
    if request.request_number > last:
        return known.length
    return findings.new_since if findings is not None and findings.number == known.number else 0


def _forgotten(request: UpdateTable, last: int) -> OutcomeUnknown:
    return OutcomeUnknown(
        "the store no longer remembers whether it performed the update",
        segment=request.segment, request=request.request_number, last=last,
    )  # fmt: skip


def _only_in_index(tail: TableTail, keys: Iterable[bytes]) -> frozenset[bytes]:
    """The keys of which the tail knows nothing, although the index may."""
    if not tail.kept_from:
        return frozenset()
    # The difference of a set and `dict.keys()` would look at every key of the tail.
    return frozenset(key for key in keys if key not in tail)


def _valid(
    tail: TableTail, known: SegmentState, findings: Findings | None, keys: frozenset[bytes]
) -> Findings | None:
    """The findings, if they include everything that the tail has dropped, and all the keys."""
    if findings is None or findings.number != known.number:
        return None
    complete = findings.as_of >= tail.kept_from and keys <= findings.entries.keys()
    return findings if complete else None


def _latest(tail: TableTail, findings: Findings | None, key: bytes) -> TailEntry:
    entry = tail.latest(key)
    if entry is None and findings is not None:
        entry = findings.entries.get(key)
    return entry or NO_ENTRY


def _is_present(entry: TailEntry, version: int) -> bool:
    return entry.value is not None and entry.version == version


def _append(known: SegmentState, payload: bytes, block: TableBlock) -> AppendOperation:
    """Raises InvalidRequest if the segment is full."""
    if known.length + len(payload) > LENGTH_BYTES_MAX:
        raise InvalidRequest("the segment is full", segment=known.name, length=known.length)
    change = change_of(block, known.length, payload)
    return AppendOperation(
        known.number, known.length, block.client_id, block.request_number, 1, block.time_ms,
        change.crc, payload, events_in(payload, 1), change=change,
    )  # fmt: skip


def _updated(number: int, outcome: Outcome, terms: Terms) -> TableUpdated:
    all_refused = len(outcome.refusals) == len(terms.units)
    return TableUpdated(
        segment_number=number,
        version=ABSENT if all_refused else outcome.version,
        refused=encode_refusals(outcome.refusals),
    )
