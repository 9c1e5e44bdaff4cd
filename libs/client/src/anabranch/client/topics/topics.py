"""`client.topics`: the administration of topics, and the way to producers, consumers and groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

import anabranch.client as public
from anabranch.client.runtime import Runtime
from anabranch.client.settings import ReaderSettings, WriterSettings
from anabranch.client.topics.admin import TopicAdministration
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.model.reader_group import group_ref
from anabranch.common.model.topics import TOPIC_SCOPE
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng

if TYPE_CHECKING:
    from anabranch.client.topics.consuming import Committing, Isolation, Partitions
    from anabranch.client.topics.offsets import Start

T = TypeVar("T")


class Topics(TopicAdministration):
    """The topics of a cluster; `client.topics`.

    ::

        await client.topics.create("orders", partitions=3, wait_s=30)
        async with client.topics.producer("orders") as producer:
            producer.write(b"21.5", key="boiler")
    """

    def __init__(
        self,
        control: ControlPlane,
        directory: SegmentDirectory,
        *,
        clock: Clock,
        ids: IdSource,
        rng: Rng,
        entered: Callable[[], Runtime],
    ) -> None:
        super().__init__(control)
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._entered = entered

    @property
    def consumers(self) -> public.Consumers:
        """List and delete named consumers."""
        return public.Consumers(
            self._control, self._directory, clock=self._clock, ids=self._ids, rng=self._rng
        )

    @overload
    def producer(
        self,
        topic: str,
        settings: WriterSettings | None = None,
        *,
        compression: str | None = None,
    ) -> public.TopicProducer: ...

    @overload
    def producer(
        self,
        topic: str,
        settings: WriterSettings | None = None,
        *,
        compression: str | None = None,
        serializer: public.Serializer[T],
    ) -> public.TopicProducer[T]: ...

    def producer(
        self,
        topic: str,
        settings: WriterSettings | None = None,
        *,
        compression: str | None = None,
        serializer: public.Serializer[T] | None = None,
    ) -> public.TopicProducer[T]:
        """A producer of records; enter it with `async with`. Raises InvalidName.

        `compression`: none or zstd; by default the codec of the topic. It takes values of its
        `serializer`; without one, bytes and text. Entering it raises TopicNotFound,
        TopicNotProvisioned, and InvalidRequest for a codec that the topic forbids.

        ::

            async with client.topics.producer("orders", compression="zstd") as producer:
                producer.write(b"21.5", key="boiler")
        """
        return public.TopicProducer(
            topic,
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or WriterSettings(),
            compression=compression,
            serializer=serializer,
        )

    @overload
    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        partitions: Partitions = None,
        start: Start = "beginning",
        until_end: bool = False,
        name: str | None = None,
        commit: Committing = "auto",
        isolation: Isolation = "read_committed",
        settings: ReaderSettings | None = None,
    ) -> public.TopicConsumer: ...

    @overload
    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        partitions: Partitions = None,
        start: Start = "beginning",
        until_end: bool = False,
        name: str | None = None,
        commit: Committing = "auto",
        isolation: Isolation = "read_committed",
        settings: ReaderSettings | None = None,
        serializer: public.Serializer[T],
    ) -> public.TopicConsumer[T]: ...

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        partitions: Partitions = None,
        start: Start = "beginning",
        until_end: bool = False,
        name: str | None = None,
        commit: Committing = "auto",
        isolation: Isolation = "read_committed",
        settings: ReaderSettings | None = None,
        serializer: public.Serializer[T] | None = None,
    ) -> public.TopicConsumer[T]:
        """A consumer of one topic or several: of all their partitions, or of the chosen ones.

        `start`: "beginning", "end", the number of a record, or an `Offset`. With `until_end`, it
        ends at the records that exist when it starts; otherwise it waits for more. A consumer with
        a `name` resumes after the offsets committed under it; `commit` "auto" commits them every
        10 s and when the block ends, "manual" by `commit()`, None never. The values are those of
        its `serializer`; without one, bytes. Raises InvalidName, InvalidRequest.

        ::

            async with client.topics.consumer("orders", until_end=True) as consumer:
                async for record in consumer:
                    print(record.partition, record.offset, record.value)
        """
        from anabranch.client.topics.consuming import wanted

        return public.TopicConsumer(
            wanted(
                topics,
                partitions=partitions,
                start=start,
                until_end=until_end,
                name=name,
                commit=commit,
                isolation=isolation,
            ),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or ReaderSettings(),
            serializer=serializer,
        )

    def group(self, name: str, topics: Sequence[str] = ()) -> public.TopicGroup:
        """A reader group over topics: its readers share the partitions. `topics` are needed only to
        create it. Raises InvalidName.

        ::

            group = client.topics.group("billing", ["orders"])
            await group.create()
        """
        from anabranch.client.groups.parts import ClientGroupParts
        from anabranch.client.reading.places import Places
        from anabranch.client.reading.ranges import SegmentRanges

        runtime = self._entered()
        ranges = SegmentRanges(self._control, self._directory, clock=runtime.clock, rng=runtime.rng)
        parts = ClientGroupParts(self._control, self._directory, runtime)
        return public.TopicGroup(
            parts.group(group_ref(f"{TOPIC_SCOPE}/{name}")),
            topics,
            admin=public.ReaderGroups(self._control, Places(ranges)),
            control=self._control,
            calls=ranges.calls,
        )
