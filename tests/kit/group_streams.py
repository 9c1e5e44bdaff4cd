"""Streams for readers of groups in virtual time: written, scaled and truncated while they are read.

The key space has `CELLS` cells, each of which is a key; every segment takes some adjacent ones
whole. A `SimSource` keeps the promises of an `Intake`: what waits of a dropped opening vanishes,
truncation is told once and reading goes on behind it, a segment ends with what follows it.
"""

import asyncio
import itertools
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field

from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.client.reading.intake import IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.errors import EventsTruncated
from anabranch.common.model.names import SegmentId, StreamRef, segment_id, segment_name
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from kit.group_process import SimProcess
from kit.rng import Random

CELLS = 6
READ_AHEAD = 6
"""Blocks of one segment."""
_WRITER_ID = bytes(16)
SCALES = "scales of streams that are read"
TRUNCATIONS = "truncations of streams that are read"


@dataclass(frozen=True, slots=True)
class SimEvent:
    """`number`: counts all events of a world; `behind`: the place of what comes next."""

    number: int
    cell: int
    at: Position
    behind: Position


@dataclass(frozen=True, slots=True)
class SimBlock:
    """A block, and where it is."""

    offset: int
    stored: Block

    @property
    def next_offset(self) -> int:
        return self.offset + self.stored.header.size


