"""The consumer: it reads ahead in the partitions of topics, and numbers their records.

Records of one partition come in the order of their numbers; partitions are merged in the order of
arrival. Unless the caller chooses partitions, new ones are read from their first record on. If the
next records of a partition were evicted, `RecordEvicted` is raised once, and the next call
continues at the first record that is kept.

Everything that can be read is committed, so `read_uncommitted` is the same as `read_committed`.

A consumer with a `name` resumes after the offsets that were committed under the name. With
`commit="auto"` it commits every `COMMIT_S` seconds and when its block ends; a record counts as seen
once the next one is asked for, or when the block ends without an exception. Two live consumers of
one name do not undo each other: a commit compares the stored offset with the one that this consumer
stored or found last, and raises `ConsumerInUse` if another consumer has committed in between.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, cast

from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer, require_pyarrow
from anabranch.client.settings import ReaderSettings
from anabranch.client.topics.consuming import Consuming, Wanted
from anabranch.client.topics.feed import Key
from anabranch.client.topics.records import Record, RecordBatch, T, arrow_records
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    InvalidRequest,
    Remedy,
    SerializationFailed,
)

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 2048
COMMIT_AT_FAILURE_S = 5.0
"""How long a consumer tries to commit when its block ends by an exception."""
ARROW_SIZE_BYTES = 32 * 1024 * 1024
"""An Arrow batch takes no more blocks once it has reached this size."""


class TopicConsumer(Generic[T]):
    """Consumes records of topics; made by `client.topics.consumer`. Its serializer makes the values
    (T).

    `async with` or the first iteration starts it. One caller at a time.

    ::

        async with client.topics.consumer("orders", name="billing") as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.key, record.value)
    """

    def __init__(
        self,
        wanted: Wanted,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ReaderSettings,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self._wanted = wanted
        self._runtime = runtime
        self._consuming = Consuming(
            wanted,
            control=control,
            directory=directory,
            runtime=runtime,
            settings=settings,
            seen=self._seen,
        )
        self._serializer = serializer
        self._started = False
        self._closed = False
        self._failure: AnabranchError | None = None
        self._returned: dict[Key, int] = {}
        """The numbers after the records that were returned in batches."""
        self._in_hand: dict[Key, int] = {}
        """The numbers of the first records that the caller may not have finished yet."""
        self._open_batch: RecordBatch | None = None
        self._open_records: deque[Record[T]] = deque()
        self._no_value: tuple[int, SerializationFailed] | None = None
        """The row after the open records that cannot be deserialized, and its error."""

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if not self._started:
            await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._wanted.commit == "auto" and self._started and not self._closed:
                await self._commit_at_end(is_normal=kind is None)
        finally:
            await self.close()

    async def _commit_at_end(self, *, is_normal: bool) -> None:
        """Commit; after an exception, only try to, because the exception of the block is raised."""
        if is_normal:
            self._finish_hand()
            await self._consuming.commit(self._seen())
            return
        with suppress(AnabranchError, TimeoutError):
            async with asyncio.timeout(COMMIT_AT_FAILURE_S):
                await self._consuming.commit(self._seen())

    async def close(self) -> None:
        """Stop consuming without a commit; repeatable."""
        self._closed = True
        self._runtime.open_parts.discard(self)
        await self._consuming.close()

    async def _begin(self) -> None:
        """Find where to start; may be repeated after an error."""
        await self._consuming.begin()
        self._started = True
        self._runtime.open_parts.add(self)

    # --- reading --------------------------------------------------------------------------

    async def next_batch(self) -> RecordBatch | None:
        """The records of the next block of a partition; None at the end.

        Raises RecordEvicted once for records that were evicted. Every other failure is final:
        TopicNotFound means that the topic was deleted, ConsumerInUse that another live consumer
        commits under the same name. Raises Closed after `close`.

        ::

            batch = await consumer.next_batch()
            if batch is not None:
                print(batch.partition, batch.offset, batch.values)
        """
        await self._ready()
        batch = await self._consuming.next()
        if batch is not None:
            self._give(batch)
        return batch

    async def _ready(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed", topics=", ".join(self._wanted.topics)[:200])
        if not self._started:
            await self._begin()
        begun = self._open_records or self._no_value is not None
        assert not begun, "finish the iteration of the current block before you ask for batches"
        self._finish_hand()
        if self._failure is not None:
            raise self._failure.copy()

    def _give(self, batch: RecordBatch) -> None:
        key = batch.topic, batch.partition
        self._in_hand.setdefault(key, batch.offset)
        self._returned[key] = batch.next_offset

    def _finish_hand(self) -> None:
        """The caller is done with everything that was returned."""
        if self._open_batch is not None and (self._open_records or self._no_value):
            key = self._open_batch.topic, self._open_batch.partition
            self._in_hand = {key: self._next_of(self._open_batch)}
            return
        self._open_batch = None
        self._in_hand.clear()

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Batches until the end (see `next_batch`).

        ::

            async for batch in consumer.batches():
                print(len(batch), batch.partition)
        """
        while not self._closed and (batch := await self.next_batch()) is not None:
            yield batch

    async def next_arrow(self, rows: int = ARROW_ROWS) -> "pa.RecordBatch | None":
        """The records that have arrived as one Arrow batch of about `rows` records, at least one;
        None at the end. Its columns: topic, partition, offset, timestamp, key, value.

        Waits only for the first record. Needs pyarrow. Raises as `next_batch`, CodecMissing, and
        CorruptBlock.

        ::

            table = await consumer.next_arrow(rows=10_000)
        """
        require_pyarrow()
        await self._ready()
        first = await self._consuming.next()
        if first is None:
            return None
        taken, count, size = [first], len(first), first.events.held_size
        while count < rows and size < ARROW_SIZE_BYTES:
            batch = self._consuming.next_nowait()
            if batch is None:
                break
            taken.append(batch)
            count, size = count + len(batch), size + batch.events.held_size
        try:
            made = arrow_records(taken)
        except AnabranchError as error:
            self._failure = error
            raise error.copy() from error
        for batch in taken:
            self._give(batch)
        return made

    async def arrow_batches(self, rows: int = ARROW_ROWS) -> "AsyncIterator[pa.RecordBatch]":
        """Arrow batches until the end (see `next_arrow`).

        ::

            async for table in consumer.arrow_batches():
                print(table.num_rows)
        """
        while not self._closed and (batch := await self.next_arrow(rows)) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    def next_nowait(self) -> Record[T] | None:
        """The next record of the current block; None if no block is open.

        Touches no background work, so the caller may be another thread.

        ::

            record = consumer.next_nowait() or await anext(consumer)
        """
        return self._open_records.popleft() if self._open_records else None

    async def __anext__(self) -> Record[T]:
        """The next record. Raises as `next_batch`. A record that the serializer refuses raises
        SerializationFailed once; the next call continues with the record after it."""
        while not self._open_records:
            if self._no_value is not None:
                row, error = self._no_value
                self._open_rows(row + 1)
                raise error
            batch = None if self._closed else await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._open_batch = batch
            self._open_rows(0)
        return self._open_records.popleft()

    def _open_rows(self, row: int) -> None:
        """Yield the open batch's records from `row` on, up to one that cannot be deserialized."""
        batch = self._open_batch
        assert batch is not None
        self._no_value = None
        if self._serializer is None:
            self._open_records = cast("deque[Record[T]]", deque(batch.records()))
            return
        values, error = batch.deserialized_from(row, self._serializer)
        self._open_records = deque(batch.records_with(values, row))
        if error is not None:
            self._no_value = row + len(values), error

    # --- offsets --------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Key, int] | None = None) -> None:
        """Store the offsets of the last records that were returned, or these: (topic, partition) →
        the number of the last record that was seen, which may be lower than the committed one.

        A later consumer of the name resumes after them. Raises ConsumerInUse, PartitionNotFound,
        InvalidRequest (the consumer has no name), TooManyAttributes (a partition keeps the offsets
        of 128 consumers), Unavailable, OutcomeUnknown.

        ::

            await consumer.commit()
            await consumer.commit({("orders", 0): 41})
        """
        if self._wanted.name is None or self._wanted.commit is None:
            raise InvalidRequest(
                "the consumer commits no offsets",
                remedy=Remedy(api="give it a `name`, and `commit` auto or manual"),
            )
        if not self._started:
            await self._begin()
        if offsets is None:
            offsets = {key: number - 1 for key, number in self.positions().items()}
        await self._consuming.commit(offsets)

    def positions(self) -> dict[Key, int]:
        """(topic, partition) → the number of the next record to return.

        ::

            for (topic, partition), offset in consumer.positions().items():
                print(topic, partition, offset)
        """
        found = {**self._consuming.starts, **self._returned}
        batch = self._open_batch
        if batch is not None:
            found[batch.topic, batch.partition] = self._next_of(batch)
        return found

    def _next_of(self, batch: RecordBatch) -> int:
        """The number of the next record of a batch that is iterated."""
        if self._no_value is not None:
            return batch.offset + self._no_value[0] - len(self._open_records)
        return batch.next_offset - len(self._open_records)

    def _seen(self) -> dict[Key, int]:
        """(topic, partition) → the number of the last record that the caller is done with."""
        found = self.positions()
        batch = self._open_batch
        for key, first in self._in_hand.items():
            if batch is not None and key == (batch.topic, batch.partition):
                found[key] = max(first, found[key] - 1)  # the record that was returned last
            else:
                found[key] = first
        return {key: number - 1 for key, number in found.items()}
