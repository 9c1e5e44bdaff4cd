"""The cuts at which reading a stream starts and ends, from the controller and the stores.

The tail is taken while no scale is under way. During a scale some current segments are sealed, and
acknowledged events may already lie in their successors.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.reading.frontier import FUTURE, Position, Standing, share_keys
from anabranch.client.reading.times.cut_at import CutsByTime, FoundCut
from anabranch.client.reading.times.instants import Instant, unix_ms
from anabranch.client.wire.control import (
    QUERY_TIMEOUT_S,
    ControlPlane,
    SegmentDirectory,
    current_segments,
)
from anabranch.client.wire.followers import Followers
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.stream_queries import (
    CutFound,
    EpochSegments,
    HeadCut,
    SegmentRun,
    SegmentRunList,
    SegmentsBetween,
)
from anabranch.common.errors import (
    InvalidName,
    InvalidPosition,
    InvalidRequest,
    Remedy,
    SegmentNotFound,
    Unavailable,
)
from anabranch.common.model.names import StreamRef, epoch_of, parse_segment_name
from anabranch.common.model.stream import StreamCut, StreamState
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import answers

LENGTHS_ASKED_AT_ONCE = 32
Positions = Mapping[str, tuple[int, int]]
T = TypeVar("T")
Start = Literal["head", "tail"] | Instant | Positions
"""An instant means the cut at that time, see `StreamBounds.at_time`."""
_NOT_SCALED = (StreamState.SEALED, StreamState.DELETING, StreamState.DELETED)


class StreamBounds:
    """The bounds of one stream. `calls` makes the calls of one request to a segment; `new_backoff`
    bounds the wait for a settled tail.
    """

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        clock: Clock,
        calls: Callable[[str], SegmentCalls],
        new_backoff: Callable[[], Backoff],
    ) -> None:
        self._stream = stream
        self._control = control
        self._directory = directory
        self._clock = clock
        self._calls = calls
        self._new_backoff = new_backoff
        self.incarnation = 0
        """The life of the stream that the last cut is of; 0 before there is one."""
        self._followers = Followers(control, stream, clock, new_backoff)

    async def start(self, start: Start) -> list[Standing]:
        """The cut at which reading begins, for every key.

        Positions may be of any mixture of epochs; keys without a position are read from the head.
        Raises InvalidRequest for a malformed cut or a cut of another stream, InvalidPosition for a
        negative place, and StreamNotFound.
        """
        match start:
            case "head":
                return await self._head()
            case "tail":
                return [(each, Position(length)) for each, length in await self._tail()]
            case datetime() | int():
                return (await self.at_time(start)).standings
            case str():
                raise InvalidRequest(
                    f"a reader cannot start at {start!r}",
                    remedy="start at head, tail, a time, or positions",
                )
        given = {name: Position(*place) for name, place in start.items()}
        for name, place in given.items():
            if place != FUTURE and min(place) < 0:
                raise InvalidPosition(
                    "a position is negative",
                    segment=name, offset=place.offset, index=place.event_index,
                )  # fmt: skip
        return await self._completed(given)

    async def at_time(self, instant: Instant) -> FoundCut:
        """The cut at a time: by the last watermark whose upper bound is at or before it, else by
        the times at which the stores took the appends.

        Raises InvalidRequest for a time without a zone, StreamNotFound, CorruptBlock, Unavailable.
        """
        time_ms = unix_ms(instant)
        cuts = CutsByTime(
            self._stream, control=self._control, followers=self._followers, calls=self._calls
        )
        found = await cuts.find(time_ms)
        self.incarnation = found.incarnation
        return found

    async def tail(self) -> dict[str, int]:
        """The current segments' full names → their lengths.

        They include everything that was acknowledged before the call. Raises Unavailable if a scale
        does not end in time.
        """
        return {segment.name: length for segment, length in await self._tail()}

    async def _tail(self) -> list[tuple[SegmentInStream, int]]:
        async def attempt() -> list[tuple[SegmentInStream, int]] | None:
            listed = await current_segments(self._control, self._stream)
            self.incarnation = listed.incarnation
            ended = listed.state in _NOT_SCALED
            names = [each.name for each in listed.segments]
            lengths = await self._lengths(names, ended=ended)
            if lengths is None:
                return None
            return [(each, lengths[each.name]) for each in listed.segments]

        return await self._settled(attempt)

    async def runs(self, start: StreamCut = (), end: StreamCut = ()) -> list[SegmentRun]:
        """The segment runs between the cuts; every `end_offset` is known.

        An empty start is the head, an empty end the tail, as in `tail`. Raises InvalidCut.
        """
        query = SegmentsBetween(
            scope=self._stream.scope, stream=self._stream.stream, start=start, end=end
        )

        async def attempt() -> list[SegmentRun] | None:
            listed = await self._control.query(
                "segments_between", query, SegmentRunList, timeout_s=QUERY_TIMEOUT_S
            )
            growing = [run.name for run in listed.segments if _end_of(run) is None]
            lengths = await self._lengths(growing, ended=False)
            if lengths is None:
                return None
            return [
                run.model_copy(
                    update={
                        "start_offset": max(0, run.start_offset),
                        "end_offset": lengths.get(run.name, _end_of(run)),
                    }
                )
                for run in listed.segments
            ]

        return await self._settled(attempt)

    async def _settled(self, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """Attempt until no scale is under way, or has just ended."""
        backoff = self._new_backoff()
        while True:
            found = await attempt()
            if found is not None:
                return found
            pause_s = backoff.failed(self._clock.monotonic())
            if pause_s is None:
                raise Unavailable(
                    "the stream's scale does not end, so its tail is unknown",
                    stream=str(self._stream),
                )
            await self._clock.sleep(pause_s)

    async def _lengths(self, segments: list[str], *, ended: bool) -> dict[str, int] | None:
        """Their present lengths; None if one of them was replaced, which `ended` rules out."""
        await self._directory.learn(segments)

        async def ask(segment: str) -> int | None:
            return await self._length(segment, ended=ended)

        lengths: dict[str, int] = {}
        found = await answers(segments, LENGTHS_ASKED_AT_ONCE, ask)
        for segment, length in zip(segments, found, strict=True):
            if length is None:
                return None
            lengths[segment] = length
        return lengths

    async def _length(self, segment: str, *, ended: bool) -> int | None:
        try:
            info = await self._calls(segment).info()
        except SegmentNotFound as error:
            await self._followers.after(segment, if_open=error)
            return None
        if not info.sealed or ended:
            return info.length
        found = await self._followers.ask(segment)
        return None if found.status == "followed" else info.length

    async def _head(self) -> list[Standing]:
        query = HeadCut(scope=self._stream.scope, stream=self._stream.stream)
        found = await self._control.query("head_cut", query, CutFound, timeout_s=QUERY_TIMEOUT_S)
        self.incarnation = found.incarnation
        return [(at, Position(at.offset)) for at in found.segments]

    async def _completed(self, given: Mapping[str, Position]) -> list[Standing]:
        """`given`, completed from the head for keys that it leaves out."""
        listed = await current_segments(self._control, self._stream)
        self.incarnation = listed.incarnation
        known: dict[str, SegmentInStream] = {each.name: each for each in listed.segments}
        for name in given:
            if name not in known:
                known |= {each.name: each for each in await self._created_with(name)}
            if name not in known:
                raise self._refused(name)
        standings = [(known[name], position) for name, position in given.items()]
        if not _cover(standings):
            standings += [
                (at, position)
                for at, position in await self._head()
                if not any(share_keys(at, known[name]) for name in given)
            ]
        if not are_cut(standings):
            raise InvalidRequest(
                "the positions do not cover every key of the stream once",
                remedy=Remedy(
                    "start at positions that a reader of this stream returned",
                    api="start at what `reader.positions()` of this stream returned",
                ),
                stream=str(self._stream),
            )
        return standings

    async def _created_with(self, name: str) -> Sequence[SegmentInStream]:
        """The segments of the stream epoch that created the one called `name`, if it did."""
        try:
            stream, segment = parse_segment_name(name)
        except InvalidName as error:
            raise self._refused(name) from error
        if stream != self._stream:
            raise self._refused(name)
        query = EpochSegments(
            scope=stream.scope, stream=stream.stream, stream_epoch=epoch_of(segment)
        )
        try:
            found = await self._control.query(
                "epoch_segments", query, CutFound, timeout_s=QUERY_TIMEOUT_S
            )
        except InvalidRequest as error:
            raise self._refused(name) from error
        return found.segments

    def _refused(self, name: str) -> InvalidRequest:
        return InvalidRequest(
            "a position names a segment that the stream does not have",
            stream=str(self._stream), segment=name,
        )  # fmt: skip


def _end_of(run: SegmentRun) -> int | None:
    """None: it grew when the controller was asked."""
    return run.size if run.end_offset is None else run.end_offset


def are_cut(standings: Sequence[Standing]) -> bool:
    """Whether they cover every key once, apart from future segments."""
    return _cover(standings) and _agree(standings)


def _cover(standings: Iterable[Standing]) -> bool:
    """Whether every key lies in some of the segments."""
    at = 0.0
    for segment, _ in sorted(standings, key=lambda each: each[0].key_start):
        if segment.key_start > at:
            return False
        at = max(at, segment.key_end)
    return at == 1.0


def _agree(standings: Sequence[Standing]) -> bool:
    """Whether the only segments that share keys with an older one are future ones."""
    return all(
        position == FUTURE
        for segment, position in standings
        for older, _ in standings
        if older.segment_id < segment.segment_id and share_keys(older, segment)
    )
