"""The times of a stream's writers, and the watermark that follows from them."""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field
from starlette.requests import Request

from anabranch.client import LastWatermark, WatermarkStatus, WriterMark
from anabranch.common.contracts.writer_times import TIMESTAMP_MS_MAX, WRITER_ID_PATTERN
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.gateway.http.models.answers import INT63, HttpBody, Told, stream_at
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}", tags=["writers"])

Writer = Annotated[
    str, Path(pattern=WRITER_ID_PATTERN, description="a writer's id: 32 hexadecimal digits")
]


class TimeBody(HttpBody):
    """Further events of the writer are of `timestampMs` or later. `positions`: per segment, up to
    which byte its acknowledged events lie."""

    timestamp_ms: Annotated[int, Field(ge=0, le=TIMESTAMP_MS_MAX)]
    positions: Annotated[
        dict[Annotated[int, Field(ge=0, le=INT63)], Annotated[int, Field(ge=0, le=INT63)]],
        Field(max_length=SEGMENT_COUNT_MAX, examples=[{"0": 0}]),
    ] = {}  # noqa: RUF012


class Mark(Told):
    """The last time that a writer noted. `notedMs`: when, by the clock of the server that keeps
    it."""

    writer_id: str
    timestamp_ms: int
    positions: dict[int, int]
    noted_ms: int


class MarkList(Told):
    """By writer id."""

    writers: list[Mark]


class Watermark(Told):
    """At `streamCut`, every active writer had noted a time of at least `lowerMs`, and none a time
    above `upperMs`."""

    lower_ms: int
    upper_ms: int
    stream_cut: dict[int, int]


class Standing(Told):
    """A writer with a mark. `isLater`: its time is later than the watermark. `isClosed`: it was
    removed, and its last mark still counts."""

    writer_id: str
    timestamp_ms: int
    noted_ms: int
    is_later: bool
    is_closed: bool


class WatermarkProperty(Told):
    """`held`: empty while the watermark advances; else `no_writers`, `idle_writer`, `settling`
    (marks may have been lost), `unwatched` (no controller has looked yet), or a later word.

    `heldBy`: the writer that holds it back, idle for `heldForMs`; the time-out drops it. `writers`:
    those with the lowest times, of `writerCount`.
    """

    held: str
    held_by: str
    held_for_ms: int
    settles_in_ms: int
    controller: str
    timeout_ms: int
    now_ms: int
    last: Watermark | None
    writers: list[Standing]
    writer_count: int


@router.get("/watermarks")
async def show_watermark(request: Request, scope: str, stream: str) -> WatermarkProperty:
    """200: how far the watermark is, and what holds it back; 404; 503 without Redis."""
    name = str(stream_at(scope, stream))
    return _property(await parts_of(request).client.streams.watermark_status(name))


@router.get("/writers")
async def list_writers(request: Request, scope: str, stream: str) -> MarkList:
    """200: the last time that each writer noted; 404; 503 without Redis."""
    name = str(stream_at(scope, stream))
    marks = await parts_of(request).client.streams.writer_marks(name)
    return MarkList(writers=[_mark(one) for one in marks])


@router.put("/writers/{writer}/time", status_code=204)
async def note_time(
    request: Request, scope: str, stream: str, writer: Writer, body: TimeBody
) -> Response:
    """204: noted; 400: lower than the last time or position; 404; 429: too many writers; 503."""
    await parts_of(request).client.streams.note_time(
        str(stream_at(scope, stream)), writer, body.timestamp_ms, body.positions
    )
    return Response(status_code=204)


@router.delete("/writers/{writer}", status_code=204)
async def remove_writer(request: Request, scope: str, stream: str, writer: Writer) -> Response:
    """204: the writer holds no watermark back, whether it had a mark or not; 404; 503."""
    await parts_of(request).client.streams.remove_writer(str(stream_at(scope, stream)), writer)
    return Response(status_code=204)


def _mark(mark: WriterMark) -> Mark:
    positions = {int(at.segment_id): at.offset for at in mark.positions}
    return Mark(**mark.model_dump(exclude={"positions"}), positions=positions)


def _property(status: WatermarkStatus) -> WatermarkProperty:
    told = status.model_dump(exclude={"ok", "incarnation", "last"})
    return WatermarkProperty(**told, last=None if status.last is None else _last(status.last))


def _last(watermark: LastWatermark) -> Watermark:
    return Watermark(
        lower_ms=watermark.lower_ms,
        upper_ms=watermark.upper_ms,
        stream_cut={place.segment_id: place.offset for place in watermark.cut},
    )
