"""Named consumers: list and delete them, with the offsets that they have committed.

The controllers know the names, and the stores of the partitions know the offsets.
"""

import builtins
from collections.abc import AsyncIterator, Iterable
from itertools import groupby
from typing import NamedTuple

from anabranch.client.backoff import Backoff
from anabranch.client.settings import BackoffSettings
from anabranch.client.topics.commits import (
    AT_ONCE,
    attribute_of,
    read_attributes,
    update_attributes,
)
from anabranch.client.topics.layout import Layout, read_layout
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane, SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.topics import (
    ConsumerDescription,
    ConsumerList,
    ConsumerNamed,
    ForgetConsumer,
    ListConsumers,
)
from anabranch.common.errors import (
    ConsumerNotFound,
    PartitionNotFound,
    SegmentNotFound,
    TopicNotFound,
    TopicNotProvisioned,
)
from anabranch.common.model.topics import topic_name
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng
from anabranch.common.wire.messages import AttributeUpdate
from anabranch.common.workflow.bounded import for_each

RETRY_TIMEOUT_S = 60.0


class ConsumerOffset(NamedTuple):
    """The offset that a named consumer has committed in a partition.

    `offset` is the number of the last record that it has seen, -1 if it has seen none;
    `last_seen_ms` is the Unix time of the commit.

    ::

        async for found in client.topics.consumers.list("orders"):
            print(found.consumer, found.topic, found.partition, found.offset, found.last_seen_ms)
    """

    consumer: str
    topic: str
    partition: int
    offset: int
    last_seen_ms: int


class Consumers:
    """The named consumers of a cluster; `client.topics.consumers`.

    ::

        async for found in client.topics.consumers.list():
            print(found.consumer, found.topic, found.partition, found.offset)
    """

    def __init__(
        self,
        control: ControlPlane,
        directory: SegmentDirectory,
        *,
        clock: Clock,
        ids: IdSource,
        rng: Rng,
    ) -> None:
        self._control = control
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._rng = rng

    async def list(self, topic: str = "") -> AsyncIterator[ConsumerOffset]:
        """The committed offsets by topic, consumer and partition; `topic`: of this one only.

        Raises Unavailable.

        ::

            rows = [row async for row in client.topics.consumers.list("orders")]
        """
        named = [each async for each in self._named(topic_name(topic) if topic else "")]
        for name, of_topic in groupby(named, key=lambda each: each.topic):
            for row in await self._offsets(name, builtins.list(of_topic)):
                yield row

    async def _named(self, topic: str) -> AsyncIterator[ConsumerDescription]:
        token = ""
        while True:
            query = ListConsumers(topic=topic, page_token=token)
            page = await self._control.query(
                "list_consumers", query, ConsumerList, timeout_s=QUERY_TIMEOUT_S
            )
            for consumer in page.consumers:
                yield consumer
            if not (token := page.next_page_token):
                return

    async def _offsets(
        self, topic: str, named: Iterable[ConsumerDescription]
    ) -> builtins.list[ConsumerOffset]:
        """The rows of these consumers; none if the topic has gone meanwhile."""
        try:
            layout = await read_layout(self._control, topic)
            names = sorted(
                each.consumer for each in named if each.incarnation == layout.topic.incarnation
            )
            return await self._rows(layout, names)
        except (TopicNotFound, TopicNotProvisioned, SegmentNotFound):
            return []

    async def _rows(
        self, layout: Layout, names: builtins.list[str]
    ) -> builtins.list[ConsumerOffset]:
        """Sorted by consumer and partition."""
        await self._directory.prepare(layout.segments)
        found: builtins.list[ConsumerOffset] = []

        async def read(partition: int) -> None:
            values = await read_attributes(self._calls(layout.segments[partition]), ())
            for name in names:
                offset = values.get(attribute_of(name, "offset"))
                if offset is not None:
                    seen_ms = values.get(attribute_of(name, "time"), 0)
                    found.append(ConsumerOffset(name, layout.name, partition, offset, seen_ms))

        if names:
            await for_each(range(len(layout.segments)), AT_ONCE, read)
        return sorted(found)

    async def delete(self, consumer: str, topic: str, partition: int | None = None) -> None:
        """Delete the committed offsets of the consumer, or only that of one partition.

        A live consumer of the name raises ConsumerInUse at its next commit. Raises
        ConsumerNotFound, PartitionNotFound, TopicNotFound, Unavailable, OutcomeUnknown.

        ::

            await client.topics.consumers.delete("billing", "orders")
        """
        layout = await read_layout(self._control, topic)
        segments = dict(enumerate(layout.segments))
        if partition is not None:
            if partition not in segments:
                raise PartitionNotFound(
                    "the topic has no such partition",
                    topic=topic, partition=partition, partitions=len(segments),
                )  # fmt: skip
            segments = {partition: segments[partition]}
        held = await self._delete_offsets(consumer, segments.values())
        known = [each.consumer async for each in self._named(layout.name)]
        if not held and (partition is not None or consumer not in known):
            raise ConsumerNotFound(
                "the consumer has committed no offset", topic=topic, consumer=consumer
            )
        if partition is None:
            query = ForgetConsumer(topic=layout.name, consumer=consumer)
            await self._control.query(
                "forget_consumer", query, ConsumerNamed, timeout_s=QUERY_TIMEOUT_S
            )

    async def _delete_offsets(self, consumer: str, segments: Iterable[str]) -> int:
        """Remove them; returns in how many partitions there were any."""
        ids = (attribute_of(consumer, "offset"), attribute_of(consumer, "time"))
        removals = tuple(AttributeUpdate(each, "replace", None) for each in ids)
        held: builtins.list[str] = []

        async def remove(segment: str) -> None:
            if await read_attributes(self._calls(segment), ids):
                await update_attributes(self._calls(segment), self._ids.new_bytes(), 1, removals)
                held.append(segment)

        await for_each(segments, AT_ONCE, remove)
        return len(held)

    def _calls(self, segment: str) -> SegmentCalls:
        backoff = Backoff(BackoffSettings(), self._rng, RETRY_TIMEOUT_S)
        return SegmentCalls(segment, directory=self._directory, clock=self._clock, backoff=backoff)
