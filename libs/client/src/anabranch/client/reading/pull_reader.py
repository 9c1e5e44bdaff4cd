"""Reads a stream up to its present tail in the caller's own task: nothing runs ahead or behind.

    open segments ──read, several at once──► turns: blocks of one segment each ──► batches
         ▲                                     │
         ├──more to read───────────────────────┤
         └──successors of a sealed segment─────┴──at the tail──► done

The first round reads a single segment, and each further one twice as many at once, because the
caller may need few events. The reader chooses the first segment at random, so that a caller that
takes a small part again and again gets events of all segments.

The tail of a segment is where the store says that it has no more bytes. Everything that was
acknowledged before the read began is therefore included, even if the stream scales meanwhile.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.frontier import Frontier, Position
from anabranch.client.reading.openings import Openings, PageStart
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.segment_blocks import Answer, SegmentBlocks
from anabranch.client.reading.times.window import Place
from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    NotFound,
    SegmentNotFound,
    SegmentTruncated,
    StreamNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.ids import Rng
from anabranch.common.workflow.bounded import answers

READS_AT_ONCE_MAX = 32
SHARE_SIZE_BYTES_MIN = 64 * 1024


@dataclass(slots=True)
class _Turn:
    """The answer to a read of a segment, until all of its blocks are taken."""

    blocks: SegmentBlocks
    answer: Answer | AnabranchError
    is_held: bool = False


class PullReader:
    """One read of a stream; make one for each. See the module.

    ::

        reader = PullReader(stream, "head", client.ranges(), openings, rng)
        await reader.open()
        while (batch := await reader.next_batch()) is not None:
            print(batch.payloads)
    """

    def __init__(
        self,
        stream: StreamRef,
        start: PageStart,
        ranges: SegmentRanges,
        openings: Openings,
        rng: Rng,
        *,
        read_size_bytes: int,
    ) -> None:
        """`read_size_bytes`: about the most bytes to read at once, from all segments together; at
        least `SHARE_SIZE_BYTES_MIN` of each, if it is not less."""
        self.stream = stream
        self._start = start
        self._ranges = ranges
        self._openings = openings
        self._rng = rng
        self._read_size_bytes = read_size_bytes
        self.incarnation = 0
        """That of the stream, once it is open."""
        self._frontier = Frontier(())
        self._open: deque[SegmentBlocks] = deque()
        self._turns: deque[_Turn] = deque()
        self._width = 1
        self._may_be_outdated = False
        """Whether the opening was remembered, and the store has returned nothing of it yet."""
        self._gap: EventsTruncated | None = None
        """The error of the first segment that is gone, until it is raised."""

    async def open(self) -> None:
        """Find where to begin. Raises as `Openings.look_up`."""
        opening = await self._openings.of(self.stream, self._start)
        self._begin_at(opening.incarnation, Frontier(opening.standings))
        self._may_be_outdated = opening.remembered

    def _begin_at(self, incarnation: int, frontier: Frontier) -> None:
        self.incarnation, self._frontier = incarnation, frontier
        begun = frontier.begun
        first = int(self._rng.random() * len(begun)) if len(begun) > 1 else 0
        self._open.clear()
        self._turns.clear()
        self._begin(begun[first:] + begun[:first])

    def _begin(self, segments: Iterable[str]) -> None:
        for segment in segments:
            blocks = SegmentBlocks(self._ranges.calls(segment))
            blocks.offset, blocks.index = self._frontier.positions[segment]
            self._open.append(blocks)

    def positions(self) -> dict[str, Position]:
        """Segment → the place of the next event, as `EventReader.positions`."""
        return dict(self._frontier.positions)

    def places(self, positions: dict[str, tuple[int, int]]) -> list[Place]:
        """These positions of the reader's segments, with the keys of each."""
        return self._frontier.places({name: Position(*at) for name, at in positions.items()})

    async def next_batch(self) -> EventBatch | None:
        """The events of the next block; None at the tail, or at the end of the stream.

        If the next events were truncated, it raises EventsTruncated once, and the next call
        continues after them. Raises StreamNotFound, InvalidPosition, CorruptBlock, CodecMissing,
        and the errors of reading.
        """
        try:
            while self._turns or self._open:
                if not self._turns:
                    await self._read()
                if not isinstance(self._turns[0].answer, SegmentNotFound):
                    self._tell_gap()
                if (batch := await self._taken(self._turns[0])) is not None:
                    self._may_be_outdated = False
                    return batch
            self._tell_gap()
        except AnabranchError as error:
            error.fields = {**error.fields, "stream": str(self.stream)}
            raise
        return None

    async def _read(self) -> None:
        """Read once from each of the first open segments, all at the same time."""
        asked = [self._open[at] for at in range(min(self._width, len(self._open)))]
        share = max(SHARE_SIZE_BYTES_MIN, self._read_size_bytes // len(asked))
        size_max = min(share, self._read_size_bytes)
        found = await answers(asked, READS_AT_ONCE_MAX, partial(_answer_of, size_max))
        for blocks, answer in zip(asked, found, strict=True):
            self._open.popleft()
            self._turns.append(_Turn(blocks, answer))
        self._width = min(2 * self._width, READS_AT_ONCE_MAX)

    async def _taken(self, turn: _Turn) -> EventBatch | None:
        """The next batch of the turn; None if the turn is over, or another opening has begun."""
        blocks = turn.blocks
        try:
            if not turn.is_held:
                blocks.hold(turn.answer)
                turn.is_held = True
            if (fetched := await blocks.next()) is not None:
                batch = EventBatch(fetched)
                batch.open()
                self._frontier.positions[batch.segment] = batch.next
                return batch
            await self._end(turn)
        except SegmentTruncated as error:
            if not (self._start == "head" and await self._looked_up()):
                self._go_on_behind(blocks, error)
        except (SegmentNotFound, StreamNotFound) as error:
            if not await self._looked_up():
                await self._go_on_in_successors(blocks, error)
        return None

    async def _end(self, turn: _Turn) -> None:
        """End a turn whose blocks are all taken."""
        assert not isinstance(turn.answer, AnabranchError), "hold has raised it"
        reply, _ = turn.answer
        if reply.end_of_segment:
            self._begin(await self._successors(turn.blocks.segment))
        elif not reply.at_tail:
            self._open.append(turn.blocks)
        self._turns.popleft()

    async def _successors(self, segment: str) -> list[str]:
        """The segments to read after this one, which is at its end: it stays there without any."""
        found = await self._ranges.followers(self.stream).present(segment)
        if found.status != "followed":
            return []
        self._openings.met(self.stream, self.incarnation, found.successors)
        return self._frontier.finish(segment, found.successors)

    async def _looked_up(self) -> bool:
        """Begin again where the controller says, if the remembered opening may be outdated."""
        if not self._may_be_outdated:
            return False
        self._may_be_outdated = False
        opening = await self._openings.look_up(self.stream, self._start)
        self._begin_at(opening.incarnation, Frontier(opening.standings))
        return True

    def _go_on_behind(self, blocks: SegmentBlocks, error: SegmentTruncated) -> None:
        """Continue at the segment's start. Raises EventsTruncated."""
        start = error.fields.get("start")
        if not isinstance(start, int) or start <= blocks.offset:
            raise error
        told = self._truncated(blocks, start)
        blocks.offset, blocks.index = self._frontier.positions[blocks.segment] = Position(start)
        self._turns.popleft()
        self._open.appendleft(blocks)
        raise told from error

    async def _go_on_in_successors(self, blocks: SegmentBlocks, error: NotFound) -> None:
        """Continue behind a segment that was deleted. The gap is raised later, so that adjacent
        deleted segments make one gap. Raises StreamNotFound."""
        if not isinstance(error, SegmentNotFound):
            raise error
        followers = self._ranges.followers(self.stream)
        successors = await followers.in_place_of(blocks.segment, error)
        self._gap = self._gap or self._truncated(blocks, None)
        self._turns.popleft()
        self._begin(self._frontier.pass_over(blocks.segment, successors))

    def _tell_gap(self) -> None:
        """Raises EventsTruncated, if segments were passed over."""
        gap, self._gap = self._gap, None
        if gap is not None:
            raise gap

    def _truncated(self, blocks: SegmentBlocks, start: int | None) -> EventsTruncated:
        """The error for the events before `start`; None: the segment was deleted as a whole."""
        return EventsTruncated(
            "events were truncated before they were read",
            segment=blocks.segment, offset=blocks.offset, start=start,
        )  # fmt: skip


async def _answer_of(size_max: int, blocks: SegmentBlocks) -> Answer | AnabranchError:
    try:
        return await blocks.read(blocks.offset, size_max)
    except AnabranchError as error:
        return error
