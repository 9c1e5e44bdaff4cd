"""Segments and cuts of a stream: descriptions, successors, head and tail.

A cut is written ``{"<segment id>": <byte offset>, …}``; a `streamCut` in an answer is valid
wherever a request takes a cut.
"""

import hashlib
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request

from anabranch.client import CutFound
from anabranch.client.cuts import offsets_of
from anabranch.client.reading.times.instants import parse_time
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import parse_segment_name
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    EpochNumber,
    HttpBody,
    NextPageToken,
    PageSize,
    PageToken,
    SegmentPath,
    StreamCutBody,
    TimeMs,
    TimeText,
    Told,
    stream_at,
)
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}", tags=["segments"])


class Rate(Told):
    """The mean rate of appends over the last `overMs`."""

    events_per_s: float
    bytes_per_s: float
    over_ms: int


class Segment(Told):
    """Keys from `keyStart` up to and without `keyEnd`."""

    segment_id: int
    name: str
    key_start: float
    key_end: float


class SegmentNow(Segment):
    """`rate`: the rate of appends, if requested and known."""

    rate: Rate | None = None


class Segments(Told):
    """Sorted by their keys, covering all of them once."""

    stream_epoch: int
    segments: list[SegmentNow]


class SegmentProperty(Segment):
    """`deleted`: it lies before the head cut. `size`: bytes, of a sealed one. `coldUntilMs`:
    auto-scaling found the segment cold, which holds until then."""

    state: Literal["active", "sealed", "deleted"]
    stream_epoch: int
    sealed_epoch: int | None = None
    size: int | None = None
    cold_until_ms: int | None = None
    container: int
    node_id: str


class SegmentAfter(Segment):
    """It may be read when all predecessors were read to their ends."""

    predecessors: list[int]


class SuccessorsList(Told):
    """`open`: none yet. `followed`: these segments. `stream_sealed`: none ever."""

    status: Literal["open", "followed", "stream_sealed"]
    successors: list[SegmentAfter]


class SegmentPart(Segment):
    """No `endOffset`: to its end, which is `size` if it is sealed."""

    start_offset: int
    end_offset: int | None = None
    size: int | None = None


class SegmentParts(Told):
    """Sorted by id: predecessors come before their successors."""

    segments: list[SegmentPart]
    next_page_token: NextPageToken = ""


class SegmentPlace(Segment):
    offset: int


class CutProperty(Told):
    """`streamEpoch`: the highest one of its segments, which are sorted by their keys."""

    stream_epoch: int
    stream_cut: dict[int, int]
    segments: list[SegmentPlace]


class TimeCutProperty(Told):
    """`basis`: `watermarks`, or `block times` where no watermark reaches back to the time."""

    basis: Literal["watermarks", "block times"]
    stream_cut: dict[int, int]


class BetweenRequest(HttpBody):
    """No `start`: the head. No `end`: up to and including the current segments."""

    start: StreamCutBody | None = None
    end: StreamCutBody | None = None


class CheckRequest(HttpBody):
    stream_cut: StreamCutBody


class CutVerdict(Told):
    valid: bool
    reason: str


class CompareRequest(HttpBody):
    first: StreamCutBody
    second: StreamCutBody


class CutOrder(Told):
    """The order of the first cut relative to the second."""

    order: Literal["before", "equal", "after", "overlaps"]


@router.get("/segments", response_model_exclude_none=True)
async def list_segments(
    request: Request,
    scope: str,
    stream: str,
    *,
    epoch: EpochNumber | None = None,
    time: TimeMs | None = None,
    rates: Annotated[bool, Query(description="include the rates of the current segments")] = False,
) -> Segments:
    """200: the current segments, the segments of an epoch, or the segments that were current at a
    time; 400 for an unknown epoch, or more than one of these; 404."""
    streams, name = parts_of(request).client.streams, str(stream_at(scope, stream))
    if (epoch is not None) + (time is not None) + rates > 1:
        raise InvalidRequest(
            "epoch, time and rates are mutually exclusive", remedy="send one of them"
        )
    if epoch is not None:
        return _of_cut(await streams.epoch_segments(name, epoch))
    if time is not None:
        return _of_cut(await streams.segments_at_time(name, time))
    found = Segments.model_validate(await streams.current_segments(name))
    if not rates:
        return found
    with_rates = [SegmentNow.model_validate(s) for s in await streams.segment_rates(name)]
    return found.model_copy(update={"segments": with_rates})


