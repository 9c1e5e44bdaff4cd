"""The records of one block, which a consumer returns as columns, or as one object per record."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from typing_extensions import TypeVar

from anabranch.client.reading.events import EventBatch
from anabranch.client.serializers import Serializer, require_pyarrow
from anabranch.common.errors import SerializationFailed

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", default=bytes)


class RecordMetadata(NamedTuple):
    """The place of a record that was produced: its partition, and its number there.

    ::

        metadata = await producer.send(b"21.5", key="boiler")
        print(metadata.partition, metadata.offset)
    """

    partition: int
    offset: int


class Record(NamedTuple, Generic[T]):
    """One record and its place.

    ::

        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.key, record.value)

    `offset` is the record's number in its partition. `timestamp_ms` is Unix time.
    """

    topic: str
    partition: int
    offset: int
    value: T
    key: str | None
    timestamp_ms: int


class RecordBatch:
    """The records of one block, as columns without an object per record.

    `offset` is the number of the first record; the others follow without gaps.

    ::

        async for batch in consumer.batches():
            for value, key in zip(batch.values, batch.keys):
                print(batch.partition, key, value)
    """

    def __init__(self, topic: str, partition: int, offset: int, events: EventBatch) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.events = events
        """The same records as events of the backing stream."""

    def __len__(self) -> int:
        return len(self.events)

    @property
    def next_offset(self) -> int:
        """The number of the record after the last one."""
        return self.offset + len(self.events)

    @property
    def offsets(self) -> range:
        """The numbers of the records, parallel to `values`."""
        return range(self.offset, self.next_offset)

    @property
    def values(self) -> list[bytes]:
        return self.events.payloads

    @property
    def keys(self) -> list[str | None]:
        """Parallel to `values`; None for a record without a key. Raises CorruptBlock."""
        return self.events.keys

    @property
    def timestamps_ms(self) -> list[int]:
        """Parallel to `values`."""
        return self.events.timestamps_ms

    def after(self, count: int) -> "RecordBatch":
        """The batch without its first `count` records.

        ::

            rest = batch.after(1)
        """
        fetched = self.events.fetched
        events = EventBatch(
            replace(fetched, start_index=fetched.start_index + count), self.events.opening
        )
        return RecordBatch(self.topic, self.partition, self.offset + count, events)

    def before(self, count: int) -> "RecordBatch":
        """The first `count` records of the batch.

        ::

            first = batch.before(1)
        """
        events = self.events.before(self.events.fetched.start_index + count)
        return RecordBatch(self.topic, self.partition, self.offset, events)

    def records(self) -> list[Record]:
        """The same records as one object each.

        ::

            for record in batch.records():
                print(record.offset, record.value)
        """
        return self.records_with(self.values)

    def records_with(self, values: Sequence[T], row: int = 0) -> list[Record[T]]:
        """One object per record from `row` on, with these values in place of the stored ones.

        ::

            records = batch.records_with(batch.deserialized(JsonSerializer()))
        """
        end = row + len(values)
        rows = zip(
            repeat(self.topic),
            repeat(self.partition),
            range(self.offset + row, self.offset + end),
            values,
            self.keys[row:end],
            self.timestamps_ms[row:end],
            strict=False,  # the first two never end
        )
        # Without a call of Python for each: this is the pace of reading record by record.
        return list(map(tuple.__new__, repeat(Record), rows))

    def deserialized(self, serializer: Serializer[T]) -> list[T]:
        """The deserialized values. Raises SerializationFailed with the number of the first record
        that cannot be deserialized.

        ::

            readings = batch.deserialized(JsonSerializer())
        """
        values, error = self.deserialized_from(0, serializer)
        if error is not None:
            raise error
        return values

    def deserialized_from(
        self, row: int, serializer: Serializer[T]
    ) -> tuple[list[T], SerializationFailed | None]:
        """The values from `row` on, up to the first record that cannot be deserialized, and its
        error; None if all can be.

        ::

            values, error = batch.deserialized_from(0, JsonSerializer())
        """
        values, error = self.events.values_from(row, serializer)
        if error is not None:
            error.fields = {
                **error.fields,
                "topic": self.topic,
                "partition": self.partition,
                "offset": self.offset + row + len(values),
            }
        return values, error

    def to_arrow(self) -> "pa.RecordBatch":
        """The records as an Arrow batch; `topics.arrow` describes its columns.

        Raises CorruptBlock, CodecMissing.

        ::

            table = batch.to_arrow()
        """
        return arrow_records([self])


def arrow_records(batches: Sequence[RecordBatch]) -> "pa.RecordBatch":
    """The records of at least one batch as one Arrow batch. Raises CorruptBlock, CodecMissing."""
    require_pyarrow()
    arrow: Any = import_module("anabranch.client.topics.arrow")
    for batch in batches:
        batch.events.open()
    made: pa.RecordBatch = arrow.batch_of(batches)
    return made
