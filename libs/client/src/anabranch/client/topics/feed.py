"""Reads partitions ahead and numbers their records.

    open ─► intake ─► blocks, ends, failures ─► RecordBatch, in the order of each partition

A block's records are numbered by counting on from the place at which its segment was opened. The
count survives everything but a truncation, after which the store says the number of the first
record that is left.

The rest segment of a topic is read too if new partitions are wanted: it never holds a record, and
its successors are the new partitions and the next rest segment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import Intake, IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.topics.offsets import evicted
from anabranch.client.topics.places import PartitionPlaces, Place, bounds_of
from anabranch.client.topics.records import RecordBatch
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.errors import (
    AnabranchError,
    RecordEvicted,
    SegmentNotFound,
    StreamNotFound,
    TopicNotFound,
)
from anabranch.common.model.topics import partition_at

Key = tuple[str, int]
"""(topic, partition)"""


@dataclass(slots=True)
class Track:
    """One partition that is read. `number`: of the first record of the next block that arrives.

    `wanted`, `wanted_offset`: as in `Place`. `lost`: evicted records that the consumer is not told
    of yet.
    """

    topic: str
    partition: int
    segment: str
    number: int = 0
    wanted: int = 0
    wanted_offset: int = 0
    end_offset: int | None = None
    """The byte at which the reading ends; None: it does not."""
    lost: RecordEvicted | None = None

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def next_offset(self) -> int:
        """The number of the next record to return."""
        return max(self.number, self.wanted)


class Feed:
    """The partitions of one consumer. `calls` makes the calls of one request to a segment."""

    def __init__(self, intake: Intake, calls: Callable[[str], SegmentCalls]) -> None:
        self._intake = intake
        self._calls = calls
        self.tracks: dict[str, Track] = {}
        """By the full name of the segment."""
        self.starts: dict[Key, int] = {}
        """(topic, partition) → the number of the first record to return."""
        self._rests: dict[str, str] = {}
        """The rest segments that are read → their topics."""
        self._untold: IntakeItem | None = None
        """An item to take before anything else."""
        self.failure: AnabranchError | None = None

    # --- opening --------------------------------------------------------------------------

    def open(self, track: Track, place: Place, *, until_end: bool = False) -> None:
        """Start to read a partition from a place; `until_end`: to its end as the place knows it."""
        track.number, track.wanted = place.number, place.wanted
        track.wanted_offset, track.lost = place.wanted_offset, place.lost
        self.tracks[track.segment] = track
        self.starts[track.key] = track.next_offset
        track.end_offset = place.end_offset if until_end else None
        self._intake.open(track.segment, Position(place.offset), track.end_offset)

    def open_rest(self, segment: str, topic: str) -> None:
        """Wait for the new partitions of a topic."""
        self._rests[segment] = topic
        self._intake.open(segment, Position(0))

    async def close(self) -> None:
        """Stop reading. Repeatable."""
        await self._intake.close()

    # --- taking ---------------------------------------------------------------------------

    async def next(self) -> RecordBatch | None:
        """The next records, in order within their partition; None at the end.

        Raises RecordEvicted once for each gap, TopicNotFound and other final failures for ever.
        """
        if self.failure is not None:
            raise self.failure.copy()
        self._tell_of_loss(self.tracks.values())
        while (item := self._untold or await self._intake.next()) is not None:
            self._untold = None
            if isinstance(item, SegmentFailed):
                await self._recover(item)
            elif (batch := self._taken(item)) is not None:
                return batch
        return None

    def next_nowait(self) -> RecordBatch | None:
        """The next records if they have arrived, and no failure comes before them."""
        while self._untold is None and (item := self._intake.next_nowait()) is not None:
            if isinstance(item, SegmentFailed):
                self._untold = item
            elif (batch := self._taken(item)) is not None:
                return batch
        return None

    def _tell_of_loss(self, tracks: Iterable[Track]) -> None:
        for track in tracks:
            if track.lost is not None:
                lost, track.lost = track.lost, None
                raise lost

    def _taken(self, item: EventBatch | SegmentEnd) -> RecordBatch | None:
        if isinstance(item, EventBatch):
            self._intake.consumed(item)
            return self._numbered(item)
        if item.segment in self._rests:
            self._grow(self._rests.pop(item.segment), item.successors)
        elif not item.reached_end_offset:
            topic = self.tracks[item.segment].topic
            self.failure = TopicNotFound("the topic was deleted", topic=topic)
            raise self.failure.copy()
        return None

    def _numbered(self, events: EventBatch) -> RecordBatch | None:
        """The records of the block that are asked for; None if it has no such records."""
        track = self.tracks[events.segment]
        first = track.number
        track.number += len(events)
        if events.start.offset < track.wanted_offset:
            return None
        batch = RecordBatch(track.topic, track.partition, first, events)
        if track.wanted > first:
            if track.wanted >= track.number:
                return None
            batch = batch.after(track.wanted - first)
        return batch

    def _grow(self, topic: str, successors: Iterable[Successor]) -> None:
        """Read the partitions that were added, from their first records."""
        for new in successors:
            index = partition_at(new.key_start, new.key_end)
            if index is None:
                self.open_rest(new.name, topic)
            else:
                self.open(Track(topic, index, new.name), Place(0, 0))

    # --- failures -------------------------------------------------------------------------

    async def _recover(self, item: SegmentFailed) -> None:
        """Raise the failure, unless it is a gap of the rest segment. After a gap, reading goes on
        at the first record that is kept."""
        track = self.tracks.get(item.segment)
        if track is None and item.next is not None:
            return
        if track is None or item.next is None:
            self.failure = self._named(item.error, item.segment)
            raise self.failure.copy()
        number = track.next_offset
        try:
            next_available = await self._next_available(item, track)
        except AnabranchError as error:
            self.failure = self._named(error, item.segment)
            raise self.failure.copy() from error
        if next_available > number:
            raise evicted(number, next_available, topic=track.topic, partition=track.partition)

    async def _next_available(self, item: SegmentFailed, track: Track) -> int:
        """The number of the first record behind the gap, from which reading goes on."""
        places = PartitionPlaces(track.segment, track.topic, track.partition, self._calls)
        info = await places.info()
        offset = item.error.fields.get("offset")
        if isinstance(offset, int) and info.start <= offset:
            # Only the parts of one large record were truncated; the intake goes on behind it.
            track.number += 1
            return track.number
        self._intake.drop(item.segment)
        start = bounds_of(info).start
        self._intake.open(item.segment, Position(info.start), track.end_offset)
        track.number, track.wanted_offset = start, 0
        return track.next_offset

    def _named(self, error: AnabranchError, segment: str) -> AnabranchError:
        """The failure in the words of topics."""
        track = self.tracks.get(segment)
        topic = self._rests.get(segment, "") if track is None else track.topic
        if isinstance(error, StreamNotFound | SegmentNotFound):
            return TopicNotFound("the topic was deleted", topic=topic)
        error.fields = {**error.fields, "topic": topic}
        if track is not None:
            error.fields["partition"] = track.partition
        return error
