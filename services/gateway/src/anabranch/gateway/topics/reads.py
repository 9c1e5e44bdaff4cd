"""Reads of a partition: records from a place up to a count, a size or the end, perhaps after a
wait; and reading without an end.

The read first takes all records up to the present end. If there are none, and the caller wants to
wait, a second consumer waits at the end for the first record.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from anabranch.client import Client, ReaderSettings, TopicConsumer
from anabranch.client.topics.offsets import Offset
from anabranch.client.topics.records import Record, RecordBatch
from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.events.following import PATIENCE_S
from anabranch.gateway.events.reads import AHEAD_BYTES_MIN, KIB, MIB

RECORDS_AHEAD = 1000
"""Records ahead of a consumer that follows a partition."""
RETRY_S = 20.0


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """`partition` None: the only one. `wait_s`: how long to wait at the end."""

    topic: str
    partition: int | None
    start: Offset
    records_max: int
    wait_s: float = 0.0


@dataclass(slots=True)
class ReadRecords:
    """The result of a read. `next_offset`: the number of the record after the last one."""

    next_offset: int = 0
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


class FollowedPartition:
    """An entered consumer of one caller. `closed` is called once, when it is closed."""

    def __init__(self, consumer: TopicConsumer, clock: Clock, closed: Callable[[], None]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._closed: Callable[[], None] | None = closed

    def next_offset(self) -> int:
        """The number of the record that follows."""
        return _position(self._consumer)

    async def next(self, heartbeat_s: float, stopping: Callable[[], bool]) -> RecordBatch | None:
        """Records; None after `heartbeat_s` without one, or if the gateway stops. Raises the
        consumer's errors."""
        deadline_s = self._clock.monotonic() + heartbeat_s
        while not stopping() and self._clock.monotonic() < deadline_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    return await self._consumer.next_batch()
        return None

    async def close(self) -> None:
        """Close the consumer. Idempotent."""
        if self._closed is not None:
            closed, self._closed = self._closed, None
            closed()
        await self._consumer.close()


class RecordReads:
    """Concurrent reads for many callers, as many as there are `places`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        places: ReadPlaces,
        *,
        size_bytes_max: int,
        timeout_s: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._client = client
        self._clock = clock
        self._places = places
        self._size_bytes_max = size_bytes_max
        self._timeout_s = timeout_s
        self.stopping = stopping

    async def read(self, request: RecordRequest) -> ReadRecords:
        """Read once. Raises the consumer's errors, InvalidRequest, Unavailable, Overloaded."""
        with self._places.taken():
            found = ReadRecords()
            try:
                async with asyncio.timeout(self._timeout_s):
                    partition = await self._partition(request)
                    await self._up_to_end(request, partition, found)
            except TimeoutError as error:
                raise Unavailable(
                    "the records were not read in time", topic=request.topic
                ) from error
            if not found.records and request.wait_s > 0:
                await self._wait_at_end(request, partition, found)
            return found

    async def follow(self, request: RecordRequest) -> FollowedPartition:
        """A consumer that follows the partition; the caller closes it. Raises as `read`."""
        self._places.take()
        try:
            async with asyncio.timeout(self._timeout_s):
                partition = await self._partition(request)
                consumer = self._consumer(request, partition, request.start)
                await consumer.__aenter__()
        except TimeoutError as error:
            self._places.release()
            raise Unavailable("the topic was not opened in time", topic=request.topic) from error
        except BaseException:
            self._places.release()
            raise
        return FollowedPartition(consumer, self._clock, self._places.release)

    async def _partition(self, request: RecordRequest) -> int:
        """Raises InvalidRequest if the topic has several partitions and none is named."""
        if request.partition is not None:
            return request.partition
        found = await self._client.topics.describe(request.topic)
        if found.partition_count > 1:
            raise InvalidRequest(
                "the topic has several partitions",
                remedy="send `partition`",
                topic=request.topic,
                partitions=found.partition_count,
            )
        return 0

    async def _up_to_end(self, request: RecordRequest, partition: int, found: ReadRecords) -> None:
        consumer = self._consumer(request, partition, request.start, until_end=True)
        async with consumer:
            found.next_offset = _position(consumer)
            while not self._is_enough(request, found):
                batch = await consumer.next_batch()
                if batch is None:
                    return
                self._take(batch, request, found)

    async def _wait_at_end(
        self, request: RecordRequest, partition: int, found: ReadRecords
    ) -> None:
        deadline_s = self._clock.monotonic() + request.wait_s
        start = Offset.absolute(found.next_offset)
        async with self._consumer(request, partition, start) as consumer:
            while not found.records and not self.stopping():
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, PATIENCE_S)):
                        batch = await consumer.next_batch()
                        if batch is None:
                            return
                        self._take(batch, request, found)

    def _consumer(
        self, request: RecordRequest, partition: int, start: Offset, *, until_end: bool = False
    ) -> TopicConsumer:
        """A consumer that fetches about as much as the request can take, at 1 KiB per record."""
        ahead_bytes = min(self._size_bytes_max, max(AHEAD_BYTES_MIN, request.records_max * KIB))
        settings = ReaderSettings(
            read_ahead_bytes=ahead_bytes,
            read_size_bytes=min(MIB, ahead_bytes),
            retry_timeout_s=RETRY_S,
        )
        return self._client.topics.consumer(
            request.topic,
            partitions=(partition,),
            start=start,
            until_end=until_end,
            commit=None,
            settings=settings,
        )

    def _is_enough(self, request: RecordRequest, found: ReadRecords) -> bool:
        is_full = found.size_bytes >= self._size_bytes_max
        return is_full or len(found.records) >= request.records_max

    def _take(self, batch: RecordBatch, request: RecordRequest, found: ReadRecords) -> None:
        """Take the batch's records that still fit, and at least one if there are none yet."""
        found.next_offset = batch.next_offset
        for record in batch.records():
            if self._is_enough(request, found):
                found.next_offset = record.offset
                return
            found.records.append(record)
            found.size_bytes += len(record.value)


def _position(consumer: TopicConsumer) -> int:
    """The number of the next record of the one partition."""
    (number,) = consumer.positions().values()
    return number
