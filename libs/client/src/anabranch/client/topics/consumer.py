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

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Self

from anabranch.client.topics.records import Record, RecordBatch, T

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_S = 10.0
ARROW_ROWS = 2048
Partitions = Sequence[int] | Mapping[str, Sequence[int]] | None
"""Indexes for every topic, or by topic; None: all, and new ones."""
Committing = Literal["auto", "manual"] | None
Isolation = Literal["read_committed", "read_uncommitted"]


class TopicConsumer(Generic[T]):
    """Consumes records of topics; made by `client.topics.consumer`. Its serializer makes the values
    (T).

    `async with` or the first iteration starts it. One caller at a time.

    ::

        async with client.topics.consumer("orders", name="billing") as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.key, record.value)
    """

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop consuming without a commit; repeatable."""

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
        raise NotImplementedError

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Batches until the end (see `next_batch`).

        ::

            async for batch in consumer.batches():
                print(len(batch), batch.partition)
        """
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_arrow(self, rows: int = ARROW_ROWS) -> "pa.RecordBatch | None":
        """The records that have arrived as one Arrow batch of about `rows` records, at least one;
        None at the end. Its columns: topic, partition, offset, timestamp, key, value.

        Waits only for the first record. Needs pyarrow. Raises as `next_batch`, CodecMissing, and
        CorruptBlock.

        ::

            table = await consumer.next_arrow(rows=10_000)
        """
        raise NotImplementedError

    async def arrow_batches(self, rows: int = ARROW_ROWS) -> "AsyncIterator[pa.RecordBatch]":
        """Arrow batches until the end (see `next_arrow`).

        ::

            async for table in consumer.arrow_batches():
                print(table.num_rows)
        """
        while (batch := await self.next_arrow(rows)) is not None:
            yield batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[T]:
        raise NotImplementedError

    def next_nowait(self) -> Record[T] | None:
        """The next record of the current block; None if no block is open.

        ::

            record = consumer.next_nowait() or await anext(consumer)
        """
        raise NotImplementedError

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Store the offsets of the last records that were returned, or these: (topic, partition) →
        the number of the last record that was seen, which may be lower than the committed one.

        A later consumer of the name resumes after them. Raises ConsumerInUse, InvalidRequest (the
        consumer has no name), Unavailable.

        ::

            await consumer.commit()
            await consumer.commit({("orders", 0): 41})
        """
        raise NotImplementedError

    def positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the number of the next record to return.

        ::

            for (topic, partition), offset in consumer.positions().items():
                print(topic, partition, offset)
        """
        raise NotImplementedError
