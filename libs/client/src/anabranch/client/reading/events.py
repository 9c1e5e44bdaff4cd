"""The results of a reader: the events of one block as columns, or one object per event."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from typing_extensions import TypeVar

from anabranch.client.reading.frontier import Position
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.reading.times.window import TimeWindow
from anabranch.client.serializers import CAUSE_LENGTH_MAX, Serializer, require_pyarrow
from anabranch.common.errors import CorruptBlock, SerializationFailed
from anabranch.common.wire.block import FLAG_KEYS

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T", default=bytes)


class Event(NamedTuple, Generic[T]):
    """One event and its place.

    ::

        async for event in reader:
            print(event.timestamp_ms, event.key, event.payload, event.pointer)

    `timestamp_ms` is Unix time. `segment` is the full name of the segment, `offset` the byte offset
    of the event's block in it, and `event_index` the event's number in the block, from 0. These
    three identify the event.
    """

    payload: T
    key: str | None
    timestamp_ms: int
    segment: str
    offset: int
    event_index: int

    @property
    def position(self) -> Position:
        return Position(self.offset, self.event_index)

    @property
    def pointer(self) -> str:
        """The event pointer, by which `Client.fetch` reads the event again."""
        return f"{self.segment}:{self.offset}:{self.event_index}"


class EventBatch:
    """The events of one block, as columns without an object per event.

    `segment` is the full name of the segment, `start` the position of the first event, `next` the
    position after the last one, and `size` the stored size of the whole block in bytes. `opening`
    is a counter of the reader's intake.

    ::

        async for batch in reader.batches():
            for payload, key in zip(batch.payloads, batch.keys):
                print(key, payload)
    """

    def __init__(self, fetched: FetchedBlock, opening: int = 0) -> None:
        self.fetched = fetched
        self.opening = opening
        self.segment = fetched.segment
        self.start = Position(fetched.offset, fetched.start_index)
        self.next = Position(fetched.next_offset)
        if fetched.stop_index is not None:
            self.next = Position(fetched.offset, fetched.stop_index)
        self.size = fetched.block.header.size
        """The stored size of the whole block."""
        self.held_size = fetched.held_size

    def __len__(self) -> int:
        stop = self.fetched.stop_index
        end = len(self.fetched.block) if stop is None else stop
        return max(0, end - self.fetched.start_index)

    def before(self, index: int) -> "EventBatch":
        """The batch without the events from number `index` of the block on.

        ::

            batch = batch.before(end.event_index)
        """
        if index >= len(self.fetched.block):
            return self
        return EventBatch(replace(self.fetched, stop_index=index), self.opening)

    @cached_property
    def payloads(self) -> list[bytes]:
        found = self.fetched.block.events(self.fetched.start_index)
        return found if self.fetched.stop_index is None else found[: len(self)]

    @cached_property
    def keys(self) -> list[str | None]:
        """Parallel to `payloads`; None for an event without a key. Raises CorruptBlock."""
        if not self.fetched.block.header.flags & FLAG_KEYS:
            return [None] * len(self)
        stored = self.fetched.block.keys()[self._rows]
        try:
            return [None if key is None else key.decode() for key in stored]
        except UnicodeDecodeError as error:
            raise CorruptBlock(
                "a block's routing keys are not UTF-8",
                segment=self.segment, offset=self.start.offset,
            ) from error  # fmt: skip

    def open(self) -> None:
        """Decompress the block if it is compressed; repeatable. Raises CorruptBlock, CodecMissing.

        Blocks stay compressed until they are read, so that the read-ahead bounds memory. The
        columns open their block by themselves.

        ::

            batch.open()
        """
        try:
            self.fetched.block.open()
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message, segment=self.segment, offset=self.start.offset, cause=str(error)
            ) from error

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """Event times, parallel to `payloads`."""
        return self.fetched.block.timestamps_ms()[self._rows]

    @property
    def _rows(self) -> slice:
        return slice(self.fetched.start_index, self.fetched.stop_index)

    def values(self, serializer: Serializer[T]) -> list[T]:
        """The deserialized payloads, parallel to `payloads`.

        Raises SerializationFailed with the place of the first event that cannot be deserialized.

        ::

            readings = batch.values(JsonSerializer())
        """
        values, error = self.values_from(0, serializer)
        if error is not None:
            raise error
        return values

    def values_from(
        self, row: int, serializer: Serializer[T]
    ) -> tuple[list[T], SerializationFailed | None]:
        """The values from `row` on, up to the first event that cannot be deserialized, and its
        error; None if all can be.

        ::

            values, error = batch.values_from(0, JsonSerializer())
        """
        values: list[T] = []
        try:
            # One call into C; on a failure, `values` keeps the earlier results.
            values.extend(map(serializer.deserialize, self.payloads[row:]))
        except Exception as error:  # noqa: BLE001  # else a serializer's bug would lose the batch
            return values, self._not_a_value(row + len(values), error)
        return values, None

    def _not_a_value(self, row: int, error: Exception) -> SerializationFailed:
        if isinstance(error, SerializationFailed):
            failed = error.copy()
        else:
            cause = f"{type(error).__name__}: {error}"[:CAUSE_LENGTH_MAX]
            failed = SerializationFailed("the serializer failed on an event", cause=cause)
        offset, first = self.start
        failed.fields = {
            **failed.fields,
            "segment": self.segment,
            "offset": offset,
            "index": first + row,
        }
        failed.__cause__ = error
        return failed

    def events(self) -> list[Event]:
        """The same events as one object each.

        ::

            for event in batch.events():
                print(event.key, event.payload)
        """
        return self.events_with(self.payloads)

    def events_with(self, payloads: Sequence[T], row: int = 0) -> list[Event[T]]:
        """One object per event from `row` on, with these payloads in place of the stored ones.

        ::

            events = batch.events_with(batch.values(JsonSerializer()))
        """
        offset, first = self.start
        first += row
        count = len(payloads)
        rows = zip(
            payloads,
            self.keys[row : row + count],
            self.timestamps_ms[row : row + count],
            repeat(self.segment),
            repeat(offset),
            range(first, first + count),
        )
        # Without a call of Python for each: this is the pace of reading event by event.
        return list(map(tuple.__new__, repeat(Event), rows))

    def to_arrow(self) -> "pa.RecordBatch":
        """The events as an Arrow batch; `arrow` describes its columns.

        If the block is stored uncompressed, the payloads are not copied and keep its memory as long
        as the batch lives. Raises CorruptBlock, CodecMissing.

        ::

            table = batch.to_arrow()
        """
        return arrow_batch([self])


def arrow_batch(
    batches: Sequence[EventBatch], window: TimeWindow | None = None
) -> "pa.RecordBatch":
    """The events of at least one batch as one Arrow batch, with a time window if one is given.

    Raises CorruptBlock, CodecMissing.
    """
    require_pyarrow()
    arrow: Any = import_module("anabranch.client.reading.arrow")
    blocks = []
    for batch in batches:
        batch.open()
        fetched = batch.fetched
        block = fetched.block
        blocks.append(
            arrow.PlacedBlock(
                fetched.segment,
                fetched.offset,
                block.header,
                block.body,
                fetched.start_index,
                fetched.stop_index,
            )
        )
    made: pa.RecordBatch = arrow.batch_of(blocks)
    return made if window is None else arrow.with_time_window(made, window)
