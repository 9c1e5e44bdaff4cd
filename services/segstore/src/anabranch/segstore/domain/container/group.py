"""Several segments of one container in one request: groups of appends (ADR 18), and lengths.

A group is decided as a whole, against one state:

    blocks                                answer
        all stored                        a repeat: acknowledged
        none stored, none refused         the appends of all blocks, for one frame of the log
        none stored, some refused         the first refusal
        some stored, some deleted         OutcomeUnknown: the deleted segments may have had theirs
        some stored, others not           PartialDuplicate

A sealed segment still acknowledges its block if it has it, so a repeat of a group that was stored
before the seal is a repeat. Only one request can find some blocks stored and others not: a late
copy of a group that was refused for a seal, and then stored in another form. The segments that both
forms share know its numbers, and the sealed one refuses. Nobody waits for that answer.
"""

from collections.abc import Iterator

from anabranch.common.errors import AnabranchError, InvalidRequest, OutcomeUnknown, PartialDuplicate
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendOnce,
    AppendTogether,
    BlockPlace,
    GetLengths,
    Lengths,
)
from anabranch.common.wire.requests import (
    GROUP_SEGMENTS_MAX,
    GROUP_SIZE_BYTES_MAX,
    LENGTHS_SEGMENTS_MAX,
)
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances, Group
from anabranch.segstore.domain.container.decide import (
    DUPLICATE,
    NO_CHANGE,
    Duplicate,
    decide_append,
    decide_setup,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import AppendOperation


def answer_append_together(
    state: SegmentMap, request: AppendTogether, around: Circumstances
) -> Answer:
    """→ AppendedTogether. Raises InvalidRequest, PartialDuplicate, OutcomeUnknown, and the errors
    of `decide_setup` and `decide_append`, without an operation for any block.
    """
    payload = around.given.payload
    _check_places(request, len(payload))
    appends: list[AppendOperation] = []
    refusals: list[AnabranchError] = []
    stored = 0
    for place, block in _blocks(request.places, payload):
        try:
            decision = _decide(state, request.writer_id, place, block, around.now_ms)
        except AnabranchError as error:
            refusals.append(error)
            continue
        if isinstance(decision, Duplicate):
            stored += 1
        else:
            appends.append(decision)
    if stored == len(request.places):
        return Answer(DUPLICATE, AppendedTogether())
    if stored:
        raise _divided(request, stored, refusals)
    if refusals:
        raise refusals[0]
    return Answer(Group(tuple(appends)), AppendedTogether())


def _check_places(request: AppendTogether, size: int) -> None:
    places = request.places
    if not 1 <= len(places) <= GROUP_SEGMENTS_MAX:
        raise InvalidRequest(
            "a group has blocks for one segment or several, up to a limit",
            remedy="write the events in a transaction that is begun",
            segments=len(places), limit=GROUP_SEGMENTS_MAX,
        )  # fmt: skip
    if size > GROUP_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "the group is over the limit",
            remedy="write the events in a transaction that is begun",
            size=size, limit=GROUP_SIZE_BYTES_MAX,
        )  # fmt: skip
    named = {place.segment for place in places}
    if len(named) < len(places) or places[0].segment != request.segment:
        raise InvalidRequest(
            "a group names each segment once, and the request's segment first",
            segment=request.segment, places=len(places), segments=len(named),
        )  # fmt: skip
    if any(place.size < 1 for place in places) or sum(place.size for place in places) != size:
        raise InvalidRequest(
            "the sizes of the group's blocks do not add up to the payload",
            blocks=sum(place.size for place in places), size=size,
        )  # fmt: skip


def _blocks(places: tuple[BlockPlace, ...], payload: bytes) -> Iterator[tuple[BlockPlace, bytes]]:
    at = 0
    for place in places:
        yield place, payload[at : at + place.size]
        at += place.size


def _decide(
    state: SegmentMap, writer_id: bytes, place: BlockPlace, block: bytes, now_ms: int
) -> AppendOperation | Duplicate:
    known = decide_setup(state.known(place.segment), place.segment, writer_id)
    once = AppendOnce(
        segment=place.segment, writer_id=writer_id,
        first_event_number=place.first_event_number, count=place.count,
    )  # fmt: skip
    last = state.last_event_number(known.number, writer_id)
    return decide_append(known, last, writer_id, once, block, now_ms=now_ms)


def _divided(
    request: AppendTogether, stored: int, refusals: list[AnabranchError]
) -> AnabranchError:
    """The refusal of a group of which some blocks are stored."""
    for refusal in refusals:
        if isinstance(refusal, OutcomeUnknown):
            return refusal
    return PartialDuplicate(
        "the store has some blocks of the group, and not the others",
        remedy="read the segments to see which events of the group are stored",
        segment=request.segment, stored=stored, blocks=len(request.places),
        reason=refusals[0].code if refusals else "",
    )  # fmt: skip


def answer_lengths(state: SegmentMap, request: GetLengths, _: Circumstances) -> Answer:
    """→ Lengths. Raises InvalidRequest, SegmentNotFound."""
    segments = request.segments
    if not 1 <= len(segments) <= LENGTHS_SEGMENTS_MAX or segments[0] != request.segment:
        raise InvalidRequest(
            "lengths are asked for one segment or several, the request's segment first",
            segment=request.segment, segments=len(segments), limit=LENGTHS_SEGMENTS_MAX,
        )  # fmt: skip
    return Answer(NO_CHANGE, Lengths(lengths=tuple(_length(state, name) for name in segments)))


def _length(state: SegmentMap, segment: str) -> int:
    known = state.known(segment)
    if not isinstance(known, SegmentState):
        raise gone(known, segment)
    return known.length