@dataclass(eq=False)
class SimSegment:
    """`events`: of all blocks, in order. `is_gone`: truncated as a whole."""

    stream: StreamRef
    segment_id: SegmentId
    cells: range
    before: list["SimSegment"]
    after: list["SimSegment"] = field(default_factory=list)
    blocks: list[SimBlock] = field(default_factory=list)
    events: list[SimEvent] = field(default_factory=list)
    places: list[Position] = field(default_factory=list)
    length: int = 0
    start: int = 0
    is_sealed: bool = False
    is_gone: bool = False
    waiting: list["asyncio.Future[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = segment_name(self.stream, self.segment_id)
        self.key_start, self.key_end = self.cells.start / CELLS, self.cells.stop / CELLS

    @property
    def successor(self) -> Successor:
        return Successor(
            segment_id=self.segment_id,
            name=self.name,
            key_start=self.key_start,
            key_end=self.key_end,
            predecessors=tuple(each.segment_id for each in self.before),
        )

    @property
    def end(self) -> Position:
        return Position(self.length)

    def is_truncated(self, event: SimEvent) -> bool:
        return self.is_gone or event.at.offset < self.start

    def between(self, first: Position, last: Position) -> list[SimEvent]:
        """Events from `first` on and before `last`."""
        return self.events[self.index_of(first) : self.index_of(last)]

    def index_of(self, position: Position) -> int:
        return bisect_left(self.places, position)

    def changed(self) -> None:
        """Wake who reads at the tail."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


class SimStream:
    """One stream. `segments`: all that ever were, by id; `present`: those that grow, by key."""

    def __init__(self, ref: StreamRef, rng: Random, counts: Counter[str]) -> None:
        self.ref = ref
        self.is_sealed = False
        self.segments: list[SimSegment] = []
        self.present: list[SimSegment] = []
        self._rng = rng
        self._counts = counts
        self._epoch = 0
        bounds = self._bounds(0, CELLS, rng.randrange(1, 4))
        self.present = [self._new(cells, []) for cells in bounds]

    def _bounds(self, start: int, stop: int, count: int) -> list[range]:
        inner = self._rng.sample(range(start + 1, stop), min(count - 1, stop - start - 1))
        bounds = [start, *sorted(inner), stop]
        return [range(low, high) for low, high in itertools.pairwise(bounds)]

    def _new(self, cells: range, before: list[SimSegment]) -> SimSegment:
        number = segment_id(self._epoch, len(self.segments))
        segment = SimSegment(self.ref, number, cells, before)
        self.segments.append(segment)
        return segment

    def write(self, next_number: int) -> int:
        """One block to a random segment → how many events."""
        segment = self._rng.choice(self.present)
        count = self._rng.randrange(1, 5)
        cells = [self._rng.choice(segment.cells) for _ in range(count)]
        data = encode_block(
            [b"%d" % number for number in range(next_number, next_number + count)],
            keys=[b"%d" % cell for cell in cells],
            writer_id=_WRITER_ID,
            first_event_number=1,
            base_timestamp_ms=0,
        )
        block = SimBlock(segment.length, Block(data))
        places = [Position(segment.length, index) for index in range(count)]
        behind = [*places[1:], Position(block.next_offset)]
        segment.blocks.append(block)
        segment.places += places
        segment.events += map(SimEvent, itertools.count(next_number), cells, places, behind)
        segment.length = block.next_offset
        segment.changed()
        return count

    def scale(self) -> None:
        """Replace one to three adjacent segments by one to three others."""
        self._counts[SCALES] += 1
        self._epoch += 1
        first = self._rng.randrange(len(self.present))
        old = self.present[first : first + self._rng.randrange(1, 4)]
        start, stop = old[0].cells.start, old[-1].cells.stop
        made = []
        for cells in self._bounds(start, stop, self._rng.randrange(1, 4)):
            before = [each for each in old if _share(each.cells, cells)]
            made.append(self._new(cells, before))
        self.present[first : first + len(old)] = made
        for each in old:
            each.after = [new for new in made if each in new.before]
            each.is_sealed = True
            each.changed()

    def seal(self) -> None:
        """Nothing is written any more, for ever."""
        self.is_sealed = True
        for each in self.present:
            each.is_sealed = True
            each.changed()

    def truncate(self) -> None:
        """Give up what lies before a random cut."""
        self._counts[TRUNCATIONS] += 1
        for segment, offset in self.random_cut(0.5).items():
            if offset >= 0:
                segment.start = max(segment.start, offset)
                for before in _all_before(segment):
                    before.is_gone = True
                    before.changed()
                segment.changed()

    def random_cut(self, done: float) -> dict[SimSegment, int]:
        """Segment → the offset of a block in it, or that of FUTURE; all keys once."""
        finished: set[SimSegment] = set()
        cut: dict[SimSegment, int] = {}
        for segment in self.segments:
            if finished.issuperset(segment.before):
                if segment.after and self._rng.random() < done:
                    finished.add(segment)
                    continue
                offsets = [block.offset for block in segment.blocks] + [segment.length]
                cut[segment] = self._rng.choice(offsets)
        return self._whole(cut, finished)

    def _whole(
        self, cut: dict[SimSegment, int], finished: set[SimSegment]
    ) -> dict[SimSegment, int]:
        """With what comes after finished segments and cannot be begun."""
        for segment in self.segments:
            if segment not in cut and segment not in finished and finished & set(segment.before):
                cut[segment] = FUTURE.offset
        return cut


def _share(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _all_before(segment: SimSegment) -> set[SimSegment]:
    found: set[SimSegment] = set()
    pending = list(segment.before)
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += each.before
    return found


class SimSource:
    """A `SegmentSource` of one process: reads ahead of what is open."""

    def __init__(
        self,
        segments: dict[str, SimSegment],
        process: SimProcess,
        rng: Random,
        tasks: asyncio.TaskGroup,
        news: asyncio.Event,
    ) -> None:
        self._segments = segments
        self._process = process
        self._rng = rng
        self._tasks = tasks
        self._news = news
        self._lag_s = rng.choice((0.002, 0.05, 0.5))
        self._open: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._all: set[asyncio.Task[None]] = set()
        self._ready: deque[tuple[int, IntakeItem]] = deque()
        self._ahead: Counter[int] = Counter()
        self._room = asyncio.Event()
        self._count = 0
        self._closed = False

    def open(self, segment: str, position: Position, end_offset: int | None = None) -> None:
        assert segment not in self._open, "a segment is opened once at a time"
        assert not self._closed, "a closed source opens nothing"
        assert position != FUTURE, "a segment is opened that cannot be read yet"
        self._count += 1
        reading = self._read(self._segments[segment], position, end_offset, self._count)
        task = self._tasks.create_task(reading)
        self._open[segment] = (self._count, task)
        self._all.add(task)
        task.add_done_callback(self._all.discard)

    def drop(self, segment: str) -> None:
        if segment in self._open:
            number = self._end(segment)
            self._ready = deque(each for each in self._ready if each[0] != number)
            self._news.set()

    def next_nowait(self) -> IntakeItem | None:
        if not self._ready:
            return None
        number, item = self._ready.popleft()
        if isinstance(item, SegmentEnd):
            self._end(item.segment)
        self._ahead[number] -= 1
        return item

    def consumed(self, batch: EventBatch) -> None:
        self._room.set()

    async def close(self) -> None:
        self._closed = True
        self._open.clear()
        self._ready.clear()
        self._news.set()
        if tasks := tuple(self._all):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _end(self, segment: str) -> int:
        number, task = self._open.pop(segment)
        task.cancel()
        return number

    def _put(self, number: int, item: IntakeItem) -> None:
        opening = self._open.get(item.segment)
        if opening is not None and opening[0] == number:
            self._ready.append((number, item))
            self._ahead[number] += 1
            self._news.set()

    async def _read(
        self, segment: SimSegment, position: Position, end_offset: int | None, number: int
    ) -> None:
        """The blocks from `position` on, and what follows them."""
        at = position
        while end_offset is None or at.offset < end_offset:
            await self._process.clock.sleep(self._rng.random() * self._lag_s)
            if segment.is_gone or at.offset < segment.start:
                self._put(number, _truncated(segment, at))
                if segment.is_gone:
                    break
                at = Position(segment.start)
                continue
            blocks = [each for each in segment.blocks if each.offset >= at.offset]
            for block in blocks[: self._rng.randrange(1, 4)]:
                if end_offset is None or block.offset < end_offset:
                    self._put(number, _batch(segment, block, at, number))
                    at = Position(block.next_offset)
            if at.offset == segment.length and segment.is_sealed:
                if end_offset is None or at.offset < end_offset:
                    break
            elif not blocks:
                await self._grown(segment)
            await self._until_room(number)
        else:
            self._put(number, SegmentEnd(segment.name, reached_end_offset=True))
            return
        await self._process.clock.sleep(self._rng.random() * self._lag_s)
        after = tuple(each.successor for each in segment.after)
        self._put(number, SegmentEnd(segment.name, after))

    async def _grown(self, segment: SimSegment) -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        segment.waiting.append(waited)
        await waited

    async def _until_room(self, number: int) -> None:
        while self._ahead[number] >= READ_AHEAD:
            self._room.clear()
            await self._room.wait()


def _batch(segment: SimSegment, block: SimBlock, at: Position, number: int) -> EventBatch:
    start = at.event_index if at.offset == block.offset else 0
    assert start < len(block.stored), "a position lies beyond its block's events"
    fetched = FetchedBlock(segment.name, block.offset, block.stored, start)
    return EventBatch(fetched, number)


def _truncated(segment: SimSegment, at: Position) -> SegmentFailed:
    error = EventsTruncated("events were truncated before they were read", segment=segment.name)
    return SegmentFailed(segment.name, error, at if segment.is_gone else Position(segment.start))
