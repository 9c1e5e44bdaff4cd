"""The end of a micro-batch that takes only a part of the backlog.

    start ──even shares, to the next block──► … ──end of a sealed segment──► its successors ──►
    … until the budget is spent; never beyond the tail

The client's frontier decides when the successors of a segment begin, so the end is a cut of the
stream at any moment. It may divide a transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.client.client import Client
from anabranch.client.reading.frontier import Frontier, Position, Standing
from anabranch.client.reading.joining import later_of
from anabranch.common.contracts.stream_queries import CutFound, SegmentRun, Successor
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.workflow.bounded import for_each
from anabranch.spark.following.admission import fill
from anabranch.spark.following.loss import range_of
from anabranch.spark.following.offsets import Point, point_of

CALLS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Backlog:
    """The data of a stream between two points: the runs of its segments."""

    stream: StreamRef
    start: Point
    tail: Point
    runs: Sequence[SegmentRun]

    @property
    def size(self) -> int:
        return sum(range_of(run).size for run in self.runs)


async def advanced(client: Client, backlog: Backlog, budget: int) -> Point:
    """A point about `budget` bytes after the start of the backlog, not behind its end.

    Raises SegmentTruncated or SegmentNotFound if the runs are truncated meanwhile, StreamNotFound.
    """
    start = backlog.start.positions(backlog.stream)
    _, standings = await client.ranges().standings(backlog.stream, start)
    walk = _Walk(client, backlog, Frontier(standings))
    while budget > 0:
        await walk.finish()
        shares = fill(walk.remaining(), budget)
        if not shares:
            break
        budget -= await walk.move(shares)
    return _point(backlog.start.incarnation, walk.frontier.standings)


async def skipped(client: Client, stream: StreamRef, start: Point, head: CutFound) -> Point:
    """The later one of `start` and the head, for every key."""
    _, standings = await client.ranges().standings(stream, start.positions(stream))
    heads: list[Standing] = [(at, Position(at.offset)) for at in head.segments]
    return _point(start.incarnation, later_of(standings, heads))


async def later(client: Client, stream: StreamRef, one: Point, other: Point) -> Point:
    """The later one of two points of one incarnation, for every key."""
    ranges = client.ranges()
    _, standings = await ranges.standings(stream, one.positions(stream))
    _, others = await ranges.standings(stream, other.positions(stream))
    return _point(one.incarnation, later_of(standings, others))


def _point(incarnation: int, standings: Sequence[Standing]) -> Point:
    return point_of(incarnation, ((segment.segment_id, *at) for segment, at in standings))


class _Walk:
    """A frontier that moves through the backlog towards its end."""

    def __init__(self, client: Client, backlog: Backlog, frontier: Frontier) -> None:
        self.frontier = frontier
        self._client = client
        self._stream = str(backlog.stream)
        self._ranges = client.ranges()
        self._tail = backlog.tail.positions(backlog.stream)
        self._ends = {run.name: range_of(run).end for run in backlog.runs}
        self._followed: set[str] = set()

    def remaining(self) -> dict[str, int]:
        """Begun segments → the bytes of the backlog in each, without those that have none."""
        places = self.frontier.positions
        left = {name: self._ends.get(name, 0) - places[name].offset for name in self.frontier.begun}
        return {name: size for name, size in left.items() if size > 0}

    async def finish(self) -> None:
        """Replace the segments that have been read to their ends, except those of the tail."""
        while ended := [name for name in self.frontier.begun if self._is_at_end(name)]:
            self._followed.update(ended)
            found: dict[str, Sequence[Successor]] = {}

            async def ask(name: str, found: dict[str, Sequence[Successor]] = found) -> None:
                _, segment = parse_segment_name(name)
                answer = await self._client.streams.successors(self._stream, segment)
                found[name] = answer.successors

            await for_each(ended, CALLS_AT_ONCE, ask)
            for name in ended:
                self.frontier.finish(name, found[name])

    def _is_at_end(self, name: str) -> bool:
        if name in self._tail or name in self._followed:
            return False
        return self.frontier.positions[name].offset >= self._ends.get(name, 0)

    async def move(self, shares: Mapping[str, int]) -> int:
        """Advance each segment by its share, to a block boundary; returns the bytes passed."""
        before = {name: self.frontier.positions[name].offset for name in shares}

        async def advance(name: str) -> None:
            end, target = self._ends[name], before[name] + shares[name]
            if target < end:
                target = await self._ranges.boundary(name, target)
            self.frontier.positions[name] = Position(min(target, end))

        await for_each(shares, CALLS_AT_ONCE, advance)
        return sum(self.frontier.positions[name].offset - at for name, at in before.items())