@router.get("/segments/{segment}", response_model_exclude_none=True)
async def describe_segment(
    request: Request, scope: str, stream: str, segment: SegmentPath
) -> SegmentProperty:
    """200, past segments included; 404."""
    name = str(stream_at(scope, stream))
    found = await parts_of(request).client.streams.describe_segment(name, segment)
    return SegmentProperty.model_validate(found)


@router.get("/segments/{segment}/successors")
async def list_successors(
    request: Request, scope: str, stream: str, segment: SegmentPath
) -> SuccessorsList:
    """200; 404."""
    name = str(stream_at(scope, stream))
    found = await parts_of(request).client.streams.successors(name, segment)
    return SuccessorsList.model_validate(found)


@router.post("/segments-between", response_model_exclude_none=True)
async def list_segments_between(
    request: Request,
    scope: str,
    stream: str,
    *,
    body: BetweenRequest,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> SegmentParts:
    """200: the segment ranges between two cuts, a page at a time; 400 for an invalid cut; 404."""
    name = str(stream_at(scope, stream))
    asked = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    of = f"segments-between/{name}/{asked[:16]}"
    page = await parts_of(request).client.streams.segment_run_page(
        name, body.start, body.end, page_token=page_after(of, page_token), page_size=page_size
    )
    return SegmentParts(
        segments=[SegmentPart.model_validate(run) for run in page.segments],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.get("/cuts/head")
async def head_cut(request: Request, scope: str, stream: str) -> CutProperty:
    """200: the cut at the stream's head; 404."""
    name = str(stream_at(scope, stream))
    return _cut(await parts_of(request).client.streams.head_cut(name))


@router.get("/cuts/tail")
async def tail_cut(request: Request, scope: str, stream: str) -> CutProperty:
    """200: the cut at the stream's present tail; 404; 503 while a store does not answer."""
    name = str(stream_at(scope, stream))
    return _cut(await parts_of(request).client.streams.tail_cut(name))


@router.get("/cuts/at")
async def cut_at(request: Request, scope: str, stream: str, time: TimeText) -> TimeCutProperty:
    """200: the cut at a time; 400 for an invalid time; 404; 503 while a store does not answer."""
    name, time_ms = str(stream_at(scope, stream)), parse_time(time)
    found = await parts_of(request).client.streams.cut_at(name, time_ms)
    offsets = {parse_segment_name(one)[1]: at.offset for one, at in found.positions.items()}
    return TimeCutProperty(basis=found.basis, stream_cut=dict(sorted(offsets.items())))


@router.post("/cuts/check")
async def check_cut(request: Request, scope: str, stream: str, body: CheckRequest) -> CutVerdict:
    """200: whether the cut is valid for the stream; 404."""
    name = str(stream_at(scope, stream))
    return CutVerdict.model_validate(
        await parts_of(request).client.streams.check_cut(name, body.stream_cut)
    )


@router.post("/cuts/compare")
async def compare_cuts(request: Request, scope: str, stream: str, body: CompareRequest) -> CutOrder:
    """200; 400 for an invalid cut; 404."""
    name = str(stream_at(scope, stream))
    return CutOrder.model_validate(
        await parts_of(request).client.streams.compare_cuts(name, body.first, body.second)
    )


def _of_cut(found: CutFound) -> Segments:
    segments = [SegmentNow.model_validate(segment) for segment in found.segments]
    return Segments(stream_epoch=found.stream_epoch, segments=segments)


def _cut(found: CutFound) -> CutProperty:
    return CutProperty(
        stream_epoch=found.stream_epoch,
        stream_cut=offsets_of(found),
        segments=[SegmentPlace.model_validate(segment) for segment in found.segments],
    )
