"""The producer: a writer whose lanes are the partitions of a topic.

A record with a key goes to the partition of its key (`partitioner`), a record without one to the
partitions in turn, a batch to each (`lanes`), and any record to the partition that the caller
names.
Everything else is the writer's: records travel in blocks, a retry stores nothing twice, and the
first error that a retry cannot cure ends the producer.

The producer learns of new partitions and of leaders when it opens, every `REFRESH_S` seconds, and
by `refresh`. Records of one key are in order as long as no partitions are added.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, cast

from anabranch.client.backoff import Backoff
from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import BackoffSettings, OneSegmentSettings, WriterSettings
from anabranch.client.topics.codecs import agreed_settings
from anabranch.client.topics.lanes import PartitionLanes, Turns
from anabranch.client.topics.layout import (
    PROVISION_WAIT_S,
    Layout,
    led_partitions,
    read_layout,
    settled_layout,
)
from anabranch.client.topics.partitioner import Key, key_bytes
from anabranch.client.topics.records import RecordMetadata
from anabranch.client.topics.sending import PartitionSegment, PartitionSender, Sent
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.client.writing.appender import SegmentAppender
from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES
from anabranch.client.writing.columns import as_timestamps, bytes_of
from anabranch.client.writing.lane_writer import LaneWriter, T
from anabranch.client.writing.lanes import KeyRoutes
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    EventTooLarge,
    Remedy,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    TopicNotFound,
)
from anabranch.common.model.names import StreamName, StreamRef
from anabranch.common.model.topics import TOPIC_SCOPE, topic_name
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX
from anabranch.common.wire.codec import require_zstd

_WRITE_IT = Remedy(api="use `write`, with `WriterSettings(large_events=True)`")
REFRESH_S = 30.0
"""How often a producer looks for new partitions and leaders."""


class TopicProducer(LaneWriter[T]):
    """Produces records to a topic; made by `client.topics.producer`. It takes the values of its
    `serializer` (T).

    An async context manager: leaving the block normally flushes, leaving it by an exception drops
    unacknowledged records.

    ::

        async with client.topics.producer("orders") as producer:
            producer.write(b"21.5", key="boiler")
            await producer.flush()
    """

    def __init__(
        self,
        topic: str,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: WriterSettings,
        compression: str | None = None,
        serializer: Serializer[T] | None = None,
    ) -> None:
        self.topic = topic_name(topic)
        super().__init__(
            StreamRef(TOPIC_SCOPE, StreamName(self.topic)),
            directory=directory,
            runtime=runtime,
            settings=settings,
            serializer=serializer,
        )
        self._control = control
        self._asked = (settings, compression)
        self._layout: Layout | None = None
        self._senders: dict[int, PartitionSender] = {}
        self._lanes = self._partitions = PartitionLanes(self._start_appender)
        self._routes = KeyRoutes(self._partitions.route)
        self._placing = self._turns = Turns(self._partitions, runtime.rng, runtime.tracer)

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        runtime = self._runtime
        backoff = Backoff(BackoffSettings(), runtime.rng, PROVISION_WAIT_S)
        layout = await settled_layout(self._control, self.topic, runtime.clock, backoff)
        self._settings = self._agreed(layout)
        if self._settings.compression is not None:
            require_zstd()
        await self._directory.learn(list(layout.segments))
        led = await led_partitions(self._control, self.topic)
        self.stream = layout.stream
        self._runtime.open_parts.add(self)
        self._adopt(layout, led)
        self._run(self._refresh_for_ever())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop without waiting for acknowledgements; repeatable. Call `flush` first to keep every
        record."""
        await super().close()
        for sender in self._senders.values():
            await sender.close()

    async def refresh(self) -> int:
        """Learn of new partitions and leaders now; returns the number of partitions.

        Raises TopicNotFound, Unavailable, and InvalidRequest if the topic forbids the producer's
        codec by now.

        ::

            await client.topics.add_partitions("orders", 2, wait_s=30)
            count = await producer.refresh()
        """
        layout = await read_layout(self._control, self.topic)
        known = self._layout
        if known is not None and layout.topic.incarnation != known.topic.incarnation:
            raise TopicNotFound(
                "the topic was deleted, and another one was created under its name",
                remedy="open a new producer if you mean the new topic",
                topic=self.topic,
            )
        self._agreed(layout)
        led = await led_partitions(self._control, self.topic)
        await self._directory.prepare(layout.segments)
        self._adopt(layout, led)
        return self.partition_count

    @property
    def partition_count(self) -> int:
        """The number of partitions that the producer knows."""
        return len(self._lanes.outboxes)

    def _agreed(self, layout: Layout) -> WriterSettings:
        settings, compression = self._asked
        return agreed_settings(settings, compression, layout.topic.spec.compression, self.topic)

    def _adopt(self, layout: Layout, led: frozenset[int]) -> None:
        lanes = self._partitions
        lanes.led = led
        self._layout = layout
        if lanes.open_partitions(layout.segments):
            self._routes.clear()

    async def _refresh_for_ever(self) -> None:
        while self._failure is None:
            await self._runtime.clock.sleep(REFRESH_S)
            try:
                with suppress(Retry):
                    await self.refresh()
            except AnabranchError as error:
                self._fail(error)

    # --- writing --------------------------------------------------------------------------

    _write = LaneWriter.write
    """Called directly, because `super()` costs an object per record."""

    def write(
        self,
        value: T,
        key: Key | None = None,
        timestamp_ms: int | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Take one record; never waits. Without `partition`, its key decides where it goes.

        Raises BufferFull (the producer took nothing: `await drain()`, then write the record again),
        EventTooLarge, PartitionNotFound, InvalidRequest, SerializationFailed, and the producer's
        failure.

        ::

            producer.write(b"21.5", key="boiler", timestamp_ms=1_700_000_000_000)
        """
        if partition is None:
            self._write(value, key, timestamp_ms)  # type: ignore[arg-type]  # `_routes` take both
            return
        with self._aimed_at(partition):
            self._write(value, key, timestamp_ms)  # type: ignore[arg-type]

    def write_batch(
        self,
        values: Sequence[T],
        keys: Sequence[Key | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Take all the records or none; never waits. Raises as `write`.

        Without keys, the batch goes to one partition after another, cut into blocks, with no work
        per record. With `partition`, all of it goes there.

        ::

            producer.write_batch([b"21.5", b"4"], keys=["boiler", "door"])
        """
        given = cast("Sequence[str | None] | None", keys)
        if partition is None:
            super().write_batch(values, given, timestamps_ms)
            return
        with self._aimed_at(partition):
            super().write_batch(values, given, timestamps_ms)

    def write_arrow(
        self,
        batch: Any,
        *,
        event: str = "value",
        key: str | None = None,
        timestamp_ms: str | int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take all rows of a pyarrow Table or RecordBatch, or none; never waits. Raises as
        `write_batch`, and CodecMissing without pyarrow.

        `event`, `key` and `timestamp_ms` name the columns of values, keys and times; times may be
        one number for all rows. Values are binary or text and bypass any serializer. The buffers
        must not change before the records are acknowledged.

        ::

            producer.write_arrow(table, event="reading", key="sensor")
        """
        if partition is None:
            super().write_arrow(batch, event=event, key=key, timestamp_ms=timestamp_ms)
            return
        with self._aimed_at(partition):
            super().write_arrow(batch, event=event, key=key, timestamp_ms=timestamp_ms)

    async def append(
        self,
        value: T,
        key: Key | None = None,
        timestamp_ms: int | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Write one record and wait until it is durable; waits for room in the buffer if necessary.

        ::

            await producer.append(b"21.5", key="boiler")
        """
        while True:
            try:
                self.write(value, key, timestamp_ms, partition=partition)
                break
            except BufferFull:
                await self.drain()
        await self.acknowledgement()

    async def send(
        self,
        value: T,
        key: Key | None = None,
        timestamp_ms: int | None = None,
        *,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Produce one record, and return its partition and its number there once it is durable.

        Sends that wait at the same time travel together. A `send` is not in order with writes that
        are not flushed. Raises as `write`, but waits for room; Unavailable if no store took the
        record in time, and OutcomeUnknown if one may have taken it.

        ::

            metadata = await producer.send(b"21.5", key="boiler")
            print(metadata.partition, metadata.offset)
        """
        data = bytes_of(value, self._serializer)
        stamp = None if timestamp_ms is None else as_timestamps([timestamp_ms])[0]
        stored = None if key is None else key_bytes(key)
        cost = len(data) + EVENT_OVERHEAD_BYTES + len(stored or b"")
        if len(data) > EVENT_SIZE_BYTES_MAX:
            raise EventTooLarge(
                "a record is too large to be sent alone",
                remedy=_WRITE_IT,
                size=len(data), limit=EVENT_SIZE_BYTES_MAX,
            )  # fmt: skip
        while True:
            try:
                self._refuse_if_impossible(len(data), cost)
                break
            except BufferFull:
                await self.drain()
        chosen = self._partitions.choose(stored, partition, self._turns)
        self._room.used += cost
        numbered: asyncio.Future[int] = self._loop.create_future()
        self._sender(chosen).add(Sent(data, stored, stamp, cost, numbered))
        return RecordMetadata(chosen, await numbered)

    def _sender(self, partition: int) -> PartitionSender:
        if partition not in self._senders:
            segment = PartitionSegment(
                self.topic,
                self.stream,
                self._partitions.lane(partition).segment,
                control=self._control,
                directory=self._directory,
                runtime=self._runtime,
                settings=OneSegmentSettings(
                    retry_timeout_s=self._settings.retry_timeout_s,
                    ack_timeout_s=self._settings.ack_timeout_s,
                ),
            )
            self._senders[partition] = PartitionSender(segment, self._settings, self._room.release)
        return self._senders[partition]

    # --- behind the scenes ----------------------------------------------------------------

    @contextmanager
    def _aimed_at(self, partition: int) -> Iterator[None]:
        """Within this block, every record goes to the partition. Raises PartitionNotFound."""
        before = self._routes, self._turns.keyless
        self._routes, aim = self._partitions.aimed(partition)
        self._turns.aim = self._turns.keyless = aim
        try:
            yield
        finally:
            self._turns.aim = None
            self._routes, self._turns.keyless = before

    def _appender_ended(self, appender: SegmentAppender, error: AnabranchError) -> None:
        if self._failure is not None:
            return
        final = error
        if isinstance(error, SegmentSealed | SegmentNotFound):
            final = TopicNotFound("the topic was deleted during a write")
        final.fields = {**final.fields, "topic": self.topic, "segment": appender.segment}
        self._fail(final)
