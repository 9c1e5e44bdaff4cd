"""A reader of a group over topics: it turns the events of a group's reader into records.

A record's number is found once per segment and assignment, and counted on from there: a group's
reader returns the events of a segment in order, and raises an error for each gap.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self

from typing_extensions import TypeVar

from anabranch.client.groups.reader import GroupReader
from anabranch.client.topics.offsets import evicted
from anabranch.client.topics.places import PartitionPlaces, bounds_of
from anabranch.client.topics.records import Record, RecordBatch
from anabranch.client.wire.control import ControlPlane, current_segments
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    SegmentNotFound,
    StreamNotFound,
    TopicNotFound,
)
from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.topics import partition_at, topic_of

T = TypeVar("T", default=bytes)


@dataclass(slots=True)
class _Count:
    """`number`: of the next record of a segment, while its assignment is `ownership`."""

    ownership: int
    number: int


class TopicGroupReader(Generic[T]):
    """Reads a share of a group's partitions: an async context manager, made by `TopicGroup.reader`.
    Asking for the next record marks this one as processed.

    ::

        async with client.topics.group("billing").reader() as reader:
            async for record in reader:
                print(record.partition, record.offset, record.value)
    """

    def __init__(
        self,
        reader: GroupReader[T],
        *,
        control: ControlPlane,
        calls: Callable[[str], SegmentCalls],
    ) -> None:
        self.reader = reader
        """The reader behind it."""
        self._control = control
        self._calls = calls
        self._partitions: dict[str, tuple[str, int]] = {}
        """Segment → (topic, partition)."""
        self._counts: dict[str, _Count] = {}

    async def __aenter__(self) -> Self:
        await self.reader.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.reader.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Leave the group: other readers continue after the last processed record. Repeatable."""
        await self.reader.close()

    # --- reading --------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[T]:
        """The next record. Raises RecordEvicted once for evicted records, TopicNotFound, and the
        other errors of a group's reader."""
        try:
            event = await anext(self.reader)
        except AnabranchError as error:
            raise await self._named(error) from error
        topic, partition = await self._partition(event.segment)
        count = await self._count(event.segment, event.offset, event.event_index)
        number, count.number = count.number, count.number + 1
        return Record(topic, partition, number, event.payload, event.key, event.timestamp_ms)

    async def next_batch(self) -> RecordBatch | None:
        """The records of the next block; asking marks the earlier ones as processed. None at the
        end. Raises as iterating does.

        ::

            batch = await reader.next_batch()
        """
        try:
            events = await self.reader.next_batch()
        except AnabranchError as error:
            raise await self._named(error) from error
        if events is None:
            return None
        topic, partition = await self._partition(events.segment)
        count = await self._count(events.segment, events.start.offset, events.start.event_index)
        number, count.number = count.number, count.number + len(events)
        return RecordBatch(topic, partition, number, events)

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Blocks until the end, see `next_batch`.

        ::

            async for batch in reader.batches():
                print(len(batch), batch.partition)
        """
        while (batch := await self.next_batch()) is not None:
            yield batch

    def ack(self) -> None:
        """Mark every returned record as processed, see `GroupReader.ack`.

        ::

            async for batch in reader.batches():
                reader.ack()
        """
        self.reader.ack()

    # --- numbers --------------------------------------------------------------------------

    async def _partition(self, segment: str) -> tuple[str, int]:
        found = self._partitions.get(segment)
        if found is None:
            stream = parse_segment_name(segment)[0]
            topic, _ = topic_of(stream.stream)
            for each in (await current_segments(self._control, stream)).segments:
                index = partition_at(each.key_start, each.key_end)
                if index is not None:
                    self._partitions[each.name] = (topic, index)
            found = self._partitions[segment]
        return found

    async def _count(self, segment: str, offset: int, index: int) -> _Count:
        """The count of a segment, whose next record is the one at this place."""
        ownership = self.reader.ownership(segment)
        count = self._counts.get(segment)
        if count is None or count.ownership != ownership:
            number = await self._places(segment).number_at(offset) + index
            count = self._counts[segment] = _Count(ownership, number)
        return count

    def _places(self, segment: str) -> PartitionPlaces:
        topic, partition = self._partitions[segment]
        return PartitionPlaces(segment, topic, partition, self._calls)

    async def _named(self, error: AnabranchError) -> AnabranchError:
        """The error in the words of topics."""
        if isinstance(error, StreamNotFound | SegmentNotFound):
            return TopicNotFound("a topic of the group was deleted", reader=self.reader.reader_id)
        segment = error.fields.get("segment")
        if not isinstance(error, EventsTruncated) or not isinstance(segment, str):
            return error
        topic, partition = await self._partition(segment)
        count = self._counts.pop(segment, None)
        start = bounds_of(await self._places(segment).info()).start
        return evicted(
            -1 if count is None else count.number, start, topic=topic, partition=partition
        )
