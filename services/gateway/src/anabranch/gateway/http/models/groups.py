"""Reader groups as bodies and answers: configurations, positions, lags.

A cut of one stream is written ``{"<segment id>": {"offset": …, "eventIndex": …}, …}``. A plain byte
offset may replace a position, so a caller may also send a `streamCut`. Cuts in answers are valid in
requests.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from anabranch.client import (
    Client,
    GroupStream,
    Lag,
    Position,
    ReaderGroupConfig,
    ReaderGroupStatus,
    ResetPreview,
    SegmentPosition,
)
from anabranch.common.contracts.reader_groups import ReaderGroupDescription
from anabranch.common.model.names import SegmentId, parse_segment_name, stream_ref
from anabranch.common.model.reader_group import (
    CHECKPOINTS_MAX,
    GROUP_STREAMS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    GroupRetention,
    PositionCut,
)
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.gateway.http.models.answers import INT63, HttpBody, NextPageToken, Offset, Told

INTERVAL_MS_MAX = 366 * 24 * 3600 * 1000
SegmentKey = Annotated[int, Field(ge=0, le=INT63)]


class PlaceBody(HttpBody):
    """Event number `eventIndex` of the block at byte `offset`; -1: the segment comes after
    another one of the cut."""

    offset: Offset
    event_index: Annotated[int, Field(ge=0, le=INT63)] = 0


CutBody = Annotated[
    dict[SegmentKey, Offset | PlaceBody],
    Field(min_length=1, max_length=SEGMENT_COUNT_MAX, examples=[{"0": 0}]),
]


class GroupStreamBody(HttpBody):
    """No `start`: the request's start. No `end`: unbounded. `tail`: the present tail."""

    stream: str
    start: Literal["head", "tail"] | CutBody | None = None
    end: Literal["tail"] | CutBody | None = None


class GroupConfigBody(HttpBody):
    """The configuration for a new group or a reset."""

    streams: Annotated[
        list[str | GroupStreamBody], Field(min_length=1, max_length=GROUP_STREAMS_MAX)
    ]
    start: Literal["head", "tail"] = "head"
    lease_ms: Annotated[int, Field(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)] = 10_000
    automatic_checkpoint_ms: Annotated[int, Field(ge=0, le=INTERVAL_MS_MAX)] = 0
    checkpoints_max: Annotated[int, Field(ge=1, le=CHECKPOINTS_MAX)] = 3
    retention_type: Literal["NONE", "MANUAL", "AUTOMATIC"] = "NONE"
    release_after_checkpoint: bool = False

    async def config(self, client: Client) -> ReaderGroupConfig:
        """The configuration as a contract; looks up the present tails.

        Raises InvalidName, InvalidRequest, StreamNotFound.
        """
        streams = [
            await self._stream(GroupStreamBody(stream=one) if isinstance(one, str) else one, client)
            for one in self.streams
        ]
        return ReaderGroupConfig(
            streams=tuple(streams),
            lease_ms=self.lease_ms,
            automatic_checkpoint_ms=self.automatic_checkpoint_ms,
            checkpoints_max=self.checkpoints_max,
            retention=GroupRetention(self.retention_type.lower()),
            release_after_checkpoint=self.release_after_checkpoint,
        )

    async def _stream(self, body: GroupStreamBody, client: Client) -> GroupStream:
        GroupStream(body.stream)  # refuses an invalid name before any query
        start = self.start if body.start is None else body.start
        ends = [await _cut(body.stream, at, client) for at in (start, body.end)]
        return GroupStream(body.stream, *ends)


class CreateReaderGroupRequest(GroupConfigBody):
    reader_group_name: str


class ResetReaderGroupRequest(HttpBody):
    """No `config`: unchanged, from the group's start. `toTime`: from the cut of every stream at
    that time. `expectedGeneration`: refuse at another."""

    config: GroupConfigBody | None = None
    to_time: Annotated[str, Field(max_length=64, examples=["2026-11-20T12:00"])] | None = None
    expected_generation: Annotated[int, Field(ge=0, le=INT63)] | None = None


class PlaceProperty(Told):
    offset: int
    event_index: int


class GroupStreamProperty(Told):
    stream: str
    start: dict[int, PlaceProperty]
    end: dict[int, PlaceProperty] | None = None


class GroupConfigProperty(Told):
    streams: list[GroupStreamProperty]
    lease_ms: int
    automatic_checkpoint_ms: int
    checkpoints_max: int
    retention_type: str
    release_after_checkpoint: bool


class LagProperty(Told):
    """Unread events. `exact`: `events` is a count, not an estimate; `bytes` is always exact."""

    events: int
    bytes: int
    seconds: float
    exact: bool


class ReaderProperty(Told):
    reader_id: str
    segments: list[str]
    lag: LagProperty


class GroupSegmentProperty(Told):
    """`readerId`: the segment's reader; none: it has no reader."""

    segment: str
    reader_id: str | None = None
    offset: int
    event_index: int
    lag: LagProperty


class CheckpointUnderWay(Told):
    """`kind`: `user`, `automatic`, or `silent` (for stream cuts). `waiting`: missing readers."""

    name: str
    kind: str
    waiting: list[str]


