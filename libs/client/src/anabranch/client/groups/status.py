"""The status of a reader group: its readers' segments, and how far they lag behind the streams'
tails.

Positions are as saved, so events of the last second may count as unread although a reader has
processed them. Bytes are exact. Events are exact while little is unread; otherwise they are an
estimate by the mean size of the segment's events. Seconds are the age of the oldest unread block,
by its writer's clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.client.groups.access import Parts
from anabranch.client.groups.state import GroupSegment, ReaderGroupState, stream_of
from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.common.contracts.stream_queries import SegmentRun
from anabranch.common.errors import (
    CorruptBlock,
    InvalidRequest,
    SegmentNotFound,
    SegmentTruncated,
)
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.model.topics import readable_stream
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.block import parse_header

COUNTED_BYTES_MAX = 1024 * 1024
"""Up to this size, the unread bytes of a segment are read to count their events."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The unread events, bytes and seconds. `seconds` is 0.0 if nothing is unread;
    `events_are_exact` is False for an estimate."""

    events: int = 0
    bytes: int = 0
    seconds: float = 0.0
    events_are_exact: bool = True

    def plus(self, other: "Lag") -> "Lag":
        """The sum of both lags; `seconds` is the longer one.

        ::

            total = status.lag.plus(other.lag)
        """
        return Lag(
            self.events + other.events,
            self.bytes + other.bytes,
            max(self.seconds, other.seconds),
            self.events_are_exact and other.events_are_exact,
        )


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """A segment and its reader; `reader_id` is "" while no reader has the segment."""

    segment: str
    reader_id: str
    position: Position
    lag: Lag


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """A pending checkpoint, and the readers that it waits for."""

    name: str
    kind: str
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReaderGroupStatus:
    """The status of a group, from `ReaderGroup.status`.

    Invariants: without `log_answers` only `group` and `generation` are known, and everything else
    is empty; the group's readers then hand out nothing after ⅞ of their leases. `readers` and
    `lag_of_readers` have the same keys, and `lag` is at least the sum of `lag_of_readers`.
    """

    group: str
    """The group's name, ``scope/group``."""
    generation: int
    """The number of the configuration; a reset of the group increases it."""
    readers: Mapping[str, tuple[str, ...]]
    """The ids of the online readers, each with its segments by full name."""
    segments: tuple[SegmentStatus, ...]
    """The segments that can be read now."""
    lag: Lag
    """The unread events up to the tails, including segments that follow the present ones."""
    checkpoints: tuple[CheckpointStatus, ...] = ()
    """The pending checkpoints."""
    is_complete: bool = False
    """Whether the group has read everything that it will ever read."""
    lag_of_readers: Mapping[str, Lag] = field(default_factory=dict)
    """The unread events of each reader's present segments, by reader id."""
    log_answers: bool = True
    """Whether the group's log answered in time."""


async def status_of(
    group: str, state: ReaderGroupState, *, parts: Parts, ranges: SegmentRanges, clock: Clock
) -> ReaderGroupStatus:
    """The group's status; asks the controller and the stores for unread bytes.

    Raises StreamNotFound, Unavailable.
    """
    lags: dict[str, Lag] = {}
    for stream in {stream_of(name) for name in state.segments}:
        bounds = parts.bounds(readable_stream(stream))
        for run in await _unread(bounds, state, stream):
            lags[run.name] = await _lag(ranges, run, state.segments.get(run.name), clock.now_ms())
    total = Lag()
    for lag in lags.values():
        total = total.plus(lag)
    listed = [each for each in state.segments.values() if each.owner or each.is_unassigned]
    segments = tuple(
        SegmentStatus(each.name, each.owner, each.position, lags.get(each.name, Lag()))
        for each in sorted(listed, key=lambda each: each.name)
    )
    return ReaderGroupStatus(
        group,
        state.generation,
        {
            reader_id: tuple(each.segment for each in segments if each.reader_id == reader_id)
            for reader_id in sorted(state.readers)
        },
        segments,
        total,
        tuple(
            CheckpointStatus(each.name, each.kind, tuple(sorted(each.waiting)))
            for each in state.checkpoints
            if not each.is_complete
        ),
        state.is_complete,
        {reader_id: _sum(segments, reader_id) for reader_id in sorted(state.readers)},
    )


def _sum(segments: Iterable[SegmentStatus], reader_id: str) -> Lag:
    total = Lag()
    for each in segments:
        if each.reader_id == reader_id:
            total = total.plus(each.lag)
    return total


async def _unread(bounds: StreamBounds, state: ReaderGroupState, stream: str) -> list[SegmentRun]:
    """The runs between the group's positions and the end of the stream or of its reading."""
    start = [
        SegmentOffset(SegmentId(each.segment_id), each.position.offset)
        for each in state.segments.values()
        if stream_of(each.name) == stream
    ]
    end = [
        SegmentOffset(SegmentId(each.segment_id), each.offset)
        for each in state.ends
        if stream_of(each.name) == stream
    ]
    return await bounds.runs(start=tuple(sorted(start)), end=tuple(sorted(end)))


async def _lag(
    ranges: SegmentRanges, run: SegmentRun, known: GroupSegment | None, now_ms: int
) -> Lag:
    assert run.end_offset is not None
    size = run.end_offset - run.start_offset
    if size <= 0:
        return Lag()
    try:
        info = await ranges.info(run.name)
        start = max(run.start_offset, info.start)
        if start >= run.end_offset:
            return Lag()
        data = await ranges.read(run.name, start, min(run.end_offset, start + COUNTED_BYTES_MAX))
        oldest, events = parse_header(data).base_timestamp_ms, _count(data)
    except (SegmentNotFound, SegmentTruncated):
        return Lag()  # truncated meanwhile, so no unread event is left
    except (InvalidRequest, CorruptBlock):
        return Lag(1, size, 0.0, events_are_exact=False)  # its reader cannot read it either
    is_exact = start + len(data) >= run.end_offset
    if not is_exact:
        events = round(events * (run.end_offset - start) / len(data))
    if known is not None and start == known.position.offset:
        events -= known.position.event_index
    seconds = max(0.0, (now_ms - oldest) / 1000)
    return Lag(max(1, events), run.end_offset - start, seconds, is_exact)


def _count(data: bytes) -> int:
    at = events = 0
    while at < len(data):
        header = parse_header(data, at)
        events += header.event_count
        at += header.size
    return events
