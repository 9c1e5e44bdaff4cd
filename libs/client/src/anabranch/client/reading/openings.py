"""Where reads of streams begin, remembered for programs that begin many of them.

    start ──known?──► opening ──► read ──the store has deleted or truncated it──► look up again
              │no                                                                  │
              └──────────── look up: one or two queries to the controller ◄────────┘

A segment's name belongs to one segment for ever, also if the stream is deleted and created again,
and a store refuses to read truncated or deleted bytes. Therefore a remembered opening is right as
long as the store answers, and after a refusal the reader looks up again. A read from a
remembered head follows the successors of sealed segments, so it misses nothing that was written
since.

The head, and the keys of known segments, are remembered for the streams that were read last, for a
short time. The tail and times are looked up each time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from anabranch.client.reading.bounds import are_cut
from anabranch.client.reading.frontier import Position, Standing
from anabranch.client.reading.position_tokens import PositionToken, positions_in
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.times.instants import Instant
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import Clock

STREAMS_MAX = 1024
SEGMENTS_MAX = 4096
"""The most segments that are remembered of a stream, unless a single look-up finds more."""
AGE_S_MAX = 60.0

PageStart = Literal["head", "tail"] | Instant | PositionToken


class Opening(NamedTuple):
    """The cut at which a read begins. `remembered`: no controller was asked for it."""

    incarnation: int
    standings: list[Standing]
    remembered: bool = False


@dataclass(slots=True)
class _Known:
    incarnation: int
    since_s: float
    head: list[Standing] | None = None
    segments: dict[str, SegmentInStream] = field(default_factory=dict)
    """By full name, at any epoch."""


class Openings:
    """The openings of many streams; see the module."""

    def __init__(self, ranges: SegmentRanges, clock: Clock) -> None:
        self._ranges = ranges
        self._clock = clock
        self._known: OrderedDict[StreamRef, _Known] = OrderedDict()

    async def of(self, stream: StreamRef, start: PageStart) -> Opening:
        """The opening at `start`, remembered or looked up. Raises as `look_up`."""
        return self._remembered(stream, start) or await self.look_up(stream, start)

    async def look_up(self, stream: StreamRef, start: PageStart) -> Opening:
        """Ask the controller for the opening, and remember it.

        Raises InvalidRequest for a position of another stream, or of another life of this one;
        StreamNotFound, and as `SegmentRanges.standings`.
        """
        self._known.pop(stream, None)
        if isinstance(start, PositionToken):
            present = (await self._ranges.segments(stream)).incarnation
            positions = positions_in(start, present)
            incarnation, standings = await self._ranges.standings(stream, positions)
        else:
            incarnation, standings = await self._ranges.standings(stream, start)
        self._keep(stream, incarnation, standings, is_head=start == "head")
        return Opening(incarnation, standings)

    def _remembered(self, stream: StreamRef, start: PageStart) -> Opening | None:
        known = self._known.get(stream)
        if known is None:
            return None
        if self._clock.monotonic() - known.since_s > AGE_S_MAX:
            del self._known[stream]
            return None
        self._known.move_to_end(stream)
        standings: list[Standing] | None = None
        if isinstance(start, PositionToken) and start.incarnation == known.incarnation:
            standings = _standings(positions_in(start, known.incarnation), known.segments)
        elif start == "head":
            standings = known.head
        return None if standings is None else Opening(known.incarnation, standings, True)

    def _keep(
        self, stream: StreamRef, incarnation: int, standings: list[Standing], *, is_head: bool
    ) -> None:
        known = self._known.get(stream)
        if known is None or known.incarnation != incarnation:
            known = self._known[stream] = _Known(incarnation, self._clock.monotonic())
        if is_head:
            known.head = standings
        _remember(known, (segment for segment, _ in standings))
        if len(self._known) > STREAMS_MAX:
            self._known.popitem(last=False)

    def met(self, stream: StreamRef, incarnation: int, segments: Iterable[SegmentInStream]) -> None:
        """Remember segments that a reader has met in this life of the stream."""
        known = self._known.get(stream)
        if known is not None and known.incarnation == incarnation:
            _remember(known, segments)


def _remember(known: _Known, segments: Iterable[SegmentInStream]) -> None:
    if len(known.segments) >= SEGMENTS_MAX:
        known.segments = {}
    known.segments |= {segment.name: segment for segment in segments}


def _standings(
    positions: Mapping[str, tuple[int, int]], known: Mapping[str, SegmentInStream]
) -> list[Standing] | None:
    """The positions with the keys of their segments; None unless they are known to be a cut."""
    if not positions.keys() <= known.keys():
        return None
    standings = [(known[name], Position(*place)) for name, place in positions.items()]
    return standings if are_cut(standings) else None
