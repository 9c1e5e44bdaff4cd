"""Scale and truncate a stream, and list its epochs."""

from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.requests import Request

from anabranch.client import ScalingEvent, Streams
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import SegmentId, epoch_of, number_of
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    INT63,
    PAGE_SIZE,
    EpochNumber,
    HttpBody,
    NextPageToken,
    PageSize,
    PageToken,
    StreamCutBody,
    TimeMs,
    Told,
    stream_at,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import (
    RUNNING,
    OperationHandle,
    Sent,
    ended,
    still_running,
)

Key = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
SegmentNumber = Annotated[int, Field(ge=0, le=INT63)]

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}", tags=["scaling"])


class RangeBody(HttpBody):
    """Keys from `keyStart` up to and without `keyEnd`."""

    key_start: Key
    key_end: Key


class ScaleRequest(HttpBody):
    """The ranges cover exactly the keys of the segments to seal, without overlap."""

    segments_to_seal: Annotated[
        list[SegmentNumber], Field(min_length=1, max_length=SEGMENT_COUNT_MAX)
    ]
    new_ranges: Annotated[list[RangeBody], Field(min_length=1, max_length=SEGMENT_COUNT_MAX)]
    expected_epoch: SegmentNumber | None = None


class ScaleStatus(Told):
    """`streamEpoch`: the present one."""

    status: Literal["in_progress", "done"]
    stream_epoch: int
    stream_state: str


class TruncateRequest(HttpBody):
    stream_cut: StreamCutBody


class Epoch(Told):
    """`splits` and `merges` count the changes since the epoch before.

    `cause`: `create`, `manual` (a scale command), `update` (a new scaling policy), `roll` (a batch
    of transactions of an earlier epoch), `auto-split` or `auto-merge` (the scaling policy), or a
    word of a later release; a colon and details may follow.
    """

    stream_epoch: int
    reference_epoch: int
    created_ms: int
    segment_count: int
    splits: int
    merges: int
    cause: str


class EpochsList(Told):
    epochs: list[Epoch]
    next_page_token: NextPageToken = ""


class ScaledSegment(Told):
    """Pravega's words: `epoch` and `start` (Unix time in ms) are those of its creation."""

    number: int
    epoch: int
    start: int
    key_start: float
    key_end: float


class ScaleMetadata(Told):
    """An epoch, all segments that it had, and why it began (`cause`, as in `Epoch`)."""

    timestamp: int
    segments: list[ScaledSegment]
    splits: int
    merges: int
    cause: str


class ScalingEventsList(Told):
    scaling_events: list[ScaleMetadata]
    next_page_token: NextPageToken = ""


@router.post("/scale", response_model=OperationHandle, responses=RUNNING)
async def scale_stream(
    request: Request, scope: str, stream: str, body: ScaleRequest, sent: Sent
) -> OperationHandle | Response:
    """200; 400 for invalid ranges; 404; 409 while the stream is sealed or another scale is pending;
    412 for segments that are not current, or another epoch than expected."""
    operation = await parts_of(request).client.streams.scale(
        str(stream_at(scope, stream)),
        body.segments_to_seal,
        [(keys.key_start, keys.key_end) for keys in body.new_ranges],
        expected_epoch=body.expected_epoch,
        **sent,
    )
    return still_running(operation) or ended(operation)


@router.get("/check-scale")
async def check_scale(request: Request, scope: str, stream: str, epoch: EpochNumber) -> ScaleStatus:
    """200: whether the scale requested at the epoch has ended; 400 for a future epoch; 404."""
    name = str(stream_at(scope, stream))
    found = await parts_of(request).client.streams.check_scale(name, epoch)
    return ScaleStatus(
        status=found.status,
        stream_epoch=found.stream_epoch,
        stream_state=found.state.value.upper(),
    )


@router.post("/truncate", response_model=OperationHandle, responses=RUNNING)
async def truncate_stream(
    request: Request, scope: str, stream: str, body: TruncateRequest, sent: Sent
) -> OperationHandle | Response:
    """200; 400 for an invalid cut; 404; 409 while the stream is sealed or busy; 412 for a cut
    before the head."""
    operation = await parts_of(request).client.streams.truncate(
        str(stream_at(scope, stream)), body.stream_cut, **sent
    )
    return still_running(operation) or ended(operation)


@router.get("/epochs")
async def list_epochs(
    request: Request,
    scope: str,
    stream: str,
    *,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> EpochsList:
    """200, newest first, a page at a time; 404."""
    name = str(stream_at(scope, stream))
    of = f"epochs/{name}"
    page = await parts_of(request).client.streams.epoch_page(
        name, page_after(of, page_token), page_size
    )
    return EpochsList(
        epochs=[Epoch.model_validate(epoch) for epoch in page.epochs],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.get("/scaling-events")
async def list_scaling_events(
    request: Request,
    scope: str,
    stream: str,
    *,
    begin: Annotated[TimeMs, Query(alias="from")],
    end: Annotated[TimeMs, Query(alias="to")],
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> ScalingEventsList:
    """200, the epochs begun in [from, to] and the latest before, by time, a page at a time; 400;
    404."""
    if begin > end:
        raise InvalidRequest("from lies after to", remedy="send the earlier time as from")
    name = str(stream_at(scope, stream))
    streams = parts_of(request).client.streams
    of = f"scaling-events/{name}/{begin}/{end}"
    page = await streams.scaling_event_page(
        name, begin, end, page_token=page_after(of, page_token), page_size=page_size
    )
    begun_ms = await _begun_ms(streams, name, page.events)
    return ScalingEventsList(
        scaling_events=[_scale_metadata(event, begun_ms) for event in page.events],
        next_page_token=next_token(of, page.next_page_token),
    )


async def _begun_ms(
    streams: Streams, stream: str, events: Iterable[ScalingEvent]
) -> dict[int, int]:
    """The begin of the epochs that created the events' segments, by epoch."""
    begun_ms = {event.stream_epoch: event.created_ms for event in events}
    made = {epoch_of(SegmentId(s.segment_id)) for event in events for s in event.segments}
    oldest = min(made - begun_ms.keys(), default=None)
    if oldest is not None:
        async for epoch in streams.epochs(stream):
            begun_ms[epoch.stream_epoch] = epoch.created_ms
            if epoch.stream_epoch <= oldest:
                break
    return begun_ms


def _scale_metadata(event: ScalingEvent, begun_ms: dict[int, int]) -> ScaleMetadata:
    segments = []
    for segment in event.segments:
        segment_id = SegmentId(segment.segment_id)
        epoch = epoch_of(segment_id)
        segments.append(
            ScaledSegment(
                number=number_of(segment_id),
                epoch=epoch,
                start=begun_ms.get(epoch, event.created_ms),
                key_start=segment.key_start,
                key_end=segment.key_end,
            )
        )
    return ScaleMetadata(
        timestamp=event.created_ms,
        segments=segments,
        splits=event.splits,
        merges=event.merges,
        cause=event.cause,
    )
