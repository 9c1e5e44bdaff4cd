"""The questions of a streaming query on the driver: its start, its ends, and the data between.

    initial ──► offset ─latest─► offset ─latest─► …      plan(offset, next offset) ──► partitions

A stream that begins to match a pattern enters the offset at its head, and is read from the next
micro-batch on. A stream that is gone fails the query; with `failOnDataLoss=false` it keeps its
place in the offset, and nothing of it is read.
"""

import contextlib
import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from anabranch.client.client import Client
from anabranch.client.reading.places import checked
from anabranch.common.errors import (
    NotFound,
    ScopeNotFound,
    StreamNotFound,
    Unavailable,
)
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.runtime.logger import get_logger
from anabranch.spark.following import cuts
from anabranch.spark.following.admission import bytes_of_rows, fill
from anabranch.spark.following.cuts import check_incarnation, of_each
from anabranch.spark.following.limited import Backlog, advanced, later, skipped
from anabranch.spark.following.loss import Range, loss_of, range_of, split
from anabranch.spark.following.offsets import Offset, Point, point_of
from anabranch.spark.following.watermarks import watermark_at
from anabranch.spark.options.bounds import AtTime
from anabranch.spark.options.follow import Budget, FollowOptions
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.stores import StorePlace
from anabranch.spark.reading.planning import Plan, divide

SAMPLES_MAX = 16

_log = get_logger(__name__)