class ReaderGroupProperty(Told):
    """The first four fields are Pravega's. The fields after `config` come from the readers' own
    log; they are missing with `?details=false`, and during the group's creation and deletion.
    `logAnswers` false: that log does not answer, so the readers pause and the rest is unknown."""

    scope_name: str
    reader_group_name: str
    stream_list: list[str]
    online_reader_ids: list[str]
    generation: int
    state: str
    created_ms: int
    config: GroupConfigProperty
    complete: bool | None = None
    readers: list[ReaderProperty] | None = None
    segments: list[GroupSegmentProperty] | None = None
    lag: LagProperty | None = None
    checkpoints: list[CheckpointUnderWay] | None = None
    log_answers: bool | None = None


class StreamResetProperty(Told):
    """The group would go from `present`, its saved position, to `target`, found by `basis`. It
    would read `againBytes` again, and leave out `skippedBytes` that it has not processed."""

    stream: str
    basis: Literal["watermarks", "block times"]
    present: dict[int, PlaceProperty]
    target: dict[int, PlaceProperty]
    again_bytes: int
    skipped_bytes: int


class ResetPreviewProperty(Told):
    """The effect of a reset to a time, at this generation of the group."""

    generation: int
    streams: list[StreamResetProperty]


class GroupName(Told):
    reader_group_name: str


class ReaderGroupsList(Told):
    reader_groups: list[GroupName]
    next_page_token: NextPageToken = ""


async def _cut(
    stream: str, at: Literal["head", "tail"] | CutBody | None, client: Client
) -> PositionCut:
    match at:
        case None | "head":
            return ()
        case "tail":
            ends = await client.ranges().tail(stream_ref(stream))
            places = (SegmentPosition(parse_segment_name(name)[1], e) for name, e in ends.items())
            return tuple(sorted(places))
        case _:
            return position_cut(at)


def _place(place: int | PlaceBody) -> tuple[int, int]:
    return (place, 0) if isinstance(place, int) else (place.offset, place.event_index)


def position_cut(cut: CutBody) -> PositionCut:
    """The positions of a cut in a request."""
    return tuple(
        sorted(SegmentPosition(SegmentId(one), *_place(place)) for one, place in cut.items())
    )


def group_property(
    described: ReaderGroupDescription, status: ReaderGroupStatus | None
) -> ReaderGroupProperty:
    """The group as an answer; without a `status`, the state of its readers is omitted."""
    config = described.config
    told = ReaderGroupProperty(
        scope_name=described.scope,
        reader_group_name=described.group,
        stream_list=[each.stream for each in config.streams],
        online_reader_ids=[] if status is None else list(status.readers),
        generation=described.generation,
        state=described.state.value.upper(),
        created_ms=described.created_ms,
        config=GroupConfigProperty(
            streams=[_stream_property(each) for each in config.streams],
            lease_ms=config.lease_ms,
            automatic_checkpoint_ms=config.automatic_checkpoint_ms,
            checkpoints_max=config.checkpoints_max,
            retention_type=config.retention.value.upper(),
            release_after_checkpoint=config.release_after_checkpoint,
        ),
    )
    return told if status is None else told.model_copy(update=_status_fields(status))


def _status_fields(status: ReaderGroupStatus) -> dict[str, object]:
    if not status.log_answers:
        return {"log_answers": False}
    return {
        "log_answers": True,
        "complete": status.is_complete,
        "lag": _lag(status.lag),
        "readers": [
            ReaderProperty(
                reader_id=name, segments=list(held), lag=_lag(status.lag_of_readers[name])
            )
            for name, held in status.readers.items()
        ],
        "segments": [
            GroupSegmentProperty(
                segment=each.segment,
                reader_id=each.reader_id or None,
                offset=each.position.offset,
                event_index=each.position.event_index,
                lag=_lag(each.lag),
            )
            for each in status.segments
        ],
        "checkpoints": [
            CheckpointUnderWay(name=each.name, kind=each.kind, waiting=list(each.waiting))
            for each in status.checkpoints
        ],
    }


def _stream_property(stream: GroupStream) -> GroupStreamProperty:
    end = _places(stream.end)
    return GroupStreamProperty(stream=stream.stream, start=_places(stream.start), end=end or None)


def _places(cut: PositionCut) -> dict[int, PlaceProperty]:
    return {int(at.segment_id): place_property(at) for at in cut}


def place_property(at: SegmentPosition) -> PlaceProperty:
    return PlaceProperty(offset=at.offset, event_index=at.event_index)


def _lag(lag: Lag) -> LagProperty:
    return LagProperty(
        events=lag.events, bytes=lag.bytes, seconds=lag.seconds, exact=lag.events_are_exact
    )


StreamCuts = dict[str, dict[int, PlaceProperty]]
"""Stream → its cut."""


def cuts_by_stream(positions: Mapping[str, Position]) -> StreamCuts:
    """The cut of every stream, from positions by full segment name."""
    cuts: StreamCuts = {}
    for name, at in sorted(positions.items()):
        stream, number = parse_segment_name(name)
        place = PlaceProperty(offset=at.offset, event_index=at.event_index)
        cuts.setdefault(str(stream), {})[int(number)] = place
    return cuts


def preview_property(found: ResetPreview) -> ResetPreviewProperty:
    """A preview as an answer."""
    return ResetPreviewProperty(
        generation=found.generation,
        streams=[
            StreamResetProperty(
                stream=each.stream,
                basis=each.basis,
                present=cuts_by_stream(each.present)[each.stream],
                target=cuts_by_stream(each.target)[each.stream],
                again_bytes=each.again_bytes,
                skipped_bytes=each.skipped_bytes,
            )
            for each in found.streams
        ],
    )