class Follower:
    """Answers for one query. Holds no state: offsets come in and go out."""

    def __init__(self, place: StorePlace, options: FollowOptions) -> None:
        self._place = place
        self._client: Client = place.client
        self._options = options

    # --- where to begin and to end --------------------------------------------------------

    async def initial(self) -> Offset:
        """Where a query without a checkpoint begins. Raises StreamNotFound, InvalidPosition,
        Unavailable."""
        found = await self._place.find(self._options.which)
        return await of_each(found, self._start)

    async def tails(self) -> Offset:
        """The present ends of all streams of the query."""
        return await self._tails(await self._place.find(self._options.which))

    async def latest(self, start: Offset, budget: Budget, target: Offset | None = None) -> Offset:
        """The end of the next micro-batch: `start` if there is nothing new.

        It lies at or before `target`, if one is given, and else at or before the present tails.
        Raises StreamNotFound, EventsTruncated, Unavailable.
        """
        tails = await self.tails() if target is None else target
        for stream in start.keys() & tails.keys():
            check_incarnation(stream, start[stream], tails[stream].incarnation)
        self._require(start.keys() - tails.keys() if target is None else ())
        entering = [stream for stream in tails if stream not in start]
        heads = await of_each(entering, lambda each: cuts.head(self._client, each))
        moved = {stream: tails[stream] for stream in start if stream in tails}
        if budget != Budget():
            moved = await self._limited(start, moved, budget)
        return {**start, **moved, **heads}

    async def backlog(self, consumed: Offset) -> tuple[Offset, int]:
        """The present tails, and the bytes from `consumed` to them."""
        tails = await self.tails()
        known = [each for each in tails if each in consumed and _is_one(consumed, tails, each)]
        found = await self._backlogs(known, consumed, tails)
        return tails, sum(each.size for each in found.values())

    async def _start(self, stream: StreamRef) -> Point:
        start = self._options.start
        if start == "head":
            return await cuts.head(self._client, stream)
        if start == "tail":
            return await cuts.tail(self._client, stream)
        ranges = self._client.ranges()
        if isinstance(start, AtTime):
            incarnation, standings = await ranges.standings(stream, start.unix_ms)
        else:
            assert not isinstance(start, str)
            own = {name: at for name, at in start.items() if parse_segment_name(name)[0] == stream}
            places = await checked(ranges, own, own)
            incarnation, standings = await ranges.standings(stream, places)
        point = point_of(incarnation, ((at.segment_id, *place) for at, place in standings))
        return await self._before_tail(stream, point)

    async def _before_tail(self, stream: StreamRef, point: Point) -> Point:
        """Raises Unavailable if the point lies behind the tail, as it may during a scale: the
        query's first offset would be unusable for ever."""
        tail = await cuts.tail(self._client, stream)
        compared = await self._client.streams.compare_cuts(
            str(stream), point.places(), tail.places()
        )
        if compared.order not in ("before", "equal"):
            raise Unavailable(
                "the start lies behind the end of the stream, which is being scaled",
                remedy="start the query again", stream=str(stream),
            )  # fmt: skip
        return point

    async def _tails(self, streams: Sequence[StreamRef]) -> dict[StreamRef, Point]:
        """The tails of the streams that exist; of all, if the query must not lose events."""

        async def ask(stream: StreamRef) -> Point | None:
            try:
                return await cuts.tail(self._client, stream)
            except (StreamNotFound, ScopeNotFound):
                if self._options.fail_on_data_loss:
                    raise
                _log.warning("a stream of the query is gone", stream=str(stream))
                return None

        found = await of_each(streams, ask)
        return {stream: point for stream, point in found.items() if point is not None}

    def _require(self, gone: Collection[StreamRef]) -> None:
        """Raises StreamNotFound for a stream that no longer matches, unless it may get lost."""
        if gone and self._options.fail_on_data_loss:
            raise StreamNotFound(
                "a stream that the query followed is gone, or is no longer one of its streams",
                remedy="start the query with a new checkpoint, or set failOnDataLoss to false",
                stream=str(min(gone, key=str)),
            )

    # --- limits ---------------------------------------------------------------------------

    async def _limited(
        self, start: Offset, tails: dict[StreamRef, Point], budget: Budget
    ) -> dict[StreamRef, Point]:
        """The ends of about so much of the backlog, in even shares of the streams."""
        found = await self._backlogs(tails, start, tails)
        sizes = {each: backlog.size for each, backlog in found.items()}
        size_max = await self._size_max(budget, found.values())
        if sum(sizes.values()) <= size_max:
            return tails
        shares = fill(sizes, size_max)

        async def end_of(stream: StreamRef) -> Point:
            if shares.get(stream, 0) == sizes.get(stream, 0):
                return tails[stream]
            if stream not in shares:
                return start[stream]
            return await self._advanced(found[stream], shares[stream])

        return await of_each(tails, end_of)

    async def _advanced(self, backlog: Backlog, budget: int) -> Point:
        """About so many bytes on; if something is lost, only up to the head."""
        name = str(backlog.stream)
        head = await self._client.streams.head_cut(name)
        lost = split(backlog.runs, head).lost
        if not lost:
            return await advanced(self._client, backlog, budget)
        if self._options.fail_on_data_loss:
            raise loss_of(backlog.stream, lost)
        behind = await skipped(self._client, backlog.stream, backlog.start, head)
        compared = await self._client.streams.compare_cuts(
            name, behind.places(), backlog.tail.places()
        )
        return behind if compared.order in ("before", "equal") else backlog.tail

    async def _size_max(self, budget: Budget, backlogs: Iterable[Backlog]) -> int:
        """The budget in bytes; rows count by the mean size of events in the longest segments."""
        limits = [] if budget.bytes is None else [budget.bytes]
        if budget.rows is not None:
            counted: dict[str, tuple[int, int]] = {}
            ranges = [range_of(run) for each in backlogs for run in each.runs]
            for sample in heapq.nlargest(SAMPLES_MAX, ranges, key=lambda each: each.size):
                with contextlib.suppress(NotFound):  # A loss is found when it is passed.
                    info = await self._client.ranges().info(sample.segment)
                    counted[sample.segment] = (info.length, info.event_count)
            limits.append(bytes_of_rows(budget.rows, counted))
        return min(limits)

    async def _backlogs(
        self, streams: Iterable[StreamRef], start: Offset, end: Offset
    ) -> dict[StreamRef, Backlog]:
        """Stream → its backlog, for those with a difference between the two offsets."""

        async def ask(stream: StreamRef) -> Backlog:
            runs = await cuts.runs(self._client, stream, start[stream], end[stream])
            return Backlog(stream, start[stream], end[stream], runs)

        return await of_each([each for each in streams if start[each] != end[each]], ask)

    # --- a micro-batch --------------------------------------------------------------------

    async def plan(self, start: Offset, end: Offset, parallelism: int) -> Plan:
        """The partitions of the micro-batch between two offsets.

        Raises EventsTruncated for events that are gone, unless the query may lose them;
        StreamNotFound.
        """
        moved = [stream for stream in end if stream in start and start[stream] != end[stream]]
        found = await of_each(moved, lambda each: self._pieces(each, start[each], end[each]))
        pieces = [piece for each in found.values() for piece in each]
        read = [stream for stream in moved if found[stream]]
        return Plan(
            {stream: end[stream].incarnation for stream in read},
            await divide(self._place, pieces, self._options.division, parallelism),
            await self._watermarks(read, end),
        )

    async def not_before(self, start: Offset, end: Offset) -> Offset:
        """The later one of the two for each stream of both: `end`, unless the stream was truncated
        behind it before `start` was asked for. Raises StreamNotFound."""

        async def later_end(stream: StreamRef) -> Point:
            if stream not in start:
                return end[stream]
            check_incarnation(stream, start[stream], end[stream].incarnation)
            return await later(self._client, stream, end[stream], start[stream])

        return await of_each(end, later_end)

    async def _watermarks(self, streams: Sequence[StreamRef], end: Offset) -> dict[StreamRef, int]:
        """The watermarks at the end of the micro-batch, if the query has the column."""
        if "watermark" not in self._options.columns:
            return {}
        found = await of_each(streams, lambda each: watermark_at(self._client, each, end[each]))
        return {stream: mark for stream, mark in found.items() if mark is not None}

    async def _pieces(self, stream: StreamRef, start: Point, end: Point) -> list[Piece]:
        """The readable bytes of the stream between two points."""
        try:
            runs = await cuts.runs(self._client, stream, start, end)
            head = await self._client.streams.head_cut(str(stream))
        except (StreamNotFound, ScopeNotFound):
            if self._options.fail_on_data_loss:
                raise
            _log.warning("a stream of the query is gone", stream=str(stream))
            return []
        check_incarnation(stream, start, end.incarnation)
        check_incarnation(stream, start, head.incarnation)
        kept = split(runs, head)
        if kept.lost and self._options.fail_on_data_loss:
            raise loss_of(stream, kept.lost)
        for each in kept.lost:
            _log.warning(
                "the query lost events that were truncated",
                segment=each.segment, start=each.start, end=each.end,
            )  # fmt: skip
        places = start.positions(stream)
        return [_piece(each, places.get(each.segment, (0, 0))) for each in kept.ranges]


def _is_one(first: Offset, second: Offset, stream: StreamRef) -> bool:
    """Whether both offsets are of one incarnation of the stream."""
    return first[stream].incarnation == second[stream].incarnation


def _piece(kept: Range, place: tuple[int, int]) -> Piece:
    piece = Piece(kept.segment, kept.start, kept.end)
    offset, index = place
    return replace(piece, skip=index) if index and offset == kept.start else piece
